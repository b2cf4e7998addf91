"""Writes docs/results-gates.md from docs/results/gates, which `headlab reproduce` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headlab.core import Report, clock_text, read_json

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "gates"
PAGE = ROOT / "docs" / "results-gates.md"
FINDINGS = RESULTS / "findings.md"
LONGEST = 60  # rows; longer tables are linked instead of shown
HEADINGS = {
    "gates-intents": "Encoder gates on voice commands, beside other choices of as many heads",
    "gates-xnli": "Encoder gates on NLI, beside other choices of as many heads",
    "gates-translation": "A translation model: three stacks of heads",
    "shim": "An All-attention language model, pruned for good",
}


def reports(folder: Path = RESULTS) -> dict[str, tuple[str, Report]]:
    """Commands and reports by the report's name, for those that exist, in the page's order."""
    commands_and_reports: dict[str, tuple[str, Report]] = {}
    for name in HEADINGS:
        path = folder / f"{name}.json"
        if path.is_file():
            value: Any = read_json(path)
            commands_and_reports[name] = (str(value["command"]), Report.from_json(value))
    return commands_and_reports


def page(folder: Path = RESULTS) -> str:
    """The document."""
    commands_and_reports = reports(folder)
    commands = dict.fromkeys(command for command, _ in commands_and_reports.values())
    lines = [FINDINGS.read_text(encoding="utf-8").rstrip(), "", "## How it was made", ""]
    lines += [
        "All figures below were printed, and all files under `docs/results/gates` written, by",
        "",
        "```",
    ]
    lines += [*(f"{command} --out docs/results/gates" for command in commands), "```", ""]
    lines += ["and this page by `python tools/results_gates.py`.", ""]
    for name, (_, report) in commands_and_reports.items():
        lines += [f"## {HEADINGS[name]}", ""]
        for table in report.tables:
            file = f"[CSV](results/gates/{table.name}.csv)"
            if len(table.rows) > LONGEST:
                lines += [f"{table.title}: {len(table.rows)} rows, {file}.", ""]
            else:
                lines += [f"**{table.title}** ({file})", "", table.markdown(), ""]
        lines += [*(f"- {note}" for note in report.notes), *took(report), ""]
    return "\n".join(lines).rstrip() + "\n"


def took(report: Report) -> list[str]:
    """A line on how long the report took, and on how many threads if it says so."""
    threads = f" on {report.spec['threads']} threads" if "threads" in report.spec else ""
    return [f"- It took {clock_text(report.seconds)} (hours, minutes, seconds){threads}."]


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
