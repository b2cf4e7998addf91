"""Voita et al. (ACL 2019), section 5, reproduced: what heads do, in many languages and before and after fine-tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headlab.core import (
    HEAD,
    HEAD_FORMATS,
    Cell,
    Head,
    HeadlabError,
    Json,
    Progress,
    Report,
    RunSpec,
    Table,
)
from headlab.hooks import Model
from headlab.models import base_folder, cache_folder
from headlab.reproduce.models import NLI, nli_folder, opened
from headlab.results import Store
from headlab.roles import HAS, RARE, SHARES, SYNTACTIC, having, kind_of, of_trees, read
from headlab.roles.study import study
from headlab.tasks import treebank, treebank_languages

BASE, TUNED = "multilingual-e5-small", "e5-small-intents"
MODELS = (BASE, TUNED, NLI)
FEW = ("en", "zh", "hi")
SOURCE = "en"  # its heads are looked up in the other languages
SHARE_FORMATS = (".1f", ".1f", ".1f", ".1f", "+.1f", "+.1f", "+.1f")
TOLD = ("model", "language", "role", *HEAD, *SHARES, HAS)
TOLD_FORMATS = ("", "", "", *HEAD_FORMATS, *SHARE_FORMATS, "")
Reports = Mapping[tuple[str, str], Report]  # by model and language


@dataclass(frozen=True)
class Plan:
    """Sizes of a reproduction. trees: per language, from its dev treebank; few: three languages and two models."""

    trees: int
    few: bool = False

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models."""
        return MODELS[:2] if self.few else MODELS


REAL, SMOKE = Plan(1000), Plan(60, True)


def languages(plan: Plan, data: Path) -> tuple[str, ...]:
    """Languages with a treebank, English first. Raises HeadlabError if a required one is missing."""
    there = treebank_languages(data)
    wanted = FEW if plan.few else (SOURCE, *(name for name in there if name != SOURCE))
    lacking = [name for name in wanted if name not in there]
    if lacking:
        raise HeadlabError(
            f"{data} has no treebank of {', '.join(lacking)}; put ud/{lacking[0]}.dev.conllu there (it has "
            f"{', '.join(there) or 'none'})",
            code="treebank.missing",
        )
    return wanted


def model_of(name: str, data: Path, nli: Path | None, device: str | None, dtype: str) -> Model:
    """One of MODELS. Raises HeadlabError if its files are missing."""
    if name == BASE:
        return opened(base_folder(cache_folder()), BASE, device, dtype)
    if name == NLI:
        return opened(nli_folder(data, nli), NLI, device, dtype)
    from headlab.hooks import load

    return load(name, device=device, dtype=dtype)


def studied(
    model: Model,
    plan: Plan,
    data: Path,
    store: Store | None,
    seed: int,
    on_progress: Callable[[str, Progress], None],
) -> Iterator[tuple[str, Report]]:
    """Each language with the report of a model's roles in it; reports contain no sentence of the treebank."""
    for language in languages(plan, data):
        trees = of_trees(treebank(data, language, "dev"), language, "dev", plan.trees, seed=seed)

        def progress(step: Progress, language: str = language) -> None:
            on_progress(language, step)

        yield (
            language,
            study(model, trees, options={"examples": 0}, store=store, on_progress=progress),
        )


def summary(reports: Reports, spec: Mapping[str, Json]) -> Report:
    """All reports combined: the paper's table in every language, heads with each role, and where they keep it."""
    tables = (
        relations(reports),
        excess(reports),
        nearest(reports),
        counts(reports),
        across(reports),
        shared(reports),
    )
    notes = [
        f"{model}, {language}: {note}"
        for (model, language), r in reports.items()
        for note in r.notes
        if "cut" in note
    ]
    unjudged = sorted(
        {
            language
            for (_, language), r in reports.items()
            if RARE not in r.table("roles").column("role")
        }
    )
    if unjudged:
        notes.append(
            f"Rare-word heads are not judged in {', '.join(unjudged)}: no word frequencies."
        )
    forwards, seconds = (
        sum(getattr(r, name) for r in reports.values()) for name in ("example_forwards", "seconds")
    )
    return Report(
        "voita-roles", tables, tuple(notes), RunSpec.of(spec), int(forwards), float(seconds)
    )


def had(report: Report) -> Report:
    """A shortened report: its table "roles" has only the rows of heads that have the role."""
    whole = report.table("roles")
    part = having(whole)
    note = f"{len(part.rows)} of {len(whole.rows)} rows: heads that have the role."
    part = replace(part, notes=(*whole.notes, note))
    return replace(
        report, tables=tuple(part if table is whole else table for table in report.tables)
    )


def relations(reports: Reports) -> Table:
    """The paper's Table 1 in every language: the best head of each relation beside the best offset."""
    rows = [
        (model, language, *row)
        for (model, language), report in reports.items()
        for row in report.table("relations").rows
    ]
    one = next(iter(reports.values())).table("relations")
    return Table(
        "voita-relations",
        "The head that follows each relation best, and the relation's most frequent offset, by model and language",
        ("model", "language", *one.columns), ("", "", *one.formats), tuple(rows),
    )  # fmt: skip


def excess(reports: Reports) -> Table:
    """How far the best head of each relation is above the baseline, one column per language."""
    models, names = _axes(reports)
    found: dict[tuple[Cell, ...], dict[str, float]] = {}
    for (model, language), report in reports.items():
        table = report.table("relations")
        each = zip(
            *map(table.column, ("relation", "direction", "best, %", "baseline, %")), strict=True
        )
        for relation, direction, best, baseline in each:
            found.setdefault((model, relation, direction), {})[language] = best - baseline
    rows = sorted(found.items(), key=lambda item: models.index(str(item[0][0])))
    return Table(
        "voita-excess",
        "Points that the best head of each relation has above the relation's most frequent offset, by language",
        ("model", "relation", "direction", *names), ("", "", "", *("+.0f" for _ in names)),
        tuple((*about, *(points.get(name) for name in names)) for about, points in rows),
        ("A head counts as syntactic from +10 on; intervals and numbers of pairs stand in the table before.",),
    )  # fmt: skip


def counts(reports: Reports) -> Table:
    """Number of heads with each role, one column per language."""
    models, names = _axes(reports)
    found = {key: dict(zip(r.table("role-counts").column("role"), r.table("role-counts").column("heads"), strict=True))
             for key, r in reports.items()}  # fmt: skip
    roles = list(dict.fromkeys(role for counted in found.values() for role in counted))
    rows = [
        (model, role, *(found.get((model, name), {}).get(role) for name in names))
        for model in models
        for role in roles
    ]
    return Table(
        "voita-counts", "Heads with each role", ("model", "role", *names), ("", "", *("d" for _ in names)), tuple(rows),
        ("A head may have several roles.",),
    )  # fmt: skip


def nearest(reports: Reports) -> Table:
    """The head with the largest share of each role that is not a relation, whether it has the role or not."""
    rows: list[tuple[Cell, ...]] = []
    for (model, language), report in reports.items():
        best: dict[str, tuple[Head, tuple[float | None, ...]]] = {}
        for role, head, told in _rows(report):
            if role not in SYNTACTIC and (
                role not in best or float(told[0] or 0) > float(best[role][1][0] or 0)
            ):
                best[role] = head, told
        rows += [(model, language, role, *head, *told) for role, (head, told) in best.items()]
    return Table(
        "voita-nearest",
        "The head nearest to each role that is not a relation, by model and language",
        TOLD,
        TOLD_FORMATS,
        tuple(rows),
        (
            "The best of many heads is chosen on the sentences it is shown on, so its share is a little too high.",
        ),
    )


def across(reports: Reports) -> Table:
    """English heads of each relation, and the best English head of each other role, in every language."""
    rows: list[tuple[Cell, ...]] = []
    for model, language in reports:
        here = {(role, head): rest for role, head, rest in _rows(reports[model, language])}
        followed = [key for key in _followed(reports[model, SOURCE]) if key in here]
        rows += [(model, language, role, *head, *here[role, head]) for role, head in followed]
    return Table(
        "voita-across",
        "English's heads of each relation, and its best of each other role, in every language",
        TOLD,
        TOLD_FORMATS,
        tuple(rows),
    )


def shared(reports: Reports) -> Table:
    """Number of the base's heads that keep their role after fine-tuning, by language."""
    models, names = _axes(reports)
    rows: list[tuple[Cell, ...]] = []
    for tuned in (name for name in models if name != BASE):
        for language in names:
            before, after = _having(reports[BASE, language]), _having(reports[tuned, language])
            for role in sorted({*before, *after}):
                old, new = before.get(role, set()), after.get(role, set())
                rows.append((tuned, language, role, len(old), len(new), len(old & new)))
    return Table(
        "voita-kept",
        "Heads with a role in the base, in the fine-tuned model, and in both",
        ("model", "language", "role", "base", "fine-tuned", "both"), ("", "", "", "d", "d", "d"), tuple(rows),
    )  # fmt: skip


def _axes(reports: Reports) -> tuple[list[str], list[str]]:
    return list(dict.fromkeys(model for model, _ in reports)), list(
        dict.fromkeys(language for _, language in reports)
    )


def _rows(report: Report) -> Iterator[tuple[str, Head, tuple[float | None, ...]]]:
    """Kind of role, head, and shares and whether it has the role, of every row of a report."""
    for row in read(report).rows:
        yield kind_of(row.role), row.head, (*(row.numbers[name] for name in SHARES), row.has)


def _followed(report: Report) -> list[tuple[str, Head]]:
    """Every head of a relation, and the head with the largest share of every other role, sorted by role."""
    having = [(role, float(told[0] or 0), head) for role, head, told in _rows(report) if told[-1]]
    largest: dict[str, float] = {}
    for role, share, _ in having:
        largest[role] = max(share, largest.get(role, 0.0))
    kept = [
        (role, head) for role, share, head in having if role in SYNTACTIC or share == largest[role]
    ]
    return sorted(kept, key=lambda key: list(largest).index(key[0]))


def _having(report: Report) -> dict[str, set[Head]]:
    found: dict[str, set[Head]] = {}
    for role, head, (*_, has) in _rows(report):
        if has:
            found.setdefault(role, set()).add(head)
    return found
