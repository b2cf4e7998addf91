"""Writes the tables of docs/demo.md: what the demo's scores took, from `cache/`, and what removing harmful heads does.

The second is of docs/results/demo/shapley-top50.json: `headlab prune --method shapley --languages all --json`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headlab.core import read_json
from headlab.methods import cost_of
from headlab.results import HeadScores, Store
from headlab.tasks.intents.templates import LANGUAGES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "demo.md"
RESULTS = ROOT / "docs" / "results" / "demo"
MODEL = "e5-small-intents"
ESTIMANDS = ("shapley-top50", "shapley")
PRUNED = "shapley-top50"
TOOK = (
    "language",
    "samples a head (least / median / most)",
    "forwards",
    "seconds",
    "helpful",
    "harmful",
    "neither",
    "median half-width, points",
    "widest",
)
GAVE = (
    "language",
    "untouched (test)",
    "heads removed",
    "masked (test)",
    "difference, points",
    "95 % interval",
    "p",
)


def scored(estimand: str) -> list[HeadScores]:
    """The demo's Shapley values of this estimand, in the task's order of languages."""
    every = [
        r.record
        for r in Store(ROOT / "cache").scan().results
        if r.record.spec["model"]["name"] == MODEL
    ]
    found = {s.language: s for s in every if s.method == "shapley" and s.estimand == estimand}
    return [found[language] for language in LANGUAGES]


def head(columns: tuple[str, ...]) -> list[str]:
    """The first two lines of a table whose numbers stand on the right."""
    return [f"| {' | '.join(columns)} |", f"| --- |{' ---: |' * (len(columns) - 1)}"]


def took(every: Iterable[HeadScores]) -> str:
    """What each language took, and what is known of its heads; minutes of all together."""
    rows = []
    seconds = 0.0
    forwards = 0
    for scores in every:
        cost = cost_of(scores)
        assert cost.samples is not None
        assert cost.median_width is not None
        least, median, most = cost.samples
        neither = scores.grid.size - cost.helpful - cost.harmful
        cells = [
            scores.language,
            f"{least:,} / {median:,.0f} / {most:,}",
            f"{cost.forwards:,}",
            f"{cost.seconds:,.0f}",
            cost.helpful,
            cost.harmful,
            neither,
            f"{100 * cost.median_width:.2f}",
            f"{100 * cost.largest_width:.2f}",
        ]
        rows.append(f"| {' | '.join(map(str, cells))} |")
        seconds = seconds + cost.seconds
        forwards = forwards + cost.forwards
    return "\n".join(
        [
            *head(TOOK),
            *rows,
            "",
            f"All together {seconds / 60:.0f} minutes and {forwards:,} forwards.",
        ]
    )


def gave(languages: dict[str, dict[str, Any]]) -> str:
    """What removing the harmful heads did on test."""
    rows = []
    for language, seen in languages.items():
        cells = [
            language,
            f"{seen['baseline']:.1%}",
            seen["removed"],
            f"{seen['accuracy']:.1%}",
            f"{100 * seen['difference']:+.1f}",
            f"[{100 * seen['low']:+.1f}, {100 * seen['high']:+.1f}]",
            f"{seen['p']:.3f}" if seen["p"] >= 0.001 else "< 0.001",
        ]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*head(GAVE), *rows])


def tables() -> dict[str, str]:
    """{name of a place in the page: the table that stands there}."""
    found = {f"took {estimand}": took(scored(estimand)) for estimand in ESTIMANDS}
    return found | {f"gave {PRUNED}": gave(read_json(RESULTS / f"{PRUNED}.json")["languages"])}


def page() -> str:
    """The document, with its tables made anew; the text between them stays."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        _, _, after = rest.partition("<!-- end -->")
        text = f"{before}<!-- {name} -->\n{table}\n<!-- end -->{after}"
    return text


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
