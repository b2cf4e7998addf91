"""The card of a place: README.md, which says what its masks and scores are, and where from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from headlab.core import HUB_ID, HeadlabError, JsonRecord, comma_list, part
from headlab.masks import Mask, RecordedAccuracy, accuracy_notes, as_safe_line, seen
from headlab.report.again import Again, joined
from headlab.report.commands import COMMIT, Known
from headlab.report.parts import Item
from headlab.report.sections.masks import mask_commands
from headlab.sharing.layout import mask_path

MARK = (
    "<!-- headlab push writes this card from the files beside it, and writes it anew each time. -->"
)
LICENSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,59}")
# The block of metadata at the beginning of a card, and the licence in it.
FRONT_MATTER = re.compile(r"---\s*\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)
LICENSE_LINE = re.compile(r"""^license:\s*["']?([A-Za-z0-9.+-]+)["']?\s*$""", re.MULTILINE)
LANGUAGE_CODE = re.compile(r"[a-z]{2,3}")
TAGS = ("headlab", "attention-heads", "pruning")
MAX_DESCRIBED = 100  # masks, and scores; more are named only
MAX_COMMAND_LENGTH = 4000
MARKUP = re.compile(r"([\\`*_{}\[\]<>()#|!~&])")
FIGURE_COLUMNS = (
    "split",
    "task",
    "language",
    "answers",
    "accuracy, %",
    "untouched, %",
    "difference, points",
)
KNOWN = Known(paths=False)
WARNING = (
    "> **A mask fits only the weights that it was made for.** It names them by their fingerprint, "
    "a sha256 over the model's files. Heads of one model say nothing about those of another, even "
    "of the same shape, so headlab refuses a mask on a model with another fingerprint. "
    "`headlab pull … --model MODEL` checks it before anything is used."
)


@dataclass(frozen=True)
class CardContent:
    """What a card is about.

    Attributes:
        place: What a command calls the place.
        masks: Its masks by their names; those that are described.
        scores: The specs of its scores by their keys; those that are described.
        further_masks: Names of masks that are named only.
        further_scores: Keys of scores that are named only.
        license: Identifier of the licence; empty if none was given.
    """

    place: str
    masks: Mapping[str, Mask]
    scores: Mapping[str, JsonRecord]
    further_masks: Sequence[str] = ()
    further_scores: Sequence[str] = ()
    license: str = ""

    @property
    def models(self) -> list[JsonRecord]:
        """The models of all of it, each once, by name and fingerprint."""
        models_by_identity: dict[tuple[str, str], JsonRecord] = {}
        scored = [_model_of(spec) for spec in self.scores.values()]
        for model in [*(mask.model for mask in self.masks.values()), *scored]:
            identity = str(model.get("name")), str(model.get("fingerprint"))
            models_by_identity.setdefault(identity, model)
        return list(models_by_identity.values())

    @property
    def languages(self) -> list[str]:
        """The languages of all of it, each once."""
        languages = [language for mask in self.masks.values() for language in mask.languages]
        languages += [str(part(spec, "task", "language") or "") for spec in self.scores.values()]
        return list(dict.fromkeys(language for language in languages if language))


@dataclass(frozen=True)
class EarlierCard:
    """A card that is there already.

    Attributes:
        text: Of the card.
    """

    text: str = field(repr=False)

    @property
    def license(self) -> str:
        """The licence in its metadata; empty if there is none."""
        metadata = FRONT_MATTER.match(self.text)
        found = LICENSE_LINE.search(metadata[1]) if metadata else None
        return found[1] if found else ""

    @property
    def is_replaceable(self) -> bool:
        """Whether headlab wrote it, or it holds metadata alone, as the hub makes it."""
        return MARK in self.text or not FRONT_MATTER.sub("", self.text, count=1).strip()


def check_license(name: str) -> None:
    """Raise HeadlabError for what is no identifier of a licence.

    Args:
        name: As it is to stand in the card.
    """
    if not LICENSE.fullmatch(name):
        raise HeadlabError(
            f"{as_safe_line(name)!r} is no identifier of a licence; give one like apache-2.0, mit "
            "or cc-by-4.0",
            code="share.license_invalid",
        )


def card_text(content: CardContent) -> str:
    """The card, in Markdown with a block of metadata before it.

    Args:
        content: What it is about.
    """
    content = without_paths(content)
    names = [plain(str(model.get("name") or "an unnamed model")) for model in content.models]
    lines = [
        *_metadata(content),
        MARK,
        "",
        f"# Attention heads of {comma_list(dict.fromkeys(names), 5) or 'no model yet'}",
        "",
        "Made by headlab, which measures what each attention head of a transformer does for its "
        "answers. A *mask* says which heads are kept and which are switched off; *scores* say what "
        "each head is worth. These are data about a model and hold none of its weights.",
        "",
        WARNING,
        "",
    ]
    for name, mask in content.masks.items():
        lines += _mask_section(name, mask, content.place)
    if content.further_masks:
        lines += ["## Further masks", "", comma_list(map(code, content.further_masks), 1000), ""]
    if content.scores or content.further_scores:
        lines += _scores_section(content)
    return "\n".join(lines)


def _metadata(content: CardContent) -> Iterator[str]:
    """The block of metadata: what stands in it is of letters that YAML takes as they are."""
    base_models = [
        str(model["name"])
        for model in content.models
        if HUB_ID.fullmatch(str(model.get("name"))) and COMMIT.fullmatch(str(model.get("revision")))
    ]
    languages = [code for code in content.languages if LANGUAGE_CODE.fullmatch(code)]
    yield "---"
    yield 'library_name: "headlab"'
    yield f"tags: {json.dumps(TAGS)}"
    if base_models:
        yield f"base_model: {json.dumps(list(dict.fromkeys(base_models)))}"
    if languages:
        yield f"language: {json.dumps(languages)}"  # quoted: bare, `no` would be false
    if content.license:
        yield f"license: {json.dumps(content.license)}"
    yield "---"


def _mask_section(name: str, mask: Mask, place: str) -> Iterator[str]:
    """What a mask is, how it was chosen, what it was measured at, and how to use and make it."""
    yield f"## Mask {name}"
    yield ""
    removed = len(mask.removed)
    facts = {
        "file": code(mask_path(name)),
        "model": _model_words(mask.model),
        "heads": f"{removed:,} of {mask.grid.size:,} switched off",
        "task": code(mask.choice.get("task")),
        "languages": ", ".join(map(code, mask.languages)),
        "chosen by": _choice_words(mask),
        "made": ", ".join(
            [
                code(mask.created),
                *(f"{plain(k)} {code(v)}" for k, v in (mask.versions or {}).items()),
            ]
        ),
    }
    for label, words in facts.items():
        yield f"- {label}: {words or 'not recorded'}"
    yield ""
    figures = seen(mask)
    if figures:
        yield f"| {' | '.join(FIGURE_COLUMNS)} |"
        yield "| --- | --- | --- | ---: | --- | --- | --- |"
        for split, task, language, figure in figures:
            cells = [split, _cell(task), _cell(language), f"{int(figure['n']):,}"]
            yield f"| {' | '.join([*cells, *_figure_cells(figure)])} |"
        yield ""
        yield (
            "In brackets: 95 % intervals, where the file records them. The difference is masked − "
            "untouched."
        )
    else:
        yield "The file records no accuracies."
    for note in accuracy_notes({"": mask}):
        yield ""
        yield plain(note)
    yield ""
    yield "Take it, and measure it again:"
    yield ""
    file = f"{name}.json"
    again = mask_commands(Item(mask, file, file=file), 0, KNOWN)
    take = ("headlab", "pull", place, "--mask", name, "--out", file)
    using = tuple(words for words in again.commands if words[1] in ("evaluate", "shrink"))
    making = tuple(words for words in again.commands if words not in using)
    yield from _commands(Again((take, *using)))
    yield "Make it again:" if making else "No command is known that makes it again."
    yield ""
    yield from _commands(Again(making, again.notes))


def _scores_section(content: CardContent) -> Iterator[str]:
    """What the scores are, and how to take and make them."""
    yield "## Scores"
    yield ""
    for key, spec in content.scores.items():
        yield f"- {code(key[:12])}: {_score_words(spec)}"
    if content.further_scores:
        further = (code(key[:12]) for key in content.further_scores)
        yield f"- and, not described here: {comma_list(further, 1000)}"
    yield ""
    yield "Take them into the cache:"
    yield ""
    yield from _commands(Again((("headlab", "pull", content.place, "--scores", "all"),)))
    again = joined([KNOWN.again("score", spec) for spec in content.scores.values()])
    if again.commands:
        yield "Make them again:"
        yield ""
    yield from _commands(again)


def _score_words(spec: JsonRecord) -> str:
    """What scores were made by, on what, and of which model."""
    words = [f"method {code(part(spec, 'method', 'name'))}{_options(spec)}"]
    for label, name in (("task", "name"), ("language", "language"), ("split", "split")):
        words.append(f"{label} {code(part(spec, 'task', name))}")
    size = part(spec, "task", "size")
    if isinstance(size, int):
        words.append(f"{size:,} examples")
    words += [f"{name} {code(spec.get(name))}" for name in ("ablation", "seed")]
    return f"{', '.join(words)}; model {_model_words(_model_of(spec))}"


def _choice_words(mask: Mask) -> str:
    """The rule, the method and the examples by which the heads of a mask were chosen."""
    choice = mask.choice
    spec = next((spec for name in ("score", "gates") if (spec := mask.chosen.get(name))), {})
    words = [f"rule {code(choice['rule'])}"] if "rule" in choice else []
    names = ("k", "threshold", "correction", "weight", "method", "estimand", "ablation")
    words += [f"{name} {code(mask.chosen[name])}" for name in names if name in choice]
    size = part(spec, "task", "size")
    if isinstance(size, int):
        split = part(spec, "task", "split")
        words.append(f"on {size:,} examples of {code(split)}")
    if isinstance(spec, Mapping):
        words += [f"seed {code(spec['seed'])}"] if "seed" in spec else []
        words += [f"with{options}"] if (options := _options(spec)) else []
    return ", ".join(words)


def _model_of(spec: JsonRecord) -> JsonRecord:
    """The model of a spec; empty if it names none."""
    model = spec.get("model")
    return model if isinstance(model, Mapping) else {}


def _options(spec: JsonRecord) -> str:
    """The options of a method in brackets, samples among them; empty without any."""
    options = part(spec, "method", "options") or part(spec, "options")
    if not isinstance(options, Mapping) or not options:
        return ""
    return f" ({', '.join(code(f'{name}={value}') for name, value in options.items())})"


def _model_words(model: JsonRecord) -> str:
    """Name, revision and fingerprint of a model."""
    words = [code(model.get("name"))]
    for name in ("revision", "fingerprint"):
        if model.get(name):
            words.append(f"{name} {code(model[name])}")
    if not model.get("fingerprint"):
        words.append("no fingerprint recorded: whether it fits a model cannot be checked")
    return ", ".join(words)


def _figure_cells(figure: RecordedAccuracy) -> list[str]:
    """Accuracy, that of the untouched model, and their difference, with the intervals recorded."""
    accuracy = f"{100 * figure['accuracy']:.1f}"
    if "accuracy_low" in figure and "accuracy_high" in figure:
        accuracy += f" [{100 * figure['accuracy_low']:.1f}, {100 * figure['accuracy_high']:.1f}]"
    untouched = f"{100 * figure['baseline']:.1f}" if "baseline" in figure else ""
    difference = f"{100 * figure['difference']:+.1f}" if "difference" in figure else ""
    if "low" in figure and "high" in figure:
        difference += f" [{100 * figure['low']:+.1f}, {100 * figure['high']:+.1f}]"
    return [accuracy, untouched, difference.replace("-", "−")]


def _commands(again: Again) -> Iterator[str]:
    """Commands as a block of code, and what to know of them."""
    if again.commands:
        yield "```sh"
        for line in again.lines:
            yield as_safe_line(line, MAX_COMMAND_LENGTH).replace("```", "'''")
        yield "```"
        yield ""
    for note in again.notes:
        yield f"{plain(note, 500)}"
        yield ""


def code(value: object) -> str:
    """A value as code in Markdown, where nothing in it is markup.

    Args:
        value: From a file of anybody's.
    """
    if value is None or value == "":
        return "not recorded"
    return f"`{as_safe_line(str(value), 200).replace('`', chr(39))}`"


def _cell(value: str) -> str:
    """A value as code in a cell of a table."""
    return code(value).replace("|", "\\|")


def plain(text: str, length: int = 200) -> str:
    """A text as one line of Markdown that shows it as it is.

    Args:
        text: From a file of anybody's.
        length: Characters at most.
    """
    return MARKUP.sub(r"\\\1", as_safe_line(text, length))


# Paths of one machine say nothing on another, and are nobody's business there.


def without_paths(content: CardContent) -> CardContent:
    """The content with models that are named by a path named by its last part.

    Args:
        content: Of a card.
    """
    masks = {}
    for name, mask in content.masks.items():
        model = _without_paths(mask.model)
        masks[name] = replace(mask, model=model, chosen=_without_paths(mask.chosen))
    scores = {key: _without_paths(spec) for key, spec in content.scores.items()}
    return replace(content, masks=masks, scores=scores)


def _without_paths(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_paths(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_paths(inner) for inner in value]
    return last_part(value) if isinstance(value, str) and is_path(value) else value


def is_path(text: str) -> bool:
    """Whether a text is the full path of a file on some machine.

    Args:
        text: From a mask or a spec.
    """
    return PurePosixPath(text).is_absolute() or PureWindowsPath(text).is_absolute()


def last_part(path: str) -> str:
    """The last part of a path of any system.

    Args:
        path: That `is_path` takes for one.
    """
    return PureWindowsPath(path).name or "folder"
