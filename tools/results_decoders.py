"""Measures SmolLM2-135M on tasks whose heads are known, and writes docs/results-decoders.md from what was measured.

    python tools/results_decoders.py measure --cache CACHE --data DATA   # minutes, after the scores and roles below it
    python tools/results_decoders.py scores --cache CACHE                # what scores and roles are in the cache alone
    python tools/results_decoders.py                                     # the page alone, from docs/results/decoders

The scores come from `headlab score`, the roles from `headlab roles`; the page prints the commands.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headlab.core import Head, Ints, Report, Table, read_json

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "decoders"
PAGE = ROOT / "docs" / "results-decoders.md"
MODEL = "smollm2-135m"
HEADS = 9
SIZE = 64
RANDOM = 5
TASKS = ("repeats", "ioi", "agreement")
TEXT = "lm"
SCORED = (*TASKS, TEXT)
METHODS = ("shapley", "leave-one-out", "gradient")
INDUCTION = "induction"
PREVIOUS = "position -1"
SINK = "first token"


# What the attention patterns call each head, and what each method gives it.


def roles(report: Report) -> dict[str, list[Head]]:
    """{role: heads that have it} of a report of `headlab roles`."""
    (table,) = (table for table in report.tables if table.name == "roles")
    found: dict[str, list[Head]] = {}
    for row in table.rows:
        told = dict(zip(table.columns, row, strict=True))
        if told["has it"]:
            head = Head(str(told["stack"]), int(str(told["layer"])), int(str(told["head"])))
            found.setdefault(str(told["role"]), []).append(head)
    return found


def found_by(values: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """How well a ranking by value, largest first, finds the true heads: precision at their number, and on average.

    Precision and recall are the same at as many heads as there are true ones.  chance: of both, at random.
    """
    hits = truth[np.argsort(-values, kind="stable")]
    many = int(truth.sum())
    at = np.flatnonzero(hits) + 1
    return {
        "at": float(hits[:many].mean()),
        "average": float((np.arange(1, many + 1) / at).mean()),
        "chance": float(truth.mean()),
    }


def placed(one: Any) -> tuple[int, int]:
    """The place of scores in the tables."""
    return SCORED.index(one.spec["task"]["name"]), METHODS.index(one.spec["method"]["name"])


def stored(cache: Path) -> dict[str, np.ndarray]:
    """Write the roles and the scores that are in the cache. Returns where the heads of known roles are, by role."""
    from headlab.results import Store

    store = Store(cache)
    scores = [r.record for r in store.scan().results if r.record.spec["model"]["name"] == MODEL]
    reports = (r.record for r in store.reports().results if r.record.name == "roles")
    report = next(
        r for r in reports if r.spec["model"]["name"] == MODEL and r.spec["task"]["name"] == TEXT
    )
    named = roles(report)
    heads = list(scores[0].grid.heads)
    truth = {
        role: np.array([head in named.get(role, ()) for head in heads])
        for role in (INDUCTION, PREVIOUS)
    }
    write("roles", {role: [list(head) for head in found] for role, found in named.items()})
    rows = []
    for one in sorted(scores, key=placed):
        rows.append(
            {
                "task": one.spec["task"]["name"],
                "method": one.spec["method"]["name"],
                "options": one.spec["method"]["options"],
                "size": one.spec["task"]["size"],
                "unit": one.unit,
                "seconds": one.seconds,
                "fingerprint": one.spec["model"]["fingerprint"],
                "values": one.values.tolist(),
                "low": listed(one.low),
                "high": listed(one.high),
                "found": {
                    role: found_by(one.values, true) for role, true in truth.items() if true.any()
                },
            }
        )
    write("scores", rows)
    return truth


def measure(cache: Path, data: Path) -> None:
    """Write everything below docs/results/decoders."""
    import headlab
    from headlab.masks import Mask

    truth = stored(cache)
    model = headlab.load(MODEL)
    rng = np.random.default_rng(0)
    size = int(truth[INDUCTION].sum())
    others = np.flatnonzero(~truth[INDUCTION])
    chosen: dict[str, Ints] = {
        "none": [],
        "previous-token head": np.flatnonzero(truth[PREVIOUS]),
        "induction heads": np.flatnonzero(truth[INDUCTION]),
    }
    chosen |= {f"random {n + 1}": rng.choice(others, size, replace=False) for n in range(RANDOM)}
    removed = []
    for name, off in chosen.items():
        kept = np.ones(model.grid.size, bool)
        kept[off] = False
        removed.append(
            {"name": name, "off": len(off), **dict(effects(model, Mask(model.grid, kept), data))}
        )
    write("removed", removed)


def effects(model: Any, mask: Any, data: Path) -> Iterator[tuple[str, Any]]:
    """What a mask leaves of each task on test, with intervals."""
    import headlab
    from headlab.evaluation import Evaluator, accuracy_interval, likelihood, text_rates

    for name in SCORED:
        evaluator = Evaluator(model, headlab.task(name, data=data), "en", "test", SIZE)
        found = evaluator.evaluate(mask)
        low, high = accuracy_interval(found)
        told: dict[str, float] = {
            "accuracy": found.accuracy,
            "low": low,
            "high": high,
            "answers": found.n,
        }
        yield (
            name,
            told | (text_rates(evaluator, likelihood(evaluator, mask)) if name == TEXT else {}),
        )


def listed(ends: np.ndarray | None) -> list[float] | None:
    """An array for JSON."""
    return None if ends is None else ends.tolist()


def write(name: str, value: object) -> None:
    """One file of the results."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


# The page.


def page() -> str:
    """The document, from the files alone."""
    named, scores, removed = (
        read_json(RESULTS / f"{name}.json") for name in ("roles", "scores", "removed")
    )
    lines = [
        (RESULTS / "findings.md").read_text(encoding="utf-8").rstrip(),
        "",
        "## What the heads look at",
        "",
    ]
    lines += [
        table_of_roles(named).markdown(),
        "",
        "## What removing them does",
        "",
        table_of_removal(removed).markdown(),
    ]
    lines += [
        "",
        "## Which method finds them, on `repeats`",
        "",
        table_of_methods(scores).markdown(),
        "",
    ]
    for task in SCORED:
        lines += [
            f"## The strongest heads of `{task}`",
            "",
            table_of_heads(task, scores, named).markdown(),
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def table_of_roles(named: Mapping[str, Sequence[Sequence[Any]]]) -> Table:
    """Heads by role; of the sink, which most have, only their number."""
    rows = []
    for role in (PREVIOUS, INDUCTION, SINK):
        heads = [f"{layer}.{head}" for _, layer, head in named.get(role, ())]
        rows.append((role, len(heads), ", ".join(heads) if role != SINK else "…"))
    return Table(
        "roles",
        "Heads by role",
        ("role", "heads", "which (layer.head)"),
        ("", "d", ""),
        tuple(rows),
    )


def table_of_removal(removed: Sequence[Mapping[str, Any]]) -> Table:
    """Accuracy of each task and bits per byte of ordinary text, a row a set of heads."""
    rows = []
    for one in removed:
        shares = [
            f"{100 * one[t]['accuracy']:.1f} [{100 * one[t]['low']:.1f}, {100 * one[t]['high']:.1f}]"
            for t in TASKS
        ]
        text = one[TEXT]
        bits = f"{text['bits_per_byte']:.3f} [{text['bits_per_byte_low']:.3f}, {text['bits_per_byte_high']:.3f}]"
        rows.append((one["name"], one["off"], *shares, bits))
    columns = ("heads off", "how many", *(f"{task}, %" for task in TASKS), "text, bits per byte")
    return Table("removed", "What is left", columns, ("", "d", "", "", "", ""), tuple(rows))


def table_of_methods(scores: Sequence[Mapping[str, Any]]) -> Table:
    """How well each method's ranking on `repeats` finds heads by what they look at."""
    rows = []
    for one in scores:
        for role, told in one["found"].items() if one["task"] == "repeats" else ():
            how = (one["method"], one["size"], one["seconds"])
            rows.append((*how, role, told["at"], told["average"], told["chance"]))
    columns = (
        "method",
        "examples",
        "seconds",
        "role",
        "precision = recall",
        "average precision",
        "chance",
    )
    return Table(
        "found", "Heads found", columns, ("", "d", ".0f", "", ".2f", ".2f", ".2f"), tuple(rows)
    )


def table_of_heads(
    task: str, scores: Sequence[Mapping[str, Any]], named: Mapping[str, Any], most: int = 12
) -> Table:
    """The heads of highest Shapley value of a task, with their intervals and roles."""
    rows = []
    role_of = {tuple(head): role for role, heads in named.items() if role != SINK for head in heads}
    for one in scores:
        if (one["task"], one["method"]) == (task, "shapley"):
            for at in np.argsort(-np.array(one["values"]))[:most].tolist():
                place = ("decoder", at // HEADS, at % HEADS)
                rows.append(
                    (
                        f"{place[1]}.{place[2]}",
                        100 * one["values"][at],
                        100 * one["low"][at],
                        100 * one["high"][at],
                        role_of.get(place, ""),
                    )
                )
    columns = ("head", "Shapley value, points", "low", "high", "looks at")
    return Table("heads", "Strongest heads", columns, ("", "+.1f", "+.1f", "+.1f", ""), tuple(rows))


def main() -> None:
    """Measure if asked to, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", nargs="?", choices=["measure", "scores", "page"], default="page")
    parser.add_argument("--cache", type=Path, default=ROOT / "cache")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    given = parser.parse_args()
    if given.what == "measure":
        measure(given.cache, given.data)
    if given.what == "scores":
        stored(given.cache)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
