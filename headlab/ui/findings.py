"""What the stored results say, in a few sentences made by rule, each with the page that shows it. No streamlit here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headlab.methods.costs import caution, spec_of
from headlab.pictures import MINUS, adjusted
from headlab.records import part
from headlab.scores import HeadScores, coarse
from headlab.store import Result
from headlab.studies.differences import ALPHA, COLUMNS
from headlab.studies.table import FRONT, METHOD
from headlab.studies.targeted import HARMFUL, MEAN
from headlab.tables import Report, is_number, p_is
from headlab.ui.names import counted, language_title

ENDS = COLUMNS[:3]  # a difference and its interval


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
    if first is None or first.low is None or not first.signed:
        return
    heads, basis = first.grid.size, f"{spec_of(first, 'task', 'split')}, {_examples(scores.values())}"
    harmful = {name: int(s.harmful.sum()) for name, s in scores.items()}
    worst, all_of = max(harmful, key=lambda name: harmful[name]), sum(harmful.values())
    asked = f"{100 * first.level:g} % interval"
    why = f" Caution: {caution(first.method)}." if caution(first.method) else ""
    link = "heads", f"The map of {language_title(worst)}", {"focus": worst}
    if not all_of:
        whose = "this language" if len(scores) == 1 else f"these {len(scores)} languages"
        none = f"No head of {whose} has a {asked} below 0 ({basis}).{why}"
        yield Finding(none, "heads", "All maps")
    elif len(scores) == 1:
        said = f"{language_title(worst)}: {_many(all_of, heads)} harm, each by its own {asked}{_after_holm(scores)}"
        yield Finding(f"{said} ({basis}).{why}", *link)
    else:
        said = f"Of {heads * len(scores):,} heads in {len(scores)} languages, {all_of} harm, each by its own {asked}"
        most = f"Most are in {language_title(worst)}: {harmful[worst]} of {heads}."
        yield Finding(f"{said}{_after_holm(scores)} ({basis}). {most}{why}", *link)
    helpful = float(np.median([s.helpful.sum() for s in scores.values()]))
    neither = float(np.median([(~(s.helpful | s.harmful)).sum() for s in scores.values()]))
    where = language_title(worst) if len(scores) == 1 else f"The median of {len(scores)} languages"
    yield Finding(
        f"{where}: {helpful:g} of {heads} heads help, and the sign of {neither:g} is not settled, each by its own "
        f"{asked} ({basis}).",
        "languages", "What languages share",
    )  # fmt: skip


def _after_holm(scores: Mapping[str, HeadScores]) -> str:
    """How many of these claims of harm stand when all heads of all languages on view are tested together."""
    holms = adjusted(scores)
    if len(holms) < len(scores) or coarse(scores.values()):
        return ""
    left = sum(int(((p <= ALPHA) & scores[name].harmful).sum()) for name, p in holms.items())
    return f"; {left or 'none'} of them after Holm's correction for all {sum(map(len, holms.values())):,}"


def _examples(every: Iterable[HeadScores]) -> str:
    """On how many examples the scores are."""
    sizes = sorted({size for s in every if isinstance(size := spec_of(s, "task", "size"), int)})
    if not sizes:
        return "on examples whose number is not known"
    return f"{sizes[0]:,} examples" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,} examples"


def _many(some: int, every: int) -> str:
    return f"{some} of {every} heads"


# From reports. Tables are read as they were stored, maybe by another version or package: rows that lack a figure are
# left out, and a sentence without its figures is none.


def _targeted(result: Result[Report]) -> Iterator[Finding]:
    """What switching off the harmful heads did on test: the clearest, how many gain significantly, the mean."""
    numbers = ("untouched, %", "accuracy, %", *ENDS)
    every = [row for row in _rows(result.record, "targeted", numbers) if row.get("removed by") == HARMFUL]
    named = [row for row in every if isinstance(row.get("language"), str)]
    rows = [row for row in named if row["language"] != MEAN and is_number(n := row.get("heads removed")) and n]
    if not rows:
        return
    best = max(rows, key=lambda row: row["low, points"])
    holms = [row.get("p (Holm)") for row in rows]
    sure = sum(is_number(p) and p <= ALPHA and row["low, points"] > 0 for p, row in zip(holms, rows, strict=True))
    means = [row for row in named if row["language"] == MEAN]
    method = part(result.record.spec, "options", METHOD) or "the scores"
    off, whole = best["heads removed"], f"{best['untouched, %']:.1f} to {best['accuracy, %']:.1f} %"
    said = (
        f"Heads that harm on dev by {method}, switched off: of {counted(len(rows), 'language')} with such "
        f"heads {sure} gain{'s' * (sure == 1)} significantly on test (Holm-adjusted p at most {ALPHA:g}). "
        f"The clearest is {language_title(best['language'])}, {counted(off, 'head')} off: {whole}, "
        f"{_points(best)}{_tested(result.record, best['language'])}."
    )
    said += "".join(f" Mean of all languages: {_points(row)}." for row in means[:1])
    yield Finding(said, "experiments", "Targeted pruning", {"experiment": "targeted", "report": result.key[:12]})


def _front(result: Result[Report]) -> Iterator[Finding]:
    """How many heads can go in all languages at once within a loss, and whether test confirms it."""
    within = part(result.record.spec, "options", "within")
    choices = _rows(result.record, "front-choice", ("heads kept", "heads removed"))
    if not isinstance(within, int | float) or not choices or not choices[0]["heads removed"]:
        return
    kept, gone = choices[0]["heads kept"], choices[0]["heads removed"]
    tested = _rows(result.record, "front-confirmed", ("p of the loss",))
    open_ones = [row for row in tested if row["p of the loss"] > ALPHA]
    limit = f"{within:g} point{'' if within == 1 else 's'}"
    verdict = f"test confirms it ({p_is(max(row['p of the loss'] for row in tested))})" if tested else "not tested"
    if open_ones:
        verdict = f"on test, a larger loss is not ruled out in {len(open_ones)} of {counted(len(tested), 'language')}"
    told = _rows(result.record, "front-confirmed", ("difference, points", "low, points", "high, points"))
    means = [f"; mean of all languages {_points(row)}" for row in told if row["language"] == MEAN]
    yield Finding(
        f"{_many(gone, gone + kept)} can go in every language at once with a loss of at most {limit} in any, by dev; "
        f"{verdict}{''.join(means)}.",
        "prune", "Smaller models",
    )  # fmt: skip


def _agreement(result: Result[Report]) -> Iterator[Finding]:
    """How alike languages rank the heads, beside what their noise would leave of the same ranking."""
    rows = _rows(result.record, "agreement", ("rho", "low", "high"))
    rows = [row for row in rows if isinstance(row.get("language"), str) and isinstance(row.get("other"), str)]
    if not rows:
        return
    least, most = (pick(rows, key=lambda row: row["rho"]) for pick in (min, max))
    if len(rows) == 1:
        said = f"{_pair(least)}: rank correlation of the heads"
    else:
        middle = float(np.median([row["rho"] for row in rows]))
        said = f"{_pair(least)} rank the heads least alike, {_pair(most)} most, "
        said += f"the median of {len(rows):,} pairs is {_written(middle, '.2f')}"
    clear = [row["ceiling"] for row in rows if row.get("noise") == "" and is_number(row.get("ceiling"))]
    limit = f" With this noise two equal rankings would show about {np.median(clear):.2f}." if clear else ""
    yield Finding(f"{said}.{limit}", "experiments", "Agreement", {"experiment": "agreement", "report": result.key[:12]})


def _pair(row: Mapping[str, Any]) -> str:
    names = " and ".join(language_title(row[name]) for name in ("language", "other"))
    rho, low, high = (_written(row[name], ".2f") for name in ("rho", "low", "high"))
    return f"{names} (ρ = {rho} [{low}, {high}])"


def _rows(report: Report, name: str, numbers: Sequence[str]) -> list[Mapping[str, Any]]:
    """The rows of a table as {column: value}, without those that lack one of these numbers."""
    return [row for row in report.rows(name) if all(is_number(row.get(column)) for column in numbers)]


def _tested(report: Report, language: str) -> str:
    """', 1,000 examples', from the sizes that the report records; empty where they cannot be told."""
    languages = str(part(report.spec, "task", "language") or "").split(",")
    sizes = part(report.spec, "task", "sizes", "test")
    if not isinstance(sizes, list) or len(sizes) != len(languages) or language not in languages:
        return ""
    size = sizes[languages.index(language)]
    return f", {size:,} examples" if isinstance(size, int) else ""


def _points(row: Mapping[str, Any]) -> str:
    difference, low, high = (_written(row[name], "+.1f") for name in ENDS)
    return f"{difference} [{low}, {high}] points"


def _written(value: float, form: str) -> str:
    return format(value, form).replace("-", MINUS)
