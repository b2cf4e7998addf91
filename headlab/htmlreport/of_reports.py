"""Reports of experiments as sections: their figures, tables and notes, as they are."""

from __future__ import annotations

import shlex

from headlab.errors import HeadlabError
from headlab.htmlreport.commands import Again, again
from headlab.htmlreport.facts import LONGEST, facts_of, model_of, spent, told
from headlab.htmlreport.figures import drawn
from headlab.htmlreport.parts import Figure, Item, Made, Section
from headlab.roles.table import NAME as ROLES
from headlab.studies.pareto import ABOUT as FRONT
from headlab.studies.table import EXPERIMENTS
from headlab.tables import Report

TITLES = {ROLES: "Roles of heads"}


def section(item: Item, report: Report) -> Section:
    """The section of one report; figures that cannot be drawn are left out, with the reason among the notes."""
    notes, figures = list(report.notes), list[Figure]()
    try:
        figures = [Figure(drawings, name.replace("-", " "), wide=True) for name, drawings in drawn(report).items()]
    except HeadlabError as error:
        notes.append(f"The figures are left out: {error}.")
    about = FRONT if report.name == FRONT.key else EXPERIMENTS.get(report.name)
    title = about.title if about else TITLES.get(report.name, f"Report {report.name}")
    languages = told(_languages(report))
    kind = f"experiment {report.name}" if report.name in EXPERIMENTS else report.name
    took = spent(report.example_forwards, report.seconds)
    if about:
        notes.insert(0, f"{about.question} After {about.paper}.")
    return Section(
        f"{title}: {languages}" if languages else title, kind, model_of(report.spec), figures,
        [table for table in report.tables if table.rows], notes,
        [Made(item.key, title, facts_of(report.spec, item.meta, took))], _again(item, report),
    )  # fmt: skip


def _languages(report: Report) -> str:
    task = report.spec.get("task")
    found = task.get("language") if isinstance(task, dict) else ""
    return str(found or "").replace(",", ", ")


def _again(item: Item, report: Report) -> Again:
    """The command that the file names, else that of the spec. Only a command of headlab's is passed on."""
    given = item.command or report.spec.get("command")
    if not isinstance(given, str) or not given:
        return again("report", report.spec)
    try:
        words = tuple(shlex.split(given))
    except ValueError:  # a quotation that does not end
        words = ()
    if words[:1] != ("headlab",):
        return Again((), (f"The file says that this made it, which is not a command of headlab's: {given[:LONGEST]}",))
    open_places = "DIR" in words or "FOLDER" in words
    return Again((words,), ("DIR and FOLDER stand for folders of yours.",) if open_places else ())
