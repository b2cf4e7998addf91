"""What the stored results say, in a few sentences made by rule, each with the page that shows it. No streamlit here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headlab.methods.costs import spec_of
from headlab.pictures import is_signed
from headlab.report.commands import part
from headlab.scores import HeadScores
from headlab.stats import holm
from headlab.store import Result
from headlab.studies.table import FRONT
from headlab.tables import Report, Table
from headlab.ui.names import language_title

ALPHA = 0.05
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Finding:
    """A sentence, and the view that it is of.  page, more: as for `headlab.ui.names.page_link`.  label: of the link."""

    sentence: str
    page: str
    label: str
    more: Mapping[str, str] = field(default_factory=dict)


def findings(scores: Mapping[str, HeadScores], reports: Mapping[str, Result[Report]]) -> list[Finding]:
    """What is found, most telling first; none without results.

    scores: by language, as the page shows them.  reports: the newest of each experiment, and of the front.
    """
    found = [*_of_scores(scores)]
    for key, of in (("targeted", _targeted), (FRONT.key, _front), ("agreement", _agreement)):
        if key in reports:
            found += of(reports[key])
    return found


# From head scores.


def _of_scores(scores: Mapping[str, HeadScores]) -> Iterator[Finding]:
    first = next(iter(scores.values()), None)
    if first is None or first.low is None or not is_signed(first):
        return
    harmful = {name: int(s.harmful.sum()) for name, s in scores.items()}
    worst = max(harmful, key=lambda name: harmful[name])
    heads, n, split = first.grid.size, spec_of(scores[worst], "task", "size"), spec_of(first, "task", "split")
    basis = f"{split}, n = {n:,}" if isinstance(n, int) else str(split)
    if harmful[worst]:
        corrected = _after_holm(scores)
        yield Finding(
            f"{language_title(worst)}: {_many(harmful[worst], heads)} lower the {_what(first)} ({basis}; each by its "
            f"own {first.level:.0%} interval).{corrected}",
            "heads", f"The map of {language_title(worst)}", {"focus": worst},
        )  # fmt: skip
    else:
        yield Finding(
            f"No head surely harms {_languages(len(scores))} ({basis}; each by its own {first.level:.0%} interval).",
            "heads", "All maps",
        )  # fmt: skip
    helpful = [int(s.helpful.sum()) for s in scores.values()]
    neither = float(np.median([heads - one - other for one, other in zip(helpful, harmful.values(), strict=True)]))
    where = "Here" if len(scores) == 1 else f"In the median of {_languages(len(scores))}"
    yield Finding(
        f"{where} {np.median(helpful):.0f} heads surely help, and {neither:.0f} of {heads} neither surely help nor "
        f"surely harm ({basis}).",
        "languages", "What languages share",
    )  # fmt: skip


def _after_holm(scores: Mapping[str, HeadScores]) -> str:
    """How many claims of harm stand when all heads of all languages on view are tested together."""
    every = [s.p_values for s in scores.values()]
    if any(p is None for p in every):
        return ""
    p = np.concatenate([np.asarray(one) for one in every])
    below = np.concatenate([s.values < 0 for s in scores.values()])
    left = int(((holm(p) <= ALPHA) & below).sum())
    where = "" if len(scores) == 1 else f" of {_languages(len(scores))}"
    return f" After Holm's correction for all {p.size:,} heads{where}: {left}."


def _what(scores: HeadScores) -> str:
    return "accuracy" if scores.unit == "accuracy" else scores.unit


def _many(some: int, every: int) -> str:
    return f"{some} of {every} heads"


def _languages(count: int) -> str:
    return "this language" if count == 1 else f"these {count} languages"


# From reports: the tables hold what their notes promise, so only figures are taken from them.


def _targeted(result: Result[Report]) -> Iterator[Finding]:
    """The language that gains most when its harmful heads are switched off, by the lower end of its interval."""
    rows = [row for row in _rows(result.record, "targeted") if row["removed by"] == "harmful" and row["heads removed"]]
    rows = [row for row in rows if isinstance(row["low, points"], int | float)]
    if not rows:
        return
    best = max(rows, key=lambda row: row["low, points"])
    n = _answers(result.record, str(best["language"]))
    yield Finding(
        f"{language_title(str(best['language']))}: its {best['heads removed']} harmful heads switched off, accuracy on "
        f"test goes from {best['untouched, %']:.1f} to {best['accuracy, %']:.1f} % "
        f"({_points(best)}{n}, p = {_p(best['p (Holm)'])} by Holm over the languages).",
        "experiments", "Targeted pruning", {"experiment": "targeted", "report": result.key[:12]},
    )  # fmt: skip


def _front(result: Result[Report]) -> Iterator[Finding]:
    """How many heads can go in all languages at once."""
    for row in _rows(result.record, "front-choice")[:1]:
        kept, gone = row["heads kept"], row["heads removed"]
        if not gone:
            return
        yield Finding(
            f"{_many(gone, gone + kept)} can go in every language at once: {row['question']} (dev); the weakest, "
            f"{language_title(str(row['weakest language']))}, {_signed(row['weakest, points'])} points there.",
            "prune", "The front of smaller models",
        )  # fmt: skip


def _agreement(result: Result[Report]) -> Iterator[Finding]:
    """How alike languages rank the heads, beside what noise lets them."""
    rows = [row for row in _rows(result.record, "agreement") if isinstance(row["rho"], int | float)]
    if not rows:
        return
    middle = sorted(rows, key=lambda row: row["rho"])[len(rows) // 2]
    ceilings = [row["ceiling"] for row in rows if isinstance(row["ceiling"], int | float)]
    limit = f"; noise alone would allow {np.median(ceilings):.2f}" if ceilings else ""
    pair = f"{language_title(str(middle['language']))} and {language_title(str(middle['other']))}"
    yield Finding(
        f"The median of {len(rows):,} pairs of languages, {pair}, ranks the heads alike with ρ = {middle['rho']:.2f} "
        f"[{middle['low']:.2f}, {middle['high']:.2f}]{limit}.",
        "experiments", "Agreement", {"experiment": "agreement", "report": result.key[:12]},
    )  # fmt: skip


def _rows(report: Report, name: str) -> list[dict[str, Any]]:
    """The rows of a table as {column: value}; none if the report lacks it."""
    tables: Sequence[Table] = [table for table in report.tables if table.name == name]
    return [dict(zip(table.columns, row, strict=True)) for table in tables for row in table.rows]


def _answers(report: Report, language: str) -> str:
    """', n = 1,000', from the sizes that the report records; empty where they cannot be told."""
    languages = str(part(report.spec, "task", "language") or "").split(",")
    sizes = part(report.spec, "task", "sizes", "test")
    if not isinstance(sizes, list) or len(sizes) != len(languages) or language not in languages:
        return ""
    return f", n = {sizes[languages.index(language)]:,}"


def _points(row: Mapping[str, Any]) -> str:
    ends = ", ".join(_signed(row[name]) for name in ("low, points", "high, points"))
    return f"{_signed(row['difference, points'])} [{ends}] points"


def _signed(value: Any) -> str:
    return f"{value:+.1f}".replace("-", MINUS)


def _p(value: Any) -> str:
    if not isinstance(value, int | float):
        return "not given"
    return "below 0.001" if value < 0.001 else f"{value:.3f}"
