"""How stored results and masks are made again: commands, and what a command cannot express.

A result's spec says which job makes it, and the job how it reads on the command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headlab.core import HeadlabError, ablation_title, as_command_text, part, players_of
from headlab.jobs import CommandContext, Job, subject_words
from headlab.jobs.table import JOBS, ExperimentJob
from headlab.masks import FOLDER_REVISION, Mask
from headlab.methods import METHODS
from headlab.report.again import Again, joined
from headlab.report.parts import as_text
from headlab.results import NO_LABEL, NO_PLACES, FilePlaces, ResultLabel, kind_of
from headlab.roles import NAME as ROLES
from headlab.studies import METHOD, STUDIES
from headlab.tasks import BUILT_IN, DEV_SIZE, SOURCES, TASKS, TREEBANK, declaration_of

WALK = "front "  # prefix of the method name of a walk along a front's order
COMMIT = re.compile(r"[0-9a-f]{40}")  # the revision of a model of the hub
Spec = Mapping[str, Any]


def kind_of_job(kind: str, spec: Spec) -> str:
    """The kind of job that makes a result.

    It is the result's own, but for a report that of its experiment.

    Args:
        kind: Of the result.
        spec: Of the result.
    """
    if kind != "report":
        return kind
    experiment = str(spec.get("experiment"))
    if experiment == ROLES:
        return ROLES
    study = STUDIES.get(experiment)
    if study is None:
        return ExperimentJob.key
    return study.job


def job_that_makes(kind: str, spec: Spec) -> Job:
    """The job that makes a result of this spec.

    It asks for as many examples as there were, not as were once asked for.

    Raises:
        LookupError: No job makes a result of this kind, or the spec lacks what one needs.
    """
    return JOBS[kind_of_job(kind, spec)].from_spec(spec)


def again(
    kind: str,
    spec: Spec,
    *,
    dev_size: int | None = None,
    places: FilePlaces = NO_PLACES,
    paths: bool = True,
) -> Again:
    """How a run of this kind and spec is made again.

    Args:
        kind: Of the result.
        spec: Of the result. An incomplete one gives a note and no command.
        dev_size: For a curve, how many examples ordered its heads, if known.
        places: Where its files are on this machine.
        paths: Whether a declared task is named by its file, where that is known.
    """
    try:
        if reason := _why_no_command(kind, spec):
            return Again((), (reason,))
        job = job_that_makes(kind, spec)
        if not job.has_all_fields(spec):
            raise LookupError("it does not say all that a command needs")
        surroundings_of_spec = surroundings(spec, places, paths=paths)
        commands = job.commands(replace(surroundings_of_spec, dev_size=dev_size))
        notes = (*_job_notes(job.key, spec, dev_size, places), *_common_notes(spec, places, paths))
        return Again(tuple(map(tuple, commands)), notes)
    except (HeadlabError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return Again((), ("Its spec does not say all that a command needs.",))


@dataclass(frozen=True)
class Known:
    """What a store knows of results besides their specs.

    Attributes:
        dev_size: From the key of scores to the number of their examples; None if neither they nor
            scores that replaced them are in the store.
        places: From the spec of a result to where its files are.
        paths: Whether commands may name files by their paths.
        label: From the key of a result to the name and note that a person gave it.
    """

    dev_size: Callable[[str], int | None] = lambda _: None
    places: Callable[[Spec], FilePlaces] = lambda _: NO_PLACES
    paths: bool = True
    label: Callable[[str], ResultLabel] = lambda _: NO_LABEL

    def again(self, kind: str, spec: Spec) -> Again:
        """How a run of this kind and spec is made again."""
        return again(
            kind,
            spec,
            dev_size=self.ordering_dev_size(spec),
            places=self.places(spec),
            paths=self.paths,
        )

    def ordering_dev_size(self, spec: Spec) -> int | None:
        """The number of dev examples of the scores that ordered a curve.

        None for a result that is no curve, or if it is not known.
        """
        key = part(spec, "order", "run")
        if key is None:
            return None
        return self.dev_size(str(key))


# Names that mean a file, as the path that it has here.


def surroundings(spec: Spec, places: FilePlaces, *, paths: bool = True) -> CommandContext:
    """What a result's commands name besides its job: paths in place of names, and its precision.

    Args:
        spec: Of the result.
        places: Where its files are on this machine.
        paths: Whether a declared task's file is named; otherwise it is the task's name.
    """
    model = part(spec, "model", "name")
    task = part(spec, "task", "name")
    declaration = None
    if isinstance(task, str) and task != TREEBANK:
        declaration = places.declaration if task not in TASKS else None
        if declaration is None and paths:
            declaration = declaration_of(task)
    frequencies = None
    if part(spec, "frequencies", "source") not in (None, "none", "wordfreq"):
        frequencies = str(places.corpus or "FILE")
    return CommandContext(
        model=None if model is None else model_word(str(model), places.model),
        task=None if declaration is None else str(declaration),
        data=None if places.data is None else str(places.data),
        trees=None if places.trees is None else str(places.trees),
        frequencies=frequencies,
        dtype=part(spec, "model", "dtype"),
    )


def model_word(name: str, folder: Path | None) -> str:
    """What `--model` takes: the name in the results, or else the model's folder.

    The folder is named if the name does not lead there.

    A name that leads to the folder stays as it is, because it is part of the keys of the results.

    Args:
        name: Of the model, as the results have it.
        folder: That the model was read from, if it was one and it is known.
    """
    if folder is None or leads_to(name, folder):
        return name
    return str(folder)


def leads_to(name: str, folder: Path) -> bool:
    """Whether a name is a path, from the working directory, of this folder."""
    try:
        return Path(name).samefile(folder)
    except (OSError, ValueError):  # there is nothing of this name, or no file can have it
        return False


def _why_no_command(kind: str, spec: Spec) -> str:
    """Why no command makes this result, or empty."""
    classes = part(spec, "task", "classes") or {}
    if len({*classes.values()}) < len(classes):
        return (
            "Two of the model's classes have the same name, and the spec has their names alone: no command can tell "
            "them apart. Type it with the classes' numbers in --label-map."
        )
    if kind == "score" and part(spec, "task", "split") != "dev":
        return "Scores of another split than dev are made from Python: headlab.score(…, split=…)."
    if kind == "report" and str(name := spec.get("experiment")) not in (ROLES, *STUDIES):
        return f"No command is known here for reports of {name}."
    if kind != "curve":
        return ""
    order = spec["order"]
    if order["method"].startswith(WALK):
        return (
            f"headlab front makes it on its way: over {order['language']}, along the order "
            f"{order['method'][len(WALK) :]} by {part(order, 'options', 'of')} scores, "
            f"{ablation_title(order['ablation'])} ablation, "
            f"seed {order['seed']}. Report the front itself for its command."
        )
    expected = {
        "task": part(spec, "task", "name"),
        "split": "dev",
        "language": part(spec, "task", "language"),
    }
    expected |= {"seed": spec["seed"], "ablation": spec["ablation"]}
    differences = ", ".join(
        f"{name} {as_text(order.get(name), name)}"
        for name, value in expected.items()
        if order.get(name) != value
    )
    return (
        f"Its heads were ordered by other scores ({differences}): from Python, headlab.prune_curve(…, scores=…)."
        * bool(differences)
    )


def _job_notes(job: str, spec: Spec, dev_size: int | None, places: FilePlaces) -> Iterator[str]:
    """Notes on what a command of this kind leaves out."""
    methods = (
        part(spec, *path) for path in (("method", "name"), ("order", "method"), ("options", METHOD))
    )
    for method in methods:
        if isinstance(method, str) and method not in METHODS:
            yield f"The method {method} comes with a package that has to be installed."
    if job == "curve" and dev_size is None:
        yield f"How many dev examples ordered the heads is not recorded in its spec; {DEV_SIZE} is the default."
    source = part(spec, "frequencies", "source") if job == ROLES else None
    if source == "none":
        yield "Made without word frequencies: where the package wordfreq is installed, rare words are judged too."
    elif source not in (None, "wordfreq") and places.corpus is None:
        yield f"Word frequencies were counted in a text of yours ({source}): name it in place of FILE."


def _common_notes(spec: Spec, places: FilePlaces, paths: bool) -> Iterator[str]:
    """Notes that hold for commands of every kind."""
    yield from _model_notes(spec, places)
    yield from _task_notes(str(part(spec, "task", "name")), places, paths)
    if part(spec, "task", "seed"):
        yield f"The task's own seed was {part(spec, 'task', 'seed')}, which is set from Python alone."


def _model_notes(spec: Spec, places: FilePlaces) -> Iterator[str]:
    """What to know of the model in a command."""
    name = str(part(spec, "model", "name"))
    revision = part(spec, "model", "revision")
    if COMMIT.fullmatch(str(revision)):
        yield f"The model's revision was {revision}; the commands load the newest one of the hub."
    if revision != FOLDER_REVISION:
        return
    if places.model is None:
        yield "The model is a folder: give the path that it has where you are."
    elif leads_to(name, places.model) and not Path(name).is_absolute():
        yield f"The model's path is relative: run the commands in {Path.cwd()}."


def _task_notes(task: str, places: FilePlaces, paths: bool) -> Iterator[str]:
    """What to know of the task in a command: where its files are looked for.

    Args:
        task: Its name.
        places: Where its files are on this machine.
        paths: As in `again`.
    """
    if task == TREEBANK:
        if places.trees is None and places.data is None:
            yield "Treebanks are looked for in $HEADLAB_DATA; name another folder with --data."
    elif task in TASKS and task not in BUILT_IN:
        yield f"The task {task} comes with a package that has to be installed."
    elif task in SOURCES:
        if places.data is None:
            yield f"The files of {task} are looked for in $HEADLAB_DATA; name another folder with --data."
    elif task not in BUILT_IN and not paths:
        yield f"The task {task} is declared in a file: give its path in place of {task}, like --task FILE.toml."
    elif task not in BUILT_IN and places.declaration is None and declaration_of(task) is None:
        yield (
            f"Where the declaration of the task {task} is, is not known here: give its path in place of {task}, like "
            "--task FILE.toml; a report made with headlab report --task FILE.toml has it."
        )


# How a mask was made: the commands that choose its heads again, as far as the file records them.

MADE_FROM = ("score", "gates", "front")  # keys of the specs in a file that a mask was made from
RULES = ("harmful", "bottom", "threshold")
# Options that pose a front's question; only the mask that answers it has one.
QUESTION = ("within", "heads", "by")
CACHE = "headlab prune takes scores of the cache: give both commands the same --cache."
UNTOLD = "The file does not record how its heads were chosen."
NO_COMMAND = "No command makes this mask from them; in Python, scores.mask(…) and curve.mask(k) do."
BARE = (
    "The file does not record the front's number of examples, points and seed, the method's options, or the orders "
    "that were tried; the defaults are used here."
)


NOT_SHRUNK = (
    "Its heads were not chosen under zero ablation, so headlab shrink refuses it: removed from the "
    "weights, they give 0."
)


@dataclass(frozen=True)
class MaskFile:
    """A mask whose commands are to be told.

    Attributes:
        mask: As its file has it.
        model: Name or path of its model, as `--model` takes it.
        out: File that a command writes it to.
        known: What the store of the report knows.
    """

    mask: Mask
    model: str
    out: str
    known: Known = field(default_factory=Known)

    def spec(self, name: str) -> Mapping[str, Any]:
        """The spec that its heads were chosen by, of the kind "score", "gates" or "front".

        Empty without one.
        """
        spec = self.mask.chosen.get(name)
        if isinstance(spec, Mapping):
            return spec
        return {}


def mask_again(file: MaskFile) -> Again:
    """How a mask is made again: what its heads were chosen by, then the mask.

    Args:
        file: The mask.

    Returns:
        The commands; a note if no command does it or the file does not say how.
    """
    rule = str(file.mask.chosen.get("rule") or "")
    ways: dict[str, Callable[[MaskFile], Again]] = {
        "front": _mask_of_front,
        "gates": _mask_of_gates,
    }
    ways |= dict.fromkeys(RULES, _mask_of_scores)
    try:
        return ways.get(rule, _mask_of_another_rule)(file)
    except (HeadlabError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return Again((), ("The file does not record all that a command for its mask needs.",))


def _mask_of_scores(file: MaskFile) -> Again:
    """A mask chosen from scores by a rule, or as the first heads of the order that they gave."""
    chosen = file.mask.choice
    spec = file.spec("score")
    if "pooled" in chosen:
        return Again(
            (),
            (
                "Its heads were chosen by mean scores over languages: only the Prune page does that.",
            ),
        )
    if not spec:
        return Again((), ("The file does not record the scores that its heads were chosen by.",))
    scores_again = file.known.again(kind_of(spec), spec)
    of_scores = part(spec, "order") or spec.get("task")
    if (
        not scores_again.commands
        or part(of_scores, "split") != "dev"
        or chosen.get("method") not in METHODS
    ):
        return Again(scores_again.commands, (*scores_again.notes, NO_COMMAND))
    surroundings_of_spec = surroundings(spec, file.known.places(spec), paths=False)
    place_flags = subject_words(
        replace(surroundings_of_spec, model=file.model),
        task=part(spec, "task", "name"),
        label_map=part(spec, "task", "classes"),
        languages=[str(part(of_scores, "language"))],
    )
    words = [
        "headlab",
        "prune",
        *place_flags,
        *_score_flags(chosen["method"], spec, file.known.ordering_dev_size(spec)),
        *("--rule", str(chosen["rule"])),
    ]
    words += ["--correction", str(chosen["correction"])] if "correction" in chosen else []
    words += ["--k", str(int(chosen["k"]))] if "k" in chosen else []
    words += [f"--threshold={chosen['threshold']}"] if "threshold" in chosen else []
    return Again(
        (*scores_again.commands, (*words, "--out", file.out)), (*scores_again.notes, CACHE)
    )


def _score_flags(key: str, spec: Spec, dev_size: int | None) -> list[str]:
    """The flags of `headlab prune` that single out scores, whatever other ones the cache has.

    Args:
        key: Of the method.
        spec: Of the scores, or of the curve that they ordered.
        dev_size: Number of their examples for a curve, whose spec does not say it; None if unknown.
    """
    method = METHODS[key]
    recorded_options = part(spec, "method", "options") or part(spec, "order", "options") or {}
    words = ["--method", key]
    for name, value in method.with_unrecorded(recorded_options).items():
        if name in method.options:
            words += ["-o", f"{name}={as_command_text(value)}"]
    size = part(spec, "task", "size") if kind_of(spec) == "score" else dev_size
    for flag, value in (
        ("--players", spec.get("players") or None),
        ("--dev-size", size),
        ("--seed", spec.get("seed")),
        ("--ablation", spec.get("ablation")),
    ):
        if value is not None:
            words += [flag, str(value)]
    return words


def _mask_of_gates(file: MaskFile) -> Again:
    """A mask from learned gates, whose command writes a folder of masks."""
    chosen = file.mask.choice
    spec = file.spec("gates")
    gates_again = file.known.again(kind_of(spec), spec)
    steps = part(spec, "options", "steps")
    if not gates_again.commands:
        return gates_again
    (words,) = gates_again.commands
    notes = [f"It writes the mask as gates/gates-{float(chosen['weight']):.12g}.json."]
    if chosen.get("step") != steps:
        notes.append(
            f"This mask is of step {chosen.get('step')} of {steps}; the command writes that of the last step; in "
            "Python, use gates.mask(time)."
        )
    return Again(((*words, "--out", "gates"),), (*gates_again.notes, *notes))


def _mask_of_front(file: MaskFile) -> Again:
    """A mask from a front: its answer, or the best model of its size on its order."""
    mask = file.mask
    chosen = file.mask.choice
    spec = file.spec("front")
    of_front = spec or _reconstructed_front(mask, file.model)
    notes = () if spec else (BARE,)
    if not any(name in chosen for name in QUESTION):
        order = str(chosen["order"])
        if order.startswith("own ") and len(chosen["languages"]) > 1:
            note = f"It is a front's model along the order {order}, not its answer: make its mask on the Prune page."
            return Again((), (note,))
        question = {"within": None, "heads": int(mask.kept.sum()), "orders": order.split()[0]}
        of_front = {**of_front, "options": {**of_front["options"], **question}}
    front_again = file.known.again("report", of_front)
    if not front_again.commands:
        return front_again
    return Again(((*front_again.commands[0], "--out", file.out),), (*front_again.notes, *notes))


def _reconstructed_front(mask: Mask, model: str) -> dict[str, Any]:
    """The spec of a front, reconstructed as far as possible from a mask that does not carry it."""
    study = STUDIES["front"]
    chosen = mask.choice
    question = {name: mask.chosen[name] for name in ("method", *QUESTION) if name in chosen}
    if not mask.grid.has_only_heads:
        question["players"] = str(players_of(mask.grid))
    return {
        "experiment": study.key,
        "model": {**mask.model, "name": model},
        "options": study.resolve(question),
        "seed": 0,
        "task": {
            "name": chosen["task"],
            "language": ",".join(chosen["languages"]),
            "sizes": {"dev": [DEV_SIZE], "test": []},
        },
        "ablation": chosen.get("ablation", "zero"),
    }


def _mask_of_another_rule(file: MaskFile) -> Again:
    """A mask by a rule that no command has: what the file says about it."""
    rule = str(file.mask.chosen.get("rule") or "")
    sources_again = [
        file.known.again(kind_of(spec), spec) for name in MADE_FROM if (spec := file.spec(name))
    ]
    if sources_again:
        return joined([*sources_again, Again((), (UNTOLD,))])
    if rule == "by hand":
        return Again((), ("Its heads were chosen by hand on a page: no command does that.",))
    if rule.startswith("combined: "):
        how = rule.removeprefix("combined: ")
        return Again(
            (),
            (
                "It was combined of other masks, which the file does not hold: headlab mask combine … --how "
                f"{how} --out {file.out}",
            ),
        )
    return Again((), (UNTOLD,))
