"""What a page shows as one HTML file, as `headlab report` writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from headlab.core import HeadlabError, content_key, part
from headlab.dashboard.frame import Choice
from headlab.dashboard.panels.stored_reports import matching_reports
from headlab.dashboard.widgets import download, saved_name
from headlab.masks import Mask
from headlab.report.build import document, find, html, known_in
from headlab.report.parts import Item
from headlab.results import HeadScores, Store
from headlab.studies import STUDIES, offered_experiments

MAX_NAMED_LANGUAGES = 4  # languages that a file's name lists


def offer_page_report(
    choice: Choice, scores: Mapping[str, HeadScores], masks: Mapping[str, Mask] | None = None
) -> None:
    """The button that saves the report of what a page shows; none if that is neither scores nor masks.

    scores: by language.  masks: by name; reports on exactly the chosen languages come with them.
    """
    if scores or masks:
        download(
            "Report of this view (HTML)",
            partial(page_report, choice, tuple(scores.values()), masks or {}),
            page_report_name(choice, scores),
            "text/html",
            key="view-report",
            help="One file with maps, tables and the commands that reproduce them; it needs no network.",
        )


def page_report_name(choice: Choice, scores: Mapping[str, HeadScores]) -> str:
    """The name of its file: model, task, method, settings and languages."""
    names = scores or choice.languages
    languages_part = (
        "-".join(names) if len(names) <= MAX_NAMED_LANGUAGES else f"{len(names)}-languages"
    )
    setting = choice.variant or next((s.estimand for s in scores.values()), "")
    subject_parts = (
        choice.model,
        choice.task,
        choice.method,
        *([setting] if setting else []),
        languages_part,
    )
    return f"{saved_name('report', tuple(filter(None, subject_parts)))}.html"


def page_report(choice: Choice, scores: Sequence[HeadScores], masks: Mapping[str, Mask]) -> bytes:
    """The file; a sentence in its place where something cannot be reported on."""
    title = (
        f"{choice.model} on {choice.task}: {', '.join(choice.languages) or 'no language chosen'}"
    )
    try:
        store = Store()
        keys = [*(content_key(dict(s.spec)) for s in scores), *_reports_on(choice, store, scores)]
        items = [
            *(find(keys, store) if keys else ()),
            *(Item(mask, name) for name, mask in masks.items()),
        ]
        return html(document(items, title=title, known=known_in(store)))
    except HeadlabError as error:
        return html(document((), title=f"{title}. There is no report: {error}"))


def _reports_on(choice: Choice, store: Store, scores: Sequence[HeadScores]) -> Iterator[str]:
    """Keys of the newest report of each study on these weights and exactly these languages."""
    models = [s.spec.get("model") for s in scores]
    fitting_reports = [
        result
        for result in store.reports().results
        if result.record.spec.get("model") in models
        and sorted(str(part(result.record.spec, "task", "language")).split(","))
        == sorted(choice.languages)
    ]
    for name in dict.fromkeys((*offered_experiments(), *STUDIES)):
        yield from (result.key for result in matching_reports(fitting_reports, choice, name)[:1])
