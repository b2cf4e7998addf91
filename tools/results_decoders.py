"""Measures SmolLM2-135M on tasks whose heads are known, and writes docs/results-decoders.md.

    python tools/results_decoders.py measure --cache CACHE --data DATA   # all files and the page
    python tools/results_decoders.py scores --cache CACHE                # scores, roles, the page
    python tools/results_decoders.py signs --cache CACHE                 # decided signs, the page
    python tools/results_decoders.py                                     # the page alone

All but the last need scores made by `headlab score`, the first two also roles made by `headlab
roles`, in the cache; the page prints the commands.
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
TASKS_AND_TEXT = (*TASKS, TEXT)
METHODS = ("shapley", "leave-one-out", "gradient")
SIGN_CORRECTION = "holm"
"""The correction of the signs that are called decided."""
INDUCTION = "induction"
PREVIOUS = "position -1"
SINK = "first token"


# The roles of the heads, and their scores by each method.


def roles(report: Report) -> dict[str, list[Head]]:
    """Heads by role, from a report of `headlab roles`."""
    (table,) = (table for table in report.tables if table.name == "roles")
    heads_by_role: dict[str, list[Head]] = {}
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        if cells["has it"]:
            head = Head(str(cells["stack"]), int(str(cells["layer"])), int(str(cells["head"])))
            heads_by_role.setdefault(str(cells["role"]), []).append(head)
    return heads_by_role


def ranking_precision(values: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """How well a ranking of heads by value, the largest first, finds the heads of a role.

    Args:
        values: The value of each head, float [head].
        truth: Whether each head has the role, bool [head].

    Returns:
        "at": precision among as many heads as have the role, where it equals recall.
        "average": average precision.
        "chance": the expectation of both for a random ranking.
    """
    hits = truth[np.argsort(-values, kind="stable")]
    true_count = int(truth.sum())
    ranks = np.flatnonzero(hits) + 1
    return {
        "at": float(hits[:true_count].mean()),
        "average": float((np.arange(1, true_count + 1) / ranks).mean()),
        "chance": float(truth.mean()),
    }


def table_order(scores: Any) -> tuple[int, int]:
    """A key that sorts scores as the tables list them."""
    return TASKS_AND_TEXT.index(scores.spec["task"]["name"]), METHODS.index(
        scores.spec["method"]["name"]
    )


def write_roles_and_scores(cache: Path) -> dict[str, np.ndarray]:
    """Write the roles and the scores that are in the cache.

    Returns:
        Which heads have each of the known roles, bool [head] by role.
    """
    from headlab.results import Store

    store = Store(cache)
    records = [stored_result.record for stored_result in store.scan().results]
    scores_of_model = [record for record in records if record.spec["model"]["name"] == MODEL]
    reports = [stored_result.record for stored_result in store.reports().results]
    role_report = next(
        report
        for report in reports
        if report.name == "roles"
        and report.spec["model"]["name"] == MODEL
        and report.spec["task"]["name"] == TEXT
    )
    heads_by_role = roles(role_report)
    all_heads = list(scores_of_model[0].grid.heads)
    has_role = {}
    for role in (INDUCTION, PREVIOUS):
        heads_of_role = heads_by_role.get(role, ())
        has_role[role] = np.array([head in heads_of_role for head in all_heads])
    write("roles", {role: list(map(list, heads)) for role, heads in heads_by_role.items()})
    rows = []
    for scores in sorted(scores_of_model, key=table_order):
        precision_by_role = {}
        for role, truth in has_role.items():
            if truth.any():
                precision_by_role[role] = ranking_precision(scores.values, truth)
        rows.append(
            {
                "task": scores.spec["task"]["name"],
                "method": scores.spec["method"]["name"],
                "options": scores.spec["method"]["options"],
                "size": scores.spec["task"]["size"],
                "unit": scores.unit,
                "seconds": scores.seconds,
                "fingerprint": scores.spec["model"]["fingerprint"],
                "values": scores.values.tolist(),
                "low": json_list(scores.low),
                "high": json_list(scores.high),
                "found": precision_by_role,
            }
        )
    write("scores", rows)
    return has_role


def write_signs(cache: Path) -> None:
    """Write how many heads' signs are decided by log-probability, task by task.

    Of a task with several such scores in the cache, those of most samples count; what is known of
    tasks that it has no such scores of stays. Signs are held against those of leave-one-out, which
    are of accuracy and whose intervals are of new examples.
    """
    from headlab.results import Store

    scores_by_task: dict[str, Any] = {}
    for stored_result in Store(cache).scan().results:
        scores = stored_result.record
        if scores.spec.model.name != MODEL or scores.method != "shapley" or scores.unit != "nats":
            continue
        name = scores.spec.task.name
        if name not in scores_by_task or scores.samples.sum() > scores_by_task[name].samples.sum():
            scores_by_task[name] = scores
    stored_scores = read_json(RESULTS / "scores.json")
    earlier_signs = read_json(RESULTS / "signs.json")
    signs = {}
    for name in TASKS_AND_TEXT:
        if name in scores_by_task:
            signs[name] = signs_of(scores_by_task[name], name, stored_scores)
        elif name in earlier_signs:
            signs[name] = earlier_signs[name]
    write("signs", signs)


def signs_of(scores: Any, name: str, stored_scores: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many heads' signs scores decide, and what that took.

    Args:
        scores: Of heads, with p-values.
        name: Of their task.
        stored_scores: Rows of scores.json.
    """
    from headlab.results.scores import CORRECTIONS

    options = scores.spec.method.options
    by_correction = {}
    for correction, adjust in CORRECTIONS.items():
        if adjust is None:
            by_correction[correction] = scores.helpful | scores.harmful
        else:
            by_correction[correction] = adjust(scores.p_values) <= 1 - scores.level
    decided = by_correction[SIGN_CORRECTION]
    figures: dict[str, Any] = {
        "decided": int(decided.sum()),
        "heads": scores.grid.size,
        "interval": options.get("interval", "anytime"),
        "correction": SIGN_CORRECTION,
        "seconds": scores.seconds,
        "forwards": scores.example_forwards,
        "samples": int(np.median(scores.samples)),
        "examples": scores.spec.task.size,
        "dtype": scores.spec.model.dtype or "float32",
        "helpful": int((decided & scores.helpful).sum()),
        "harmful": int((decided & scores.harmful).sum()),
        "median_half_width": float(np.median(scores.half_width)),
        "decided_by_correction": {key: int(heads.sum()) for key, heads in by_correction.items()},
    }
    for row in stored_scores:
        if (row["task"], row["method"]) == (name, "leave-one-out"):
            low, high = np.array(row["low"]), np.array(row["high"])
            sign = np.sign(low + high) * ((low > 0) | (high < 0))
            own_sign = decided * np.sign(scores.values)
            figures["leave_one_out"] = {
                "signs": int((sign != 0).sum()),
                "same": int(((sign != 0) & (sign == own_sign)).sum()),
                "opposite": int((sign * own_sign < 0).sum()),
                "undecided": int(((sign != 0) & (own_sign == 0)).sum()),
            }
    return figures


def measure(cache: Path, data: Path) -> None:
    """Write all files below docs/results/decoders."""
    import headlab
    from headlab.masks import Mask

    has_role = write_roles_and_scores(cache)
    model = headlab.load(MODEL)
    rng = np.random.default_rng(0)
    induction_count = int(has_role[INDUCTION].sum())
    other_heads = np.flatnonzero(~has_role[INDUCTION])
    removed_sets: dict[str, Ints] = {
        "none": [],
        "previous-token head": np.flatnonzero(has_role[PREVIOUS]),
        "induction heads": np.flatnonzero(has_role[INDUCTION]),
    }
    for number in range(1, RANDOM + 1):
        removed_sets[f"random {number}"] = rng.choice(other_heads, induction_count, replace=False)
    rows = []
    for name, removed_heads in removed_sets.items():
        is_kept = np.ones(model.grid.size, bool)
        is_kept[removed_heads] = False
        mask = Mask(model.grid, is_kept)
        row = {"name": name, "off": len(removed_heads), **dict(effects(model, mask, data))}
        rows.append(row)
    write("removed", rows)


def effects(model: Any, mask: Any, data: Path) -> Iterator[tuple[str, Any]]:
    """(task, figures) under a mask: accuracy with its interval on test, and rates of the text."""
    import headlab
    from headlab.evaluation import Evaluator, accuracy_interval, likelihood, text_rates

    for name in TASKS_AND_TEXT:
        evaluator = Evaluator(model, headlab.task(name, data=data), "en", "test", SIZE)
        evaluation = evaluator.evaluate(mask)
        low, high = accuracy_interval(evaluation)
        figures: dict[str, float] = {
            "accuracy": evaluation.accuracy,
            "low": low,
            "high": high,
            "answers": evaluation.n,
        }
        if name == TEXT:
            figures |= text_rates(evaluator, likelihood(evaluator, mask))
        yield name, figures


def json_list(array: np.ndarray | None) -> list[float] | None:
    """An array as a list, for JSON."""
    return None if array is None else array.tolist()


def write(name: str, value: object) -> None:
    """Write one file of the results."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


# The page.


def page() -> str:
    """The document, made from the files alone."""
    heads_by_role = read_json(RESULTS / "roles.json")
    scores = read_json(RESULTS / "scores.json")
    removals = read_json(RESULTS / "removed.json")
    signs = read_json(RESULTS / "signs.json")
    lines = [
        (RESULTS / "findings.md").read_text(encoding="utf-8").rstrip(),
        "",
        "## What the heads look at",
        "",
    ]
    lines += [
        table_of_roles(heads_by_role).markdown(),
        "",
        "## What removing them does",
        "",
        table_of_removal(removals).markdown(),
    ]
    lines += [
        "",
        "## Which method finds them, on `repeats`",
        "",
        table_of_methods(scores).markdown(),
        "",
    ]
    lines += ["## Signs by log-probability", "", table_of_signs(signs).markdown(), ""]
    for task in TASKS_AND_TEXT:
        lines += [
            f"## The strongest heads of `{task}`",
            "",
            table_of_heads(task, scores, heads_by_role).markdown(),
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def table_of_roles(heads_by_role: Mapping[str, Sequence[Sequence[Any]]]) -> Table:
    """Heads by role; for the sink, which most heads are, only their number."""
    rows = []
    for role in (PREVIOUS, INDUCTION, SINK):
        heads = [f"{layer}.{head}" for _, layer, head in heads_by_role.get(role, ())]
        rows.append((role, len(heads), ", ".join(heads) if role != SINK else "…"))
    return Table(
        "roles",
        "Heads by role",
        ("role", "heads", "which (layer.head)"),
        ("", "d", ""),
        tuple(rows),
    )


def table_of_removal(removals: Sequence[Mapping[str, Any]]) -> Table:
    """Accuracy of each task and bits per byte of ordinary text, a row for each set of heads."""
    rows = []
    for removal in removals:
        shares = []
        for task in TASKS:
            accuracy, low, high = (100 * removal[task][key] for key in ("accuracy", "low", "high"))
            shares.append(f"{accuracy:.1f} [{low:.1f}, {high:.1f}]")
        text = removal[TEXT]
        interval = f"[{text['bits_per_byte_low']:.3f}, {text['bits_per_byte_high']:.3f}]"
        bits = f"{text['bits_per_byte']:.3f} {interval}"
        rows.append((removal["name"], removal["off"], *shares, bits))
    columns = ("heads off", "how many", *(f"{task}, %" for task in TASKS), "text, bits per byte")
    return Table("removed", "What is left", columns, ("", "d", "", "", "", ""), tuple(rows))


def table_of_methods(scores: Sequence[Mapping[str, Any]]) -> Table:
    """How well each method's ranking on `repeats` finds the heads of each role."""
    rows = []
    for scores_row in scores:
        if scores_row["task"] != "repeats":
            continue
        method_cells = (scores_row["method"], scores_row["size"], scores_row["seconds"])
        for role, precision in scores_row["found"].items():
            cells = (precision["at"], precision["average"], precision["chance"])
            rows.append((*method_cells, role, *cells))
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


def table_of_signs(signs: Mapping[str, Mapping[str, Any]]) -> Table:
    """How many heads' signs are decided in each task, and what that took."""
    rows = []
    for task, figures in signs.items():
        by_correction = figures["decided_by_correction"]
        check = figures.get("leave_one_out", {})
        check_text = ""
        if check:
            check_text = f"{check['same']} of {check['signs']}, {check['opposite']} opposite"
        rows.append(
            (
                task,
                figures["samples"],
                by_correction["holm"],
                by_correction["bh"],
                by_correction["raw"],
                figures["helpful"],
                figures["harmful"],
                figures["median_half_width"],
                check_text,
                figures["forwards"],
                figures["seconds"],
            )
        )
    columns = (
        "task",
        "samples a head",
        "decided (Holm)",
        "by Benjamini–Hochberg",
        "by its own interval",
        "of Holm's: help",
        "harm",
        "half-width, nats",
        "signs of leave-one-out found",
        "forwards",
        "seconds",
    )
    formats = ("", "d", "d", "d", "d", "d", "d", ".3f", "", ",d", ",.0f")
    return Table("signs", "Signs by log-probability", columns, formats, tuple(rows))


def table_of_heads(
    task: str,
    scores: Sequence[Mapping[str, Any]],
    heads_by_role: Mapping[str, Any],
    max_heads: int = 12,
) -> Table:
    """The heads of highest Shapley value of a task, with their intervals and roles."""
    role_of = {}
    for role, heads in heads_by_role.items():
        if role != SINK:
            role_of |= {tuple(head): role for head in heads}
    rows = []
    for scores_row in scores:
        if (scores_row["task"], scores_row["method"]) != (task, "shapley"):
            continue
        if scores_row["unit"] != "accuracy":
            continue
        values = np.array(scores_row["values"])
        for index in np.argsort(-values, kind="stable")[:max_heads].tolist():
            layer, head = divmod(index, HEADS)
            rows.append(
                (
                    f"{layer}.{head}",
                    100 * scores_row["values"][index],
                    100 * scores_row["low"][index],
                    100 * scores_row["high"][index],
                    role_of.get(("decoder", layer, head), ""),
                )
            )
    columns = ("head", "Shapley value, points", "low", "high", "looks at")
    return Table("heads", "Strongest heads", columns, ("", "+.1f", "+.1f", "+.1f", ""), tuple(rows))


def main() -> None:
    """Measure if asked to, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "what", nargs="?", choices=["measure", "scores", "signs", "page"], default="page"
    )
    parser.add_argument("--cache", type=Path, default=ROOT / "headlab" / "embedded" / "results")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    arguments = parser.parse_args()
    if arguments.what == "measure":
        measure(arguments.cache, arguments.data)
    if arguments.what == "scores":
        write_roles_and_scores(arguments.cache)
    if arguments.what == "signs":
        write_signs(arguments.cache)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
