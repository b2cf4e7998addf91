"""Writes docs/results-players.md: smaller models without heads, neurons and pieces.

    python tools/results_players.py collect FOLDER   # the files of commands' output, and the page
    python tools/results_players.py                  # the page alone

The page prints the commands. FOLDER holds what they print with --json: front-NAME.json of `headlab
front`, worth-NAME.json of `headlab worth` on its mask, and decoder.json of `headlab prune`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headlab.core import Floats, Table, read_json
from headlab.core.records import base_and_kind

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "players"
PAGE = ROOT / "docs" / "results-players.md"
NAMES = {
    "two": "Two languages, within 2 points",
    "two-three": "Two languages, within 3 points",
    "two-few-draws": "Two languages, ordered by 256 draws",
    "two-shapley": "Two languages, ordered by 128 samples of shapley",
    "two-weakest": "Two languages, in the order of the weakest",
    "five": "Five languages, within 2 points",
    "fifteen": "Fifteen languages, within 2 points",
    "xnli": "XNLI in German and Swahili, within 2 points",
}
ABLATIONS = ("zero", "resample", "counterfactual")
ENCODER_ABLATIONS = ("zero", "mean", "resample")
ENCODER_REMOVED = 10
GROUP_TASKS = ("repeats", "ioi", "lm")
RANDOM = "random"
HEADS_A_LAYER = 9
"""Of SmolLM2."""
LISTED = 5
"""Heads that tables list."""
TOP = 10
"""Heads that are compared with those of zeroing."""
TABLES_KEPT = ("front-choice", "front-confirmed", "front")
INTERVAL = "{:+.1f} [{:+.1f}, {:+.1f}]"
NATS = "{:+.2f} [{:+.2f}, {:+.2f}]"


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
        model = report["spec"]["model"]
        model["name"] = Path(model["name"]).name  # without the folder that it was in
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
    figures_by_task = {}
    for task in GROUP_TASKS:
        pruned, scores = folder / f"groups-{task}.json", folder / f"group-scores-{task}.json"
        if pruned.is_file() and scores.is_file():
            figures_by_task[task] = {
                "pruned": read_json(pruned)["languages"]["en"],
                "scores": scores_of_groups(read_json(scores)["languages"]["en"]),
            }
    if figures_by_task:
        write("groups", figures_by_task)
    decoder = folder / "decoder.json"
    if decoder.is_file():
        answer = read_json(decoder)
        write("decoder", {"languages": answer["languages"]})


def scores_of_groups(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What the page needs of what `headlab score --json` prints."""
    return {key: answer[key] for key in ("values", "low", "high", "examples", "unit")}


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


# What stands in closed players' places: the files that tools/measure_stand_ins.py writes.


def numbers_of(scores: Mapping[str, Any], name: str) -> Floats:
    """A figure of every head, float [head]."""
    return np.array(scores[name], dtype=np.float64)


def table_of_rankings(task: Mapping[str, Any]) -> Table:
    """Which heads each ablation names on a task, beside those of zeroing."""
    rows = []
    zeroed = numbers_of(task["scores"]["zero"], "values")
    for ablation in (name for name in ABLATIONS if name in task["scores"]):
        scores = task["scores"][ablation]
        values = numbers_of(scores, "values")
        order = np.argsort(-values, kind="stable")
        strongest = ", ".join(
            f"{head // HEADS_A_LAYER}.{head % HEADS_A_LAYER} ({values[head]:.2f})"
            for head in order[:LISTED].tolist()
        )
        of_zeroing = np.argsort(-zeroed, kind="stable")[:TOP]
        rows.append(
            (
                ablation,
                int((numbers_of(scores, "low") > 0).sum()),
                int((numbers_of(scores, "high") < 0).sum()),
                float(np.corrcoef(zeroed, values)[0, 1]),
                int(np.isin(order[:TOP], of_zeroing).sum()),
                strongest,
            )
        )
    columns = (
        "in its place",
        "help",
        "harm",
        "correlation with zero",
        f"of zero's first {TOP}",
        "strongest (nats)",
    )
    return Table("rankings", "Heads named", columns, ("", "d", "d", ".2f", "d", ""), tuple(rows))


def table_of_removals(task: Mapping[str, Any]) -> Table:
    """What removing the lowest of each ranking changes on test, by what stands in their place."""
    stand_ins = [name for name in ABLATIONS if name in task["scores"]]
    rows = []
    counts = sorted({removal["removed"] for removal in task["removals"]})
    for count in counts:
        for ranking in [*stand_ins, RANDOM]:
            cells = []
            for stand_in in stand_ins:
                changes = [
                    removal
                    for removal in task["removals"]
                    if removal["removed"] == count
                    and removal["stand_in"] == stand_in
                    and removal["ranking"].split(" ")[0] == ranking
                ]
                cells.append(text_of_changes(changes))
            rows.append((count, ranking, *cells))
    columns = ("removed", "lowest by", *(f"then {name} in their place" for name in stand_ins))
    return Table("removals", "Removed", columns, ("d", "", *("" for _ in stand_ins)), tuple(rows))


def text_of_changes(changes: Sequence[Mapping[str, float]]) -> str:
    """A change in nats with its interval and in points; of several, the mean and the ends."""
    if len(changes) == 1:
        (change,) = changes
        ends = (change["nats"], change["nats_low"], change["nats_high"])
        return f"{NATS.format(*ends)}, {change['points']:+.1f}"
    nats = [change["nats"] for change in changes]
    points = [change["points"] for change in changes]
    return (
        f"{np.mean(nats):+.2f} ({min(nats):+.2f} to {max(nats):+.2f}), "
        f"{np.mean(points):+.1f} ({min(points):+.1f} to {max(points):+.1f})"
    )


def table_of_streaming(streaming: Mapping[str, Any]) -> Table:
    """Half of the groups streaming, by how they were chosen."""
    rows = []
    names = [name for name in streaming["choices"] if not name.startswith(RANDOM)]
    for name in sorted(names, key=lambda name: -streaming["choices"][name]["nats"]):
        choice = streaming["choices"][name]
        above = streaming["against_random"].get(name)
        difference = None
        if above is not None:
            difference = NATS.format(above["nats"], above["low"], above["high"])
        rows.append(
            (
                name,
                100 * streaming["untouched"]["accuracy"] + choice["points"],
                INTERVAL.format(*(choice[key] for key in ("points", "points_low", "points_high"))),
                NATS.format(*(choice[key] for key in ("nats", "nats_low", "nats_high"))),
                difference,
                None if above is None else above["draws_as_good"],
            )
        )
    columns = (
        "chosen by",
        "accuracy, %",
        "against untouched, points",
        "nats",
        "above random, nats",
        "draws as good",
    )
    return Table("streaming", "Streaming", columns, ("", ".1f", "", "", "", "d"), tuple(rows))


def sentence_of_random_streaming(streaming: Mapping[str, Any]) -> str:
    """What the random choices give, in a sentence."""
    drawn = [choice for name, choice in streaming["choices"].items() if name.startswith(RANDOM)]
    untouched = streaming["untouched"]
    accuracies = [100 * untouched["accuracy"] + choice["points"] for choice in drawn]
    nats = [choice["nats"] for choice in drawn]
    return (
        f"{streaming['streaming_groups']} of {streaming['groups']} groups stream with sizes "
        f"{streaming['sizes']}; texts of {streaming['tokens']:.0f} tokens; untouched "
        f"{100 * untouched['accuracy']:.1f} %. {len(drawn)} random draws: accuracy "
        f"{np.mean(accuracies):.1f} % ({min(accuracies):.1f} to {max(accuracies):.1f}), nats "
        f"{np.mean(nats):+.2f} ({min(nats):+.2f} to {max(nats):+.2f})."
    )


def table_of_ablations_by_language(languages: Mapping[str, Any]) -> Table:
    """An encoder's heads by language under each ablation, and what removing the lowest does."""
    rows = []
    for language, entry in languages.items():
        scores = entry["scores"]
        zeroed = numbers_of(scores["zero"], "values")
        cells: list[Any] = []
        for ablation in ENCODER_ABLATIONS:
            values = numbers_of(scores[ablation], "values")
            removal = entry["removals"][ablation]
            if ablation != "zero":
                cells.append(float(np.corrcoef(zeroed, values)[0, 1]))
            cells.append(INTERVAL.format(removal["points"], removal["low"], removal["high"]))
        rows.append((language, *cells))
    columns = ["language"]
    for ablation in ENCODER_ABLATIONS:
        if ablation != "zero":
            columns.append(f"{ablation}: correlation with zero")
        columns.append(f"{ablation}: lowest {ENCODER_REMOVED} zeroed, points")
    formats = tuple(".2f" if "correlation" in column else "" for column in columns)
    return Table("languages", "By language", tuple(columns), formats, tuple(rows))


def table_of_groups(figures_by_task: Mapping[str, Any]) -> Table:
    """A decoder's key-value groups by task: which help or harm, and the lowest quarter removed."""
    rows = []
    for task, figures in figures_by_task.items():
        scores, pruned = figures["scores"], figures["pruned"]
        values = np.array(scores["values"])
        strongest = []
        for place in np.argsort(-values, axis=None, kind="stable")[:LISTED]:
            layer, group = np.unravel_index(place, values.shape)
            strongest.append(f"{layer}.{group} ({values[layer, group]:.2f})")
        change = (100 * pruned[key] for key in ("difference", "low", "high"))
        rows.append(
            (
                task,
                int((np.array(scores["low"]) > 0).sum()),
                int((np.array(scores["high"]) < 0).sum()),
                ", ".join(strongest),
                100 * pruned["baseline"],
                100 * pruned["accuracy"],
                INTERVAL.format(*change),
            )
        )
    columns = (
        "task",
        "help",
        "harm",
        "strongest (nats)",
        "untouched, %",
        "without 22 groups, %",
        "difference, points",
    )
    return Table("groups", "Groups", columns, ("", "d", "d", "", ".1f", ".1f", ""), tuple(rows))


def stand_in_sections() -> Iterator[str]:
    """The parts of the page about what stands in closed players' places, after their findings."""
    path = RESULTS / "rankings.json"
    if path.is_file():
        for name, task in read_json(path).items():
            untouched = task["untouched"]
            yield f"### SmolLM2 on `{name}`"
            yield (
                f"{task['examples']} examples of dev, {task['test_examples']} of test; untouched on "
                f"test {100 * untouched['accuracy']:.1f} %, {untouched['nats']:.2f} nats an answer."
            )
            yield table_of_rankings(task).markdown()
            yield table_of_removals(task).markdown()
    path = RESULTS / "streaming.json"
    if path.is_file():
        streaming = read_json(path)
        yield "### Half of the key–value groups streaming, on `needle`"
        yield sentence_of_random_streaming(streaming)
        yield table_of_streaming(streaming).markdown()
    path = RESULTS / "languages.json"
    if path.is_file():
        yield "### The encoder's heads in 15 languages"
        yield (
            "Shapley values (`shapley-top50`) from 64 samples a head on 512 examples of dev; then the ten "
            "heads of the lowest value removed, with zero in their place whatever ranked them, on 500 "
            "examples of test."
        )
        yield table_of_ablations_by_language(read_json(path)).markdown()


def sections() -> Iterator[str]:
    """The parts of the page, after the findings."""
    path = RESULTS / "groups.json"
    if path.is_file():
        yield "## SmolLM2's key–value groups"
        yield (
            "Each of 90 groups left out alone, in nats, on 32 examples of dev; the 22 lowest removed, "
            "on 64 examples of test. *Help* and *harm*: by each group's own interval."
        )
        yield table_of_groups(read_json(path)).markdown()
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
    stand_ins = (RESULTS / "stand-ins" / "findings.md").read_text(encoding="utf-8").strip()
    return "\n\n".join([findings, *sections(), stand_ins, *stand_in_sections()]) + "\n"


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
