"""Writes the tables of docs/demo.md: the cost of scores, and the effect of removing heads.

The first is made from `headlab/embedded/results/`, the second from docs/results/demo/shapley-top50.json, which is the
output of `headlab prune --method shapley --languages all --json`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headlab.core import read_json
from headlab.methods import cost_of
from headlab.results import HeadScores, Store
from headlab.tasks.intents.classes import LANGUAGES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "demo.md"
RESULTS = ROOT / "docs" / "results" / "demo"
MODEL = "e5-small-intents"
ESTIMANDS = ("shapley-top50", "shapley")
PRUNED_BY = "shapley-top50"
COST_COLUMNS = (
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
PRUNING_COLUMNS = (
    "language",
    "untouched (test)",
    "heads removed",
    "masked (test)",
    "difference, points",
    "95 % interval",
    "p",
)


def scores_of_estimand(estimand: str) -> list[HeadScores]:
    """The demo's Shapley values of an estimand, in the task's order of languages."""
    scores_by_language = {}
    for stored_result in Store(ROOT / "headlab" / "embedded" / "results").scan().results:
        scores = stored_result.record
        is_of_demo = scores.spec["model"]["name"] == MODEL
        if is_of_demo and scores.method == "shapley" and scores.estimand == estimand:
            scores_by_language[scores.language] = scores
    return [scores_by_language[language] for language in LANGUAGES]


def head(columns: tuple[str, ...]) -> list[str]:
    """The first two lines of a Markdown table whose numbers are aligned to the right."""
    return [f"| {' | '.join(columns)} |", f"| --- |{' ---: |' * (len(columns) - 1)}"]


def cost_table(scores_of_languages: Iterable[HeadScores]) -> str:
    """The cost of scores and the signs of heads, a row for each language, and the total cost."""
    rows = []
    seconds = 0.0
    forwards = 0
    for scores in scores_of_languages:
        cost = cost_of(scores)
        assert cost.samples is not None
        assert cost.median_half_width is not None
        min_samples, median_samples, max_samples = cost.samples
        neither = scores.grid.size - cost.helpful - cost.harmful
        cells = [
            scores.language,
            f"{min_samples:,} / {median_samples:,.0f} / {max_samples:,}",
            f"{cost.forwards:,}",
            f"{cost.seconds:,.0f}",
            cost.helpful,
            cost.harmful,
            neither,
            f"{100 * cost.median_half_width:.2f}",
            f"{100 * cost.largest_half_width:.2f}",
        ]
        rows.append(f"| {' | '.join(map(str, cells))} |")
        seconds = seconds + cost.seconds
        forwards = forwards + cost.forwards
    return "\n".join(
        [
            *head(COST_COLUMNS),
            *rows,
            "",
            f"All together {seconds / 60:.0f} minutes and {forwards:,} forwards.",
        ]
    )


def pruning_table(languages: dict[str, dict[str, Any]]) -> str:
    """The effect of removing the harmful heads on test, a row for each language."""
    rows = []
    for language, figures in languages.items():
        cells = [
            language,
            f"{figures['baseline']:.1%}",
            figures["removed"],
            f"{figures['accuracy']:.1%}",
            f"{100 * figures['difference']:+.1f}",
            f"[{100 * figures['low']:+.1f}, {100 * figures['high']:+.1f}]",
            f"{figures['p']:.3f}" if figures["p"] >= 0.001 else "< 0.001",
        ]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*head(PRUNING_COLUMNS), *rows])


def tables() -> dict[str, str]:
    """The tables by the names of their places in the page."""
    tables_by_place = {
        f"took {estimand}": cost_table(scores_of_estimand(estimand)) for estimand in ESTIMANDS
    }
    return tables_by_place | {
        f"gave {PRUNED_BY}": pruning_table(read_json(RESULTS / f"{PRUNED_BY}.json")["languages"])
    }


def page() -> str:
    """The document with its tables made anew; the text between them stays."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        text_before, _, rest = text.partition(f"<!-- {name} -->\n")
        _, _, text_after = rest.partition("<!-- end -->")
        text = f"{text_before}<!-- {name} -->\n{table}\n<!-- end -->{text_after}"
    return text


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
