"""What a page shows as one HTML file, as `headlab report` writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headlab.core import HeadlabError, part
from headlab.dashboard.frame import Choice
from headlab.dashboard.panels.stored.result_labels import keys_of
from headlab.dashboard.panels.stored.stored_reports import matching_reports
from headlab.dashboard.widgets import file_stem_of
from headlab.masks import Mask
from headlab.report.build import document, find_results, html_of_document, known_in
from headlab.report.parts import Item
from headlab.results import HeadScores, Store, store_with_demo
from headlab.studies import STUDIES, offered_experiments

MAX_NAMED_LANGUAGES = 4
"""Languages that a file's name lists; of more it says how many."""


def page_report_name(choice: Choice, scores: Mapping[str, HeadScores]) -> str:
    """The name of its file: model, task, method, settings and languages."""
    names = scores or choice.languages
    languages_part = "-".join(names)
    if len(names) > MAX_NAMED_LANGUAGES:
        languages_part = f"{len(names)}-languages"
    first_scores = next(iter(scores.values()), None)
    estimand = "" if first_scores is None else first_scores.estimand
    variant = choice.variant or estimand
    subject_parts = (choice.model, choice.task, choice.method, variant, languages_part)
    return f"{file_stem_of('report', tuple(filter(None, subject_parts)))}.html"


def page_report(choice: Choice, scores: Sequence[HeadScores], masks: Mapping[str, Mask]) -> bytes:
    """The file; a sentence in its place where something cannot be reported on."""
    languages = ", ".join(choice.languages) or "no language chosen"
    title = f"{choice.model} on {choice.task}: {languages}"
    try:
        store = store_with_demo()
        keys = [*keys_of(scores), *_reports_on(choice, store, scores)]
        items = list(find_results(keys, store)) if keys else []
        items += [Item(mask, name) for name, mask in masks.items()]
        return html_of_document(document(items, title=title, known=known_in(store)))
    except HeadlabError as error:
        return html_of_document(document((), title=f"{title}. There is no report: {error}"))


def _reports_on(choice: Choice, store: Store, scores: Sequence[HeadScores]) -> Iterator[str]:
    """Keys of the newest report of each study on these weights and exactly these languages."""
    models = [language_scores.spec.get("model") for language_scores in scores]
    fitting_reports = []
    for result in store.reports().results:
        spec = result.record.spec
        report_languages = str(part(spec, "task", "language")).split(",")
        is_on_languages = sorted(report_languages) == sorted(choice.languages)
        if spec.get("model") in models and is_on_languages:
            fitting_reports.append(result)
    for name in dict.fromkeys((*offered_experiments(), *STUDIES)):
        for newest in matching_reports(fitting_reports, choice, name)[:1]:
            yield newest.key
