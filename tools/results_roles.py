"""Writes docs/results-roles.md from docs/results/roles, which `headlab reproduce` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headlab.core import Report, Table, read_json

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "roles"
PAGE = ROOT / "docs" / "results-roles.md"
SUMMARY = "voita-roles"
FINDINGS = RESULTS / "findings.md"
LONGEST = 60  # rows; of longer tables, only the rows of English are shown


def page(folder: Path = RESULTS) -> str:
    """The document."""
    value: Any = read_json(folder / f"{SUMMARY}.json")
    report = Report.from_json(value)
    lines = [
        (folder / FINDINGS.name).read_text(encoding="utf-8").rstrip(),
        "",
        "## How it was made",
        "",
    ]
    lines += [
        "All figures below were printed, and all files under `docs/results/roles` written, by",
        "",
        "```",
    ]
    lines += [
        f"{value['command']} --out docs/results/roles",
        "```",
        "",
        "and this page by `python tools/results_roles.py`.",
    ]
    for table in report.tables:
        lines += [
            "",
            f"## {table.title}",
            "",
            f"[CSV](results/roles/{SUMMARY}-{table.name}.csv)",
            "",
        ]
        lines += [shortened(table).markdown()]
    lines += ["", "## Notes", "", *(f"- {note}" for note in report.notes)]
    return "\n".join(lines).rstrip() + "\n"


def shortened(table: Table) -> Table:
    """The table, or only the rows of English if it is long."""
    if len(table.rows) <= LONGEST or "language" not in table.columns:
        return table
    language_column = table.columns.index("language")
    rows = tuple(row for row in table.rows if row[language_column] == "en")
    notes = (*table.notes, f"English only; all {len(table.rows)} rows are in the CSV file.")
    return Table(table.name, table.title, table.columns, table.formats, rows, notes)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
