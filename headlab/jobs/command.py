"""How jobs read on a command line: the flags of their fields, written and read back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headlab.core import HeadlabError, Option
from headlab.tasks import read_label_map, write_label_map

ALL_EXAMPLES = 100_000
"""More examples than any task has, for commands without a value for "all"."""
OPTION_FLAG = "-o"
FlagValue = bool | int | float | str | Path | list[str] | list[float] | None


@dataclass(frozen=True)
class CommandContext:
    """What a command names besides its job: where things are, and what no job can ask for.

    Attributes:
        model: Path in place of the model's name.
        task: Path of a declaration in place of the task's name.
        data: Folder of the task's files.
        trees: Path of a file of gold trees.
        frequencies: Path of a text that word frequencies are counted in.
        dtype: Precision, if it is not float32.
        dev_size: Examples that ordered the heads of a curve, if known.
    """

    model: str | None = None
    task: str | None = None
    data: str | None = None
    trees: str | None = None
    frequencies: str | None = None
    dtype: str | None = None
    dev_size: int | None = None

    @property
    def dtype_words(self) -> list[str]:
        """The flag of the precision; none for float32."""
        if self.dtype in (None, "float32"):
            return []
        return ["--dtype", str(self.dtype)]


NO_CONTEXT = CommandContext()


@dataclass(frozen=True)
class Flag:
    """A flag, or an argument, of a command that makes a job.

    Attributes:
        name: With its dashes; without any for an argument.
        help: What it sets.
        kind: Type of its value, of each one if it is repeated; bool for a switch.
        default: Value if it is not given.
        low: Smallest value.
        short: A second name.
        repeated: Whether it can be given several times.
        required: Whether it must be given.
        negated: Whether a switch has a second name that turns it off, like `--no-fast` of `--fast`.
        command_only: Whether it says what no job can ask for: where things are, or what the command
            alone can do.
        metavar: What stands for an argument in the help.
        parameter: Its key, if that is not its name without dashes.
    """

    name: str
    help: str
    kind: type = str
    default: FlagValue = None
    low: float | None = None
    short: str = ""
    repeated: bool = False
    required: bool = False
    negated: bool = False
    command_only: bool = False
    metavar: str = ""
    parameter: str = ""

    @property
    def key(self) -> str:
        """Its name as that of a parameter."""
        return self.parameter or self.name.lstrip("-").replace("-", "_")

    @property
    def is_argument(self) -> bool:
        """Whether its value is given without its name."""
        return not self.name.startswith("-")

    @property
    def names(self) -> list[str]:
        """All its names as a parser takes them, the switch that turns it off behind a slash."""
        if self.negated:
            return [f"{self.name}/{off_switch(self.name)}"]
        if self.short:
            return [self.name, self.short]
        return [self.name]


def off_switch(name: str) -> str:
    """The name that turns a switch off."""
    return f"--no-{name.removeprefix('--')}"


def flag_name(field: str, option: Option) -> str:
    """The flag of a setting."""
    return f"--{(option.flag or field).replace('_', '-')}"


def flag_of(field: str, option: Option) -> Flag:
    """A setting as a flag.

    Numbers have their smallest value alone, for a command may ask for more than a request.
    """
    low = option.low if option.kind is int and option.low > float("-inf") else None
    if isinstance(option.default, Mapping):
        raise TypeError(f"{field} holds options of its own and has no flag")
    return Flag(
        flag_name(field, option),
        option.help,
        option.kind,
        option.default,
        low,
        negated=option.kind is bool,
    )


def unset_flags(options: Mapping[str, Option], names: Sequence[str]) -> Iterator[Flag]:
    """Flags without a value where they are not given, because their defaults depend on other flags.

    Args:
        options: By name.
        names: Of those that have a flag, in the order of the help.
    """
    for name in names:
        yield replace(flag_of(name, options[name]), default=None)


def flag_words(name: str, value: object) -> list[str]:
    """A flag with its value; a switch is its own value.

    Args:
        name: Of the flag.
        value: What it is set to.
    """
    if isinstance(value, bool):
        return [name if value else off_switch(name)]
    return [name, text_of(value)]


def text_of(value: object) -> str:
    """A field's value as one word.

    Entries have commas between them; None is the number of all examples.
    """
    if isinstance(value, Mapping):
        return write_label_map(value)
    if value is None:
        return str(ALL_EXAMPLES)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def setting_words(
    values: Mapping[str, object], settings: Mapping[str, Option], always: Sequence[str] = ()
) -> list[str]:
    """The flags of settings that are not at their defaults.

    Args:
        values: By the settings' names; what is missing has no flag.
        settings: In the order of the command.
        always: Names whose flag is written whatever its value.
    """
    words: list[str] = []
    for name, option in settings.items():
        if name not in values:
            continue
        if name in always or values[name] != option.default:
            words += flag_words(flag_name(name, option), values[name])
    return words


def subject_words(
    context: CommandContext,
    *,
    model: str | None = None,
    task: str | None = None,
    label_map: Mapping[str, str] | None = None,
    languages: Sequence[str] | str | None = None,
) -> list[str]:
    """The flags of the model, the task, its data, the label map and the languages that are given.

    Args:
        context: Paths in place of names, and the folder of data.
        model: Its name.
        task: Its name.
        label_map: The model's class of each label.
        languages: Their codes, or "all".
    """
    words: list[str] = []
    model_text = context.model or model
    if model_text is not None:
        words += ["--model", model_text]
    task_text = context.task or task
    if task_text is not None:
        words += ["--task", task_text]
    if context.data is not None:
        words += ["--data", context.data]
    if label_map:
        words += ["--label-map", write_label_map(label_map)]
    if languages is not None:
        words += ["--languages", text_of(languages)]
    return words


def languages_of(text: str) -> list[str] | str:
    """Language codes from a comma-separated text; "all" is returned unchanged.

    Raises:
        HeadlabError: The text names none.
    """
    if text == "all":
        return text
    codes = [code.strip() for code in text.split(",") if code.strip()]
    if not codes:
        raise HeadlabError(
            "no language given; name some, like --languages de,th, or all", code="language.none"
        )
    return codes


def label_map_of(text: str | None) -> dict[str, str] | None:
    """A label map as `--label-map` takes it. Raises HeadlabError for a malformed one."""
    if text is None:
        return None
    return dict(read_label_map(text))


def check_about_task(values: Mapping[str, object]) -> None:
    """Refuse flags about a task where none is given: they would have no effect.

    Args:
        values: By the flags' names; None for one that is not given.

    Raises:
        HeadlabError: One is given.
    """
    flags_given = " and ".join(name for name, value in values.items() if value is not None)
    if flags_given:
        task = f"--task {SUBJECT_FLAGS['task'].default}"
        raise HeadlabError(
            f"{flags_given} would be about a task, but none is given; add --task, like {task}, or "
            f"leave {flags_given} out",
            code="option.needs_task",
        )


SUBJECT_FLAGS = {
    "model": Flag("--model", "embedded name, local folder, or hub id", default="e5-small-intents"),
    "task": Flag(
        "--task",
        "task by name (headlab tasks lists them), or a declaration of your own (.toml)",
        default="intents",
    ),
    "label_map": Flag(
        "--label-map",
        "which of the model's classes is which label, where its own names do not say so: "
        "label=class, comma-separated",
    ),
    "languages": Flag("--languages", 'comma-separated, or "all"', default="all"),
}
"""The flags that say what a job is about, by the fields that they fill."""
DATA = Flag(
    "--data",
    "folder of the task's files; default $HEADLAB_DATA, else the hub",
    Path,
    command_only=True,
)
DEVICE = Flag(
    "--device", "cpu, cuda, cuda:1, ...; default: a GPU where there is one", command_only=True
)
METHOD_OPTIONS_FLAG = Flag(
    "--option",
    "option of the method as name=value, e.g. samples=512",
    short=OPTION_FLAG,
    repeated=True,
)


def subject_flags(fields: Sequence[str] = tuple(SUBJECT_FLAGS)) -> Iterator[Flag]:
    """The flags that say what a job is about, and where the files of its task are.

    Args:
        fields: That the job has of those in `SUBJECT_FLAGS`.
    """
    for field, flag in SUBJECT_FLAGS.items():
        if field in fields:
            yield flag
        if field == "task" and field in fields:
            yield DATA


def pairs_of(values: Mapping[str, FlagValue], key: str) -> list[str]:
    """The name=value pairs of a repeated flag; none if it is not given.

    Args:
        values: By the flags' keys.
        key: Of the flag.
    """
    pairs = values.get(key)
    if isinstance(pairs, list):
        return list(map(str, pairs))
    return []
