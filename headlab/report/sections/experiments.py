"""Reports of experiments as sections: their figures, tables and notes, unchanged."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from headlab.core import HeadlabError, Report, part
from headlab.pictures import parts_note
from headlab.report.again import Again
from headlab.report.commands import Known
from headlab.report.figures import drawn
from headlab.report.parts import (
    MAX_VALUE_LENGTH,
    Item,
    Made,
    ReportFigure,
    Section,
    cost_facts,
    facts_of,
    model_of,
)
from headlab.roles import EXAMPLE_TOKENS, EXAMPLES
from headlab.roles import NAME as ROLES
from headlab.studies import STUDIES, earlier_scores_sentence, offered_experiments, with_paper

TITLES = {ROLES: "Roles of heads"}
PLACEHOLDERS = ("DIR", "FOLDER")  # in a command that a file names
PLACEHOLDERS_NOTE = "DIR and FOLDER stand for folders of yours."


def report_section(item: Item[Report], known: Known) -> Section:
    """The section of one report; figures that cannot be drawn are omitted, and a note says why.

    Args:
        item: The report.
        known: What the store of the report knows.
    """
    report = item.record
    title = _title(report)
    languages = str(part(report.spec, "task", "language") or "").replace(",", ", ")
    is_experiment = report.name in offered_experiments()
    figures, figure_notes = _figures(report)
    cost = cost_facts(report.example_forwards, report.seconds)
    return Section(
        f"{title}: {languages}" if languages else title,
        f"experiment {report.name}" if is_experiment else report.name,
        model_of(report.spec),
        figures,
        [table for table in with_paper(report) if table.rows],
        [*_question(report), *report.notes, *figure_notes, *_notes(report)],
        [Made(item.key, title, facts_of(report.spec, item.meta, cost))],
        _again(item, known),
    )


def _title(report: Report) -> str:
    study = STUDIES.get(report.name)
    if study:
        return study.title
    return TITLES.get(report.name, f"Report {report.name}")


def _figures(report: Report) -> tuple[list[ReportFigure], list[str]]:
    """The figures of a report, and why there are none if they cannot be drawn."""
    try:
        drawings_by_name = drawn(report)
    except HeadlabError as error:
        return [], [f"The figures are left out: {error}."]
    figures = [
        ReportFigure(drawings, name.replace("-", " "), wide=True)
        for name, drawings in drawings_by_name.items()
    ]
    return figures, []


def _question(report: Report) -> Iterator[str]:
    study = STUDIES.get(report.name)
    if study:
        yield f"{study.question} After {study.paper}."


def _notes(report: Report) -> Iterator[str]:
    """Which earlier scores it used, and what a part of a word in its examples is."""
    for note in (earlier_scores_sentence(report.spec), parts_note(_example_tokens(report))):
        if note:
            yield note


def _example_tokens(report: Report) -> Iterator[str]:
    """The tokens in a report's examples of roles."""
    for table in report.tables:
        if table.name != EXAMPLES:
            continue
        columns = [table.column(name) for name in EXAMPLE_TOKENS if name in table.columns]
        yield from (token for column in columns for token in column if isinstance(token, str))


def _again(item: Item[Report], known: Known) -> Again:
    """How a report is made again, by the command that its file names or else by its spec.

    Only commands of headlab are passed on.
    """
    command = item.command or item.record.spec.get("command")
    if not isinstance(command, str) or not command:
        return known.again("report", item.record.spec)
    try:
        words = tuple(shlex.split(command))
    except ValueError:  # unclosed quotation
        words = ()
    if words[:1] != ("headlab",):
        note = (
            "The file says that this made it, which is not a command of headlab's: "
            f"{command[:MAX_VALUE_LENGTH]}"
        )
        return Again((), (note,))
    has_placeholders = any(placeholder in words for placeholder in PLACEHOLDERS)
    return Again((words,), (PLACEHOLDERS_NOTE,) if has_placeholders else ())
