"""Writes docs/results-players.md: smaller models without heads, neurons and pieces.

    python tools/results_players.py collect FOLDER   # the files of commands' output, and the page
    python tools/results_players.py                  # the page alone

The page prints the commands. FOLDER holds what they print with --json: front-NAME.json of `headlab
front`, worth-NAME.json of `headlab worth` on its mask, and decoder.json of `headlab prune`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headlab.core import Table, read_json
from headlab.core.records import base_and_kind

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "players"
PAGE = ROOT / "docs" / "results-players.md"
NAMES = {
    "two": "Two languages, within 2 points",
    "two-three": "Two languages, within 3 points",
    "two-few-draws": "Two languages, ordered by 256 draws",
    "five": "Five languages, within 2 points",
    "fifteen": "Fifteen languages, within 2 points",
}
TABLES_KEPT = ("front-choice", "front-confirmed", "front")
INTERVAL = "{:+.1f} [{:+.1f}, {:+.1f}]"


# From what commands print to the files that are committed.


def collect(folder: Path) -> None:
    """Write a file for each front in a folder: what was found, without orders and groups."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        path = folder / f"front-{name}.json"
        if not path.is_file():
            continue
        answer = read_json(path)
        report = answer["report"]
        tables = [table for table in report["tables"] if table["name"] in TABLES_KEPT]
        kept = {
            "report": {**report, "tables": tables},
            "kept": kept_by_layer(answer["mask"]),
            "worth": None,
        }
        worth_path = folder / f"worth-{name}.json"
        if worth_path.is_file():
            kept["worth"] = read_json(worth_path)
        write(name, kept)
    decoder = folder / "decoder.json"
    if decoder.is_file():
        answer = read_json(decoder)
        write("decoder", {"languages": answer["languages"]})


def kept_by_layer(mask: Mapping[str, Any]) -> dict[str, list[list[int]]]:
    """For each stack, [kept, all] of every layer.

    Args:
        mask: As its file has it.
    """
    layers_by_stack = mask["kept"]
    if not isinstance(layers_by_stack, dict):
        (stack,) = mask["grid"]
        layers_by_stack = {stack: layers_by_stack}
    return {
        stack: [[sum(map(bool, layer)), len(layer)] for layer in layers]
        for stack, layers in layers_by_stack.items()
    }


def write(name: str, value: Any) -> None:
    """Write one file of results."""
    text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


# From the files to the page.


def rows_of(report: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The rows of a table of a report, as {column: cell}."""
    (table,) = (table for table in report["tables"] if table["name"] == name)
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def table_of_languages(report: Mapping[str, Any]) -> Table:
    """The chosen model on test, language by language."""
    rows = []
    for row in rows_of(report, "front-confirmed"):
        difference = None
        if row["low, points"] is not None:
            ends = (row["difference, points"], row["low, points"], row["high, points"])
            difference = INTERVAL.format(*ends)
        cells = (row["untouched, %"], row["accuracy, %"], difference, row["bound, points"])
        rows.append((row["language"], *cells, row["p of the loss"]))
    columns = (
        "language",
        "untouched, %",
        "accuracy, %",
        "difference",
        "lower bound",
        "p of the loss",
    )
    formats = ("", ".1f", ".1f", "", "+.1f", ".4f")
    return Table("test", "The chosen model on test", columns, formats, tuple(rows))


def table_of_points(report: Mapping[str, Any]) -> Table:
    """The models along the orders, on dev."""
    rows = []
    for row in rows_of(report, "front"):
        cells = (row["players removed"], row["parameters"], row["weakest language"])
        figures = (row["weakest, points"], row["lower bound, points"], row["mean, points"])
        rows.append((row["order"], *cells, *figures))
    columns = (
        "order",
        "players removed",
        "parameters",
        "weakest language",
        "its difference",
        "lower bound",
        "mean",
    )
    formats = ("", "d", ",d", "", "+.1f", "+.1f", "+.1f")
    return Table("points", "Models on dev", columns, formats, tuple(rows))


def table_of_times(worth: Mapping[str, Any]) -> Table:
    """How long the chosen model takes, beside the untouched one."""
    rows = []
    for speed in worth["speed"]:
        cells = [f"{speed['rows']}", speed["tokens"], speed["milliseconds"]]
        for model in ("shrunk", "cut"):
            ratio = speed[model]
            text = None
            if ratio is not None:
                text = f"{ratio['ratio']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
            cells.append(text)
        rows.append(tuple(cells))
    columns = ("batch size", "tokens", "untouched, ms", "without players", "and vocabulary cut")
    return Table("times", "Times", columns, ("", "d", ".1f", "", ""), tuple(rows))


def counted(worth: Mapping[str, Any]) -> str:
    """What was counted, in a sentence."""
    parameters, macs = worth["parameters"], worth["macs"]
    shares = [1 - macs["shrunk"] / macs["untouched"]]
    text = (
        f"Parameters: {parameters['untouched']:,} untouched, {parameters['shrunk']:,} without the "
        f"players. Multiply–accumulates at {worth['tokens']} tokens: {macs['untouched']:,} and "
        f"{macs['shrunk']:,}, "
    )
    return text + f"{shares[0]:.1%} fewer."


def kept_sentence(kept: Mapping[str, Any]) -> str:
    """How many of each layer's players stay, in a sentence."""
    parts = []
    for stack, layers in kept.items():
        counts = ", ".join(str(count) for count, _ in layers)
        largest = max(size for _, size in layers)
        kind = base_and_kind(stack)[1]
        word = "groups of neurons" if kind == "neurons" else kind
        parts.append(f"{word} (of {largest}): {counts}")
    return f"What stays in layers 0 to {len(layers) - 1}: {'; '.join(parts)}."


def sections() -> Iterator[str]:
    """The parts of the page, after the findings."""
    for name, title in NAMES.items():
        path = RESULTS / f"{name}.json"
        if not path.is_file():
            continue
        value = read_json(path)
        report = value["report"]
        languages = str(report["spec"]["task"]["language"]).replace(",", ", ")
        yield f"## {title}"
        yield f"Languages: {languages}. {report['notes'][0]} {report['notes'][1]}"
        yield kept_sentence(value["kept"])
        yield table_of_languages(report).markdown()
        if value["worth"] is not None:
            yield counted(value["worth"])
            yield table_of_times(value["worth"]).markdown()
        yield "Every model that was measured on dev:"
        yield table_of_points(report).markdown()


def page() -> str:
    """The page: findings, then a section for each front."""
    findings = (RESULTS / "findings.md").read_text(encoding="utf-8").strip()
    return "\n\n".join([findings, *sections()]) + "\n"


def main() -> None:
    """Collect results if asked to, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="?", choices=["collect"])
    parser.add_argument("folder", nargs="?", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "collect":
        collect(arguments.folder)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
