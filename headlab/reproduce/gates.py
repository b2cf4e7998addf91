"""Voita et al. (ACL 2019), section 6, done again: the parts of `headlab reproduce voita-gates`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headlab.errors import HeadlabError
from headlab.reproduce import gates_heads as heads
from headlab.reproduce.gates_plan import TRANSLATION, Plan
from headlab.reproduce.gates_tables import translation_report
from headlab.reproduce.gates_translation import Say, Work, translated
from headlab.store import Store
from headlab.tables import Report
from headlab.tasks import task as task_of


def parts_of(plan: Plan, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the parts to be done, in the plan's order. Raises HeadlabError for an unknown one."""
    every = (*(one.task for one in plan.classifiers), TRANSLATION)
    unknown = [name for name in asked or () if name not in every]
    if unknown:
        raise HeadlabError(f"no part {unknown[0]!r}; this plan has {', '.join(every)}")
    return tuple(name for name in every if not asked or name in asked)


def check(plan: Plan, parts: Sequence[str], data: Path, nli: Path | None) -> None:
    """Raise HeadlabError, before hours are spent, for a model or for examples that are not there."""
    for one in plan.classifiers:
        if one.task in parts:
            heads.check(one, data, nli)
    if TRANSLATION in parts:
        task = task_of(TRANSLATION, plan.translator.pair, data=data)
        for split in ("train", "dev", "test"):
            task.examples(plan.translator.pair, split, 1)


def found(
    plan: Plan, part: str, data: Path, nli: Path | None, store: Store, device: str, seed: int, say: Say
) -> Report:
    """One part's report."""
    for one in plan.classifiers:
        if one.task == part:
            return heads.report(
                heads.model_of(one, data, nli, device), heads.task_for(one, data), one, store, seed, say
            )
    task = task_of(TRANSLATION, plan.translator.pair, data=data)
    work = Work(plan.translator, task, store, device, seed, say)
    spec = {
        "pair": plan.translator.pair, "options": dict(work.longer.record()), "gates": plan.translator.gates.record(),
        "seed": seed, "device": device,
    }  # fmt: skip
    return translation_report(translated(work), spec, seed)
