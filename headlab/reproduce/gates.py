"""Voita et al. (ACL 2019), section 6, done again: the parts of `headlab reproduce voita-gates`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headlab.errors import HeadlabError
from headlab.gates import Model, load
from headlab.generation import Decoding, check_bleu, check_model
from headlab.reproduce import gates_heads as heads
from headlab.reproduce.gates_plan import TRANSLATION, Plan
from headlab.reproduce.gates_tables import translation_report
from headlab.reproduce.gates_translation import Say, Work, translated
from headlab.reproduce.models import opened
from headlab.store import Store
from headlab.tables import Report
from headlab.tasks import task as task_of
from headlab.tasks.base import SPLITS
from headlab.training.scratch.vocabulary import check_pieces


@dataclass(frozen=True)
class Given:
    """What the parts are given.

    nli: folder of the NLI model (None: beside the data).  translator: the translation model that is pruned; None
    trains one.
    """

    plan: Plan
    data: Path
    nli: Path | None = None
    translator: Model | None = None


def parts_of(plan: Plan, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the parts to be done, in the plan's order. Raises HeadlabError for an unknown one."""
    every = (*(one.task for one in plan.classifiers), TRANSLATION)
    unknown = [name for name in asked or () if name not in every]
    if unknown:
        raise HeadlabError(
            f"unknown part {unknown[0]!r}; this plan has {', '.join(every)}", code="reproduce.part_unknown"
        )
    return tuple(name for name in every if not asked or name in asked)


def given(plan: Plan, data: Path, *, nli: Path | None, pair: str | None, translator: str | None, device: str) -> Given:
    """The plan for a pair and a translation model of the user's own; `translator`: a folder or an id of the hub."""
    own = None if translator is None else _opened(translator, device)
    plan = replace(plan, translator=plan.translator.of(pair, own is not None))
    return Given(plan, data, nli, own)


def _opened(name: str, device: str) -> Model:
    folder = Path(name)
    if folder.is_dir():
        return opened(folder, folder.resolve().name, device, "float32")
    return load(name, device=device, dtype="float32")


def check(given: Given, parts: Sequence[str]) -> None:
    """Raise HeadlabError, before hours are spent, for a model, examples or a package that are not there."""
    for one in given.plan.classifiers:
        if one.task in parts:
            heads.check(one, given.data, given.nli)
    if TRANSLATION in parts:
        pair = given.plan.translator.pair
        task = task_of(TRANSLATION, pair, data=given.data)
        for split in SPLITS:
            task.examples(pair, split, 1)
        check_bleu(task, pair, "test", Decoding())
        if given.translator is None:
            check_pieces()
        else:
            check_model(given.translator, pair)


def found(given: Given, part: str, store: Store, device: str, seed: int, say: Say) -> Report:
    """One part's report."""
    for one in given.plan.classifiers:
        if one.task == part:
            model = heads.model_of(one, given.data, given.nli, device)
            return heads.report(model, heads.task_for(one, given.data), one, store, seed, say)
    plan = given.plan.translator
    task = task_of(TRANSLATION, plan.pair, data=given.data)
    work = Work(plan, task, store, device, seed, say, given.translator)
    return translation_report(translated(work), seed)
