"""Voita et al. (ACL 2019), section 5, reproduced: what heads do in many languages.

Roles are found before and after fine-tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headlab.core import (
    HEAD_COLUMNS,
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
from headlab.reproduce.models import NLI, nli_folder, open_model
from headlab.results import Store
from headlab.roles import (
    HAS,
    RARE,
    SHARES,
    SYNTACTIC,
    kind_of,
    of_trees,
    read_roles,
    rows_with_role,
)
from headlab.roles.study import study
from headlab.tasks import treebank, treebank_languages

BASE = "multilingual-e5-small"
TUNED_BASE = "e5-small-intents"
MODELS = (BASE, TUNED_BASE, NLI)
SMOKE_LANGUAGES = ("en", "zh", "hi")
SOURCE = "en"  # its heads are looked up in the other languages
SHARE_FORMATS = (".1f", ".1f", ".1f", ".1f", "+.1f", "+.1f", "+.1f")
SHARE_COLUMNS = ("model", "language", "role", *HEAD_COLUMNS, *SHARES, HAS)
SHARE_COLUMN_FORMATS = ("", "", "", *HEAD_FORMATS, *SHARE_FORMATS, "")
Reports = Mapping[tuple[str, str], Report]  # by model and language


@dataclass(frozen=True)
class VoitaPlan:
    """Sizes of a reproduction.

    Attributes:
        trees: Per language, from its dev treebank.
        few: Whether only three languages and two models are run.
    """

    trees: int
    few: bool = False

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models."""
        return MODELS[:2] if self.few else MODELS


REAL = VoitaPlan(1000)
SMOKE = VoitaPlan(60, True)


def languages(plan: VoitaPlan, data: Path) -> tuple[str, ...]:
    """Languages with a treebank, English first.

    Raises HeadlabError if a required one is missing.
    """
    treebanks = treebank_languages(data)
    requested = (
        SMOKE_LANGUAGES if plan.few else (SOURCE, *(name for name in treebanks if name != SOURCE))
    )
    missing = [name for name in requested if name not in treebanks]
    if missing:
        raise HeadlabError(
            f"{data} has no treebank of {', '.join(missing)}; put ud/{missing[0]}.dev.conllu "
            f"there (it has {', '.join(treebanks) or 'none'})",
            code="treebank.missing",
        )
    return requested


def model_of(name: str, data: Path, nli: Path | None, device: str | None, dtype: str) -> Model:
    """One of MODELS. Raises HeadlabError if its files are missing."""
    if name == BASE:
        return open_model(base_folder(cache_folder()), BASE, device, dtype)
    if name == NLI:
        return open_model(nli_folder(data, nli), NLI, device, dtype)
    from headlab.hooks import load

    return load(name, device=device, dtype=dtype)


def role_reports(
    model: Model,
    plan: VoitaPlan,
    data: Path,
    store: Store | None,
    seed: int,
    on_progress: Callable[[str, Progress], None],
) -> Iterator[tuple[str, Report]]:
    """Each language with the report of a model's roles in it.

    Reports contain no sentence of the treebank.
    """
    for language in languages(plan, data):
        trees = of_trees(treebank(data, language, "dev"), language, "dev", plan.trees, seed=seed)

        def progress(step: Progress, language: str = language) -> None:
            on_progress(language, step)

        yield (
            language,
            study(model, trees, options={"examples": 0}, store=store, on_progress=progress),
        )


def summary(reports: Reports, spec: Mapping[str, Json]) -> Report:
    """All reports combined: the paper's table in every language, and heads with each role.

    Also where heads keep their role.
    """
    tables = (
        relation_table(reports),
        excess_table(reports),
        nearest_table(reports),
        count_table(reports),
        across_table(reports),
        shared_table(reports),
    )
    notes = [
        f"{model}, {language}: {note}"
        for (model, language), report in reports.items()
        for note in report.notes
        if "cut" in note
    ]
    without_rare_words = sorted(
        {
            language
            for (_, language), report in reports.items()
            if RARE not in report.table("roles").column("role")
        }
    )
    if without_rare_words:
        notes.append(
            f"Rare-word heads are not judged in {', '.join(without_rare_words)}: no word "
            "frequencies."
        )
    forwards = sum(report.example_forwards for report in reports.values())
    seconds = sum(report.seconds for report in reports.values())
    return Report(
        "voita-roles", tables, tuple(notes), RunSpec.of(spec), int(forwards), float(seconds)
    )


def with_roles_only(report: Report) -> Report:
    """A shortened report: its table "roles" has only the rows of heads that have the role."""
    all_roles = report.table("roles")
    roles_had = rows_with_role(all_roles)
    note = f"{len(roles_had.rows)} of {len(all_roles.rows)} rows: heads that have the role."
    roles_had = replace(roles_had, notes=(*all_roles.notes, note))
    tables = tuple(roles_had if table is all_roles else table for table in report.tables)
    return replace(report, tables=tables)


def relation_table(reports: Reports) -> Table:
    """The paper's Table 1 in every language.

    It has the best head of each relation beside the best offset.
    """
    rows = [
        (model, language, *row)
        for (model, language), report in reports.items()
        for row in report.table("relations").rows
    ]
    any_table = next(iter(reports.values())).table("relations")
    return Table(
        "voita-relations",
        "The head that follows each relation best, and the relation's most frequent offset, by "
        "model and language",
        ("model", "language", *any_table.columns),
        ("", "", *any_table.formats),
        tuple(rows),
    )


def excess_table(reports: Reports) -> Table:
    """How far the best head of each relation is above the baseline, one column per language."""
    models, names = _axes(reports)
    points_by_row: dict[tuple[Cell, ...], dict[str, float]] = {}
    for (model, language), report in reports.items():
        table = report.table("relations")
        figures = zip(
            *map(table.column, ("relation", "direction", "best, %", "baseline, %")), strict=True
        )
        for relation, direction, best_percent, baseline in figures:
            points_by_language = points_by_row.setdefault((model, relation, direction), {})
            points_by_language[language] = best_percent - baseline
    rows = sorted(points_by_row.items(), key=lambda item: models.index(str(item[0][0])))
    return Table(
        "voita-excess",
        "Points that the best head of each relation has above the relation's most frequent "
        "offset, by language",
        ("model", "relation", "direction", *names),
        ("", "", "", *("+.0f" for _ in names)),
        tuple(
            (*leading_cells, *(points.get(name) for name in names))
            for leading_cells, points in rows
        ),
        (
            "A head counts as syntactic from +10 on; intervals and numbers of pairs stand in the "
            "table before.",
        ),
    )


def count_table(reports: Reports) -> Table:
    """Number of heads with each role, one column per language."""
    models, names = _axes(reports)
    counts_by_role: dict[tuple[str, str], dict[Cell, Cell]] = {}
    for key, report in reports.items():
        table = report.table("role-counts")
        counts_by_role[key] = dict(zip(table.column("role"), table.column("heads"), strict=True))
    roles = list(dict.fromkeys(role for counts in counts_by_role.values() for role in counts))
    rows: list[tuple[Cell, ...]] = []
    for model in models:
        for role in roles:
            counts = [counts_by_role.get((model, language), {}).get(role) for language in names]
            rows.append((model, role, *counts))
    return Table(
        "voita-counts",
        "Heads with each role",
        ("model", "role", *names),
        ("", "", *("d" for _ in names)),
        tuple(rows),
        ("A head may have several roles.",),
    )


def nearest_table(reports: Reports) -> Table:
    """The head with the largest share of each role that is not a relation.

    It may or may not have the role.
    """
    rows: list[tuple[Cell, ...]] = []
    for (model, language), report in reports.items():
        best_by_role: dict[str, tuple[Head, tuple[float | None, ...]]] = {}
        for role, head, shares in _rows(report):
            if role in SYNTACTIC:
                continue
            if role in best_by_role:
                _, best_shares = best_by_role[role]
                if float(shares[0] or 0) <= float(best_shares[0] or 0):
                    continue
            best_by_role[role] = (head, shares)
        rows += [
            (model, language, role, *head, *shares) for role, (head, shares) in best_by_role.items()
        ]
    return Table(
        "voita-nearest",
        "The head nearest to each role that is not a relation, by model and language",
        SHARE_COLUMNS,
        SHARE_COLUMN_FORMATS,
        tuple(rows),
        (
            "The best of many heads is chosen on the sentences it is shown on, so its share is a "
            "little too high.",
        ),
    )


def across_table(reports: Reports) -> Table:
    """English heads of roles, in every language.

    They are all heads of each relation, and the best head of each other role.
    """
    rows: list[tuple[Cell, ...]] = []
    for model, language in reports:
        cells_by_role_and_head = {
            (role, head): cells for role, head, cells in _rows(reports[model, language])
        }
        english_heads = [
            key for key in _heads_followed(reports[model, SOURCE]) if key in cells_by_role_and_head
        ]
        rows += [
            (model, language, role, *head, *cells_by_role_and_head[role, head])
            for role, head in english_heads
        ]
    return Table(
        "voita-across",
        "English's heads of each relation, and its best of each other role, in every language",
        SHARE_COLUMNS,
        SHARE_COLUMN_FORMATS,
        tuple(rows),
    )


def shared_table(reports: Reports) -> Table:
    """Number of the base's heads that keep their role after fine-tuning, by language."""
    models, names = _axes(reports)
    rows: list[tuple[Cell, ...]] = []
    for tuned_model in (name for name in models if name != BASE):
        for language in names:
            base_roles = _heads_by_role(reports[BASE, language])
            tuned_roles = _heads_by_role(reports[tuned_model, language])
            for role in sorted({*base_roles, *tuned_roles}):
                base_heads = base_roles.get(role, set())
                tuned_heads = tuned_roles.get(role, set())
                counts = (len(base_heads), len(tuned_heads), len(base_heads & tuned_heads))
                rows.append((tuned_model, language, role, *counts))
    return Table(
        "voita-kept",
        "Heads with a role in the base, in the fine-tuned model, and in both",
        ("model", "language", "role", "base", "fine-tuned", "both"),
        ("", "", "", "d", "d", "d"),
        tuple(rows),
    )


def _axes(reports: Reports) -> tuple[list[str], list[str]]:
    """The models and the languages of some reports, each once."""
    models = dict.fromkeys(model for model, _ in reports)
    languages_of_reports = dict.fromkeys(language for _, language in reports)
    return list(models), list(languages_of_reports)


def _rows(report: Report) -> Iterator[tuple[str, Head, tuple[float | None, ...]]]:
    """Kind of role, head, and shares and whether it has the role, of every row of a report."""
    for row in read_roles(report).rows:
        yield kind_of(row.role), row.head, (*(row.numbers[name] for name in SHARES), row.has)


def _heads_followed(report: Report) -> list[tuple[str, Head]]:
    """Heads by role: every head of a relation, and the best one of every other role.

    The best has the largest share.
    """
    heads_with_roles = [
        (role, float(shares[0] or 0), head) for role, head, shares in _rows(report) if shares[-1]
    ]
    largest: dict[str, float] = {}
    for role, share, _ in heads_with_roles:
        largest[role] = max(share, largest.get(role, 0.0))
    followed = [
        (role, head)
        for role, share, head in heads_with_roles
        if role in SYNTACTIC or share == largest[role]
    ]
    return sorted(followed, key=lambda key: list(largest).index(key[0]))


def _heads_by_role(report: Report) -> dict[str, set[Head]]:
    """The heads that have each kind of role."""
    heads: dict[str, set[Head]] = {}
    for role, head, (*_, has) in _rows(report):
        if has:
            heads.setdefault(role, set()).add(head)
    return heads
