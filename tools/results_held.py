"""Writes docs/results-held.md from docs/results/held, which `headlab reproduce held` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headlab.core import Report, Table, read_json
from headlab.studies.published import comparison_with_paper, with_paper
from headlab.studies.table import earlier_scores_sentence

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "held"
PAGE = ROOT / "docs" / "results-held.md"
FINDINGS = RESULTS / "findings.md"
PARTS = {"xnli": "XNLI", "udpos": "Universal part-of-speech tags"}
LONGEST = 40  # rows; longer tables are linked instead of shown
# What each experiment is in the paper.
HEADINGS = {
    "agreement": "Figures 1 and 2: do languages rank the heads alike?",
    "heads": "Section 5: heads of all languages, heads of one",
    "separators": "Section 5: attention to separators",
    "targeted": "Table 2: targeted pruning, the harmful heads",
    "targeted-10": "Table 2 at ten heads in every language",
    "transfer": "Table 3: zero-shot pruning, the harmful heads",
    "transfer-10": "Table 3 at ten heads in every language",
    "gap": "Dev against test, the harmful heads",
    "gap-10": "Dev against test at ten heads",
    "iterative": "Figure 3: iterative pruning",
}


def reports(folder: Path = RESULTS) -> dict[str, tuple[str, Report]]:
    """Commands and reports by the file's name, for every report in a folder."""
    commands_and_reports: dict[str, tuple[str, Report]] = {}
    for path in sorted(folder.glob("*.json")):
        value: Any = read_json(path)
        commands_and_reports[path.stem] = (str(value["command"]), Report.from_json(value))
    return commands_and_reports


def page(folder: Path = RESULTS) -> str:
    """The document."""
    commands_and_reports = reports(folder)
    commands = sorted({command for command, _ in commands_and_reports.values()})
    lines = [FINDINGS.read_text(encoding="utf-8").rstrip(), "", "## How it was made", ""]
    lines += [
        "All figures below were printed, and all files under `docs/results/held` written, by",
        "",
        "```",
    ]
    lines += [*(f"{command} --out docs/results/held" for command in commands), "```", ""]
    lines += [
        "and this page by `python tools/results_held.py`.",
        "",
        *settings(commands_and_reports),
    ]
    for part, title in PARTS.items():
        lines += [f"## {title}", ""]
        for key, heading in HEADINGS.items():
            name = f"{part}-{key}"
            if name in commands_and_reports:
                _, report = commands_and_reports[name]
                lines += [f"### {title}: {heading}", "", *section(name, report, folder)]
    return "\n".join(lines).rstrip() + "\n"


def settings(commands_and_reports: dict[str, tuple[str, Report]]) -> list[str]:
    """The models and data that the reports were computed on, a row for each task."""
    rows = []
    for part in PARTS:
        specs = [
            report.spec
            for name, (_, report) in commands_and_reports.items()
            if name.startswith(f"{part}-")
        ]
        if specs:
            widest = max(specs, key=lambda spec: len(spec["task"]["language"]))
            model = widest["model"]
            dtype = model.get("dtype", "float32")
            sizes = widest["task"]["sizes"]
            rows.append(
                (
                    part,
                    f"{model['name']} ({model['fingerprint'][:12]}, {dtype})",
                    widest["task"]["language"].replace(",", " "),
                    max(sizes["dev"]),
                    max(sizes["test"]),
                    widest["seed"],
                )
            )
    columns = ("task", "model", "languages", "dev examples", "test examples", "seed")
    return [
        Table("settings", "Settings", columns, ("", "", "", "d", "d", "d"), tuple(rows)).markdown(),
        "",
    ]


def section(name: str, report: Report, folder: Path) -> list[str]:
    """Figures, tables and notes of one report."""
    lines: list[str] = []
    for figure in sorted((folder / name).glob("*.svg")):
        lines += [f"![{figure.stem}](results/held/{name}/{figure.name})", ""]
    for table in with_paper(report):
        link = f"[CSV](results/held/{name}-{table.name}.csv)"
        if len(table.rows) > LONGEST:
            lines += [f"{table.title}: {len(table.rows)} rows, {link}.", ""]
        else:
            lines += [f"**{table.title}** ({link})", "", table.markdown(), ""]
    notes = filter(None, (*report.notes, earlier_scores_sentence(report.spec)))
    return [*lines, *(f"- {note}" for note in notes), ""]


def main() -> None:
    """Write the page, and the comparisons with the paper that it links as CSV."""
    PAGE.write_text(page(), encoding="utf-8")
    for name, (_, report) in reports().items():
        comparison = comparison_with_paper(report)
        if comparison:
            path = RESULTS / f"{name}-{comparison.name}.csv"
            path.write_text(comparison.csv(), encoding="utf-8")


if __name__ == "__main__":
    main()
