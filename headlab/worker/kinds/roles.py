"""Role jobs: what a model's heads do in each language, on the sentences of a treebank or a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError
from headlab.roles.sentences import Sentences, of_task, of_trees
from headlab.roles.table import NAME, VERSION, resolve
from headlab.store import Result, Store
from headlab.tables import Report
from headlab.tasks import task
from headlab.tasks.base import DEV_SIZE, TREEBANK, VARIABLE, Split, subfolder
from headlab.tasks.udpos import FOLDER, SUFFIX, treebank, treebank_languages
from headlab.worker.kinds.kind import (
    Estimate,
    Kind,
    Known,
    Lab,
    Part,
    in_turn,
    median_pace,
    named,
    reporter,
    total,
    within,
)
from headlab.worker.runner import Running
from headlab.worker.schemas import Measured, MeasureRequest, RolesSpec

MOST = {"examples": 100}  # upper limit of sentences shown per role
WARMING, TIMED = 4, 32  # sentences to warm up and to time for a forecast
KEPT = 256  # treebanks whose number of sentences is cached


def fill(spec: RolesSpec) -> RolesSpec:
    """The spec, filled in. Raises HeadlabError for anything unknown or invalid, or a missing treebank."""
    chosen = _of_treebank(spec) if spec.source == "treebank" else _of_task(spec)
    return chosen.model_copy(update={"options": within(resolve(spec.options), MOST)})


def _of_treebank(spec: RolesSpec) -> RolesSpec:
    """The spec with its languages filled in, each with a readable treebank, and without a task."""
    there = treebank_languages(None)
    languages = list(there) if spec.languages == "all" else list(dict.fromkeys(spec.languages))
    lacking = [language for language in languages if language not in there]
    if lacking or not languages:
        raise HeadlabError(
            f"the worker has no treebank of {', '.join(lacking) or 'any language'}, it has "
            f"{', '.join(there) or 'none'}; start it with {VARIABLE} naming a folder that holds "
            f"{FOLDER}/LANGUAGE.{spec.split}.{SUFFIX}, or take the texts of a task (source task), which have no syntax",
            code="treebank.missing",
        )
    for language in languages:
        trees(language, spec.split)
    return spec.model_copy(update={"languages": languages, "task": None})


def _of_task(spec: RolesSpec) -> RolesSpec:
    if spec.task is None:
        raise HeadlabError(
            "source task needs the name of a task; give one, or use source treebank",
            code="roles.task_unnamed",
        )
    chosen = task(spec.task, spec.languages)
    chosen.examples(chosen.languages[0], spec.split, 1)
    size = spec.size or (DEV_SIZE if spec.split == "dev" else None)
    return spec.model_copy(update={"languages": list(chosen.languages), "size": size})


def trees(language: str, split: Split) -> int:
    """Number of trees in the worker's treebank. Raises HeadlabError if it is missing or broken."""
    folder = subfolder(None, FOLDER)
    path = (folder or Path()) / f"{language}.{split}.{SUFFIX}"
    if folder is None or not path.is_file():
        raise HeadlabError(
            f"the worker has no {split} treebank of {language}; choose another split or language",
            code="treebank.missing",
        )
    stat = path.stat()
    return _counted(folder, language, split, (str(path), stat.st_mtime_ns, stat.st_size))


@lru_cache(KEPT)
def _counted(folder: Path, language: str, split: Split, stamp: tuple[str, int, int]) -> int:
    return len(treebank(folder.parent, language, split))


def sentences_of(lab: Lab, spec: RolesSpec, language: str, size: int | None) -> Sentences:
    """The sentences of a language, at most `size` of them."""
    if spec.source == "treebank":
        return of_trees(treebank(None, language, spec.split), language, spec.split, size)
    return of_task(lab.task(str(spec.task)), language, spec.split, size)


def run(lab: Lab, running: Running, spec: RolesSpec) -> Mapping[str, Any]:
    """One report per language; stored reports are not made again."""
    from headlab.roles.study import study  # imports torch

    languages, model = named(spec.languages), lab.need(spec.model)

    def made(at: int, language: str) -> Report:
        return study(
            model,
            sentences_of(lab, spec, language, spec.size),
            options=spec.options,
            store=lab.watched(running, language),
            on_progress=reporter(running, language, at, len(languages)),
            tick=running.tick,
        )

    return in_turn(running, languages, made)


def foresee(spec: RolesSpec, known: Known) -> Estimate:
    """Cost of one pass over the sentences of the languages whose report the store lacks."""
    kept = [
        r
        for r in Store(known.root).reports().results
        if r.record.name == NAME and _of(r, spec.model)
    ]
    languages = named(spec.languages)
    sizes = {language: _size(spec, language) for language in languages}
    left = [
        language
        for language in languages
        if not any(_same(r, spec, language, sizes[language]) for r in kept)
    ]
    ask = MeasureRequest(
        model=spec.model, task=spec.task or TREEBANK, language=languages[0], roles=spec.model_dump()
    )
    if not left:
        return total([Part(0, None, ("the reports are in the cache already",))], ask)
    forwards = sum(sizes[language] for language in left)
    pace, paced = _pace(kept, known)
    many = f"{len(left)} languages" if len(left) > 1 else left[0]
    part = Part(forwards, pace, (f"one pass over {forwards:,} sentences of {many}", paced))
    return total([part], ask.model_copy(update={"language": left[0]}))


def measure(lab: Lab, request: MeasureRequest, tick: Callable[[], None]) -> Measured:
    """Time per sentence now, by a study of a few that is not stored. In the device's thread only."""
    from headlab.roles.study import study  # imports torch

    spec, model = RolesSpec.model_validate(request.roles), lab.need(request.model)
    for size in (WARMING, TIMED):  # the first batch of a model is slow
        sentences = sentences_of(lab, spec, request.language, min(size, spec.size or size))
        report = study(model, sentences, options=spec.options, tick=tick)
    return Measured(heads=model.grid.size, seconds=report.seconds / max(1, report.example_forwards))


def _size(spec: RolesSpec, language: str) -> int:
    if spec.source == "task":
        return len(task(str(spec.task)).examples(language, spec.split, spec.size))
    count = trees(language, spec.split)
    return count if spec.size is None else min(spec.size, count)


def _of(result: Result[Report], model: str) -> bool:
    about = result.record.spec.get("model")
    return isinstance(about, Mapping) and about.get("name") == model


def _same(result: Result[Report], spec: RolesSpec, language: str, size: int) -> bool:
    """Whether a report is what the job would make, as far as can be known without the model."""
    own, name = result.record.spec, TREEBANK if spec.source == "treebank" else spec.task
    want = {"name": name, "language": language, "split": spec.split, "size": size}
    of = own.get("task")
    fits = isinstance(of, Mapping) and all(of.get(part) == value for part, value in want.items())
    options = own.get("options")
    alike = isinstance(options, Mapping) and all(
        options.get(part) == value for part, value in spec.options.items()
    )
    return fits and alike and own.get("version") == VERSION


def _pace(kept: Sequence[Result[Report]], known: Known) -> tuple[float | None, str]:
    here = [r.record for r in kept if r.meta.get("device", known.device) == known.device]
    seen = [report.seconds / report.example_forwards for report in here if report.example_forwards]
    return median_pace(
        seen, known, f"{len(seen)} report{'s' if len(seen) > 1 else ''} of its roles"
    )


ROLES = Kind(
    "roles",
    RolesSpec,
    fill,
    run,
    foresee,
    "Roles of heads, computed on the worker's own device.",
    measure=measure,
    status=422,
)
