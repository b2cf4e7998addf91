"""A report on the page: figures, tables to download, caveats, and how it was made; and a page as a report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import streamlit as st

from headlab.core import Head, HeadlabError, Report, Table, content_key, part
from headlab.dashboard.frame import Choice
from headlab.dashboard.names import head_from, head_key, head_words, page_link, plain
from headlab.dashboard.panels.attention import KINDS
from headlab.dashboard.panels.stored_reports import (
    StoredJob,
    differences,
    facts,
    label,
    made_at,
    matching,
    sizes_words,
)
from headlab.dashboard.widgets import (
    download,
    figure,
    saved_name,
    set_first_value,
    show_how_made,
    show_table,
)
from headlab.jobs.experiment import ExperimentJob
from headlab.masks import Mask
from headlab.plots import report_figures
from headlab.plots.report import heads_by_row
from headlab.report.again import Again
from headlab.report.build import document, find, html, known_in
from headlab.report.parts import Item
from headlab.results import HeadScores, LearnedGates, Result, Store
from headlab.studies.agreement import Compared, compare_languages
from headlab.studies.published import with_paper
from headlab.studies.table import STUDIES, earlier_scores, offered_experiments
from headlab.tasks.languages import language_titles

# From tables of heads to their attention: a language-agnostic and a language-specific head, side by side.

AGNOSTIC, SPECIFIC = KINDS
# The tables that list heads of each kind, the more certain first.
TABLES = {AGNOSTIC: ("heads-agnostic",), SPECIFIC: ("heads-specific", "heads-few")}


def kinds_in(tables: Sequence[Table]) -> dict[str, list[Head]]:
    """Heads by kind, from the first table of that kind that lists any."""
    found: dict[str, list[Head]] = {}
    for kind, names in TABLES.items():
        heads = (
            list(dict.fromkeys(heads_by_row(t))) for name in names for t in tables if t.name == name
        )
        if first := next(filter(None, heads), None):
            found[kind] = first
    return found


def draw_heads(tables: Sequence[Table]) -> None:
    """Widgets to choose a head of each kind, and a link to their attention; nothing if the tables list no heads."""
    kinds = kinds_in(tables)
    if not kinds:
        return
    st.markdown("##### What do they look at?")
    chosen: dict[str, str] = {}
    for (kind, heads), place in zip(kinds.items(), st.columns(len(kinds)), strict=True):
        keys = [head_key(head) for head in heads]
        chosen[kind] = place.selectbox(
            f"A language-{kind} head", keys, format_func=_words, key=f"look-{kind}"
        )
    what = "Their attention, side by side" if len(chosen) > 1 else "Its attention"
    named = languages_of(tables, chosen.get(SPECIFIC, ""))
    side = [name for name in named if name in st.session_state.get("langs", ())]
    more = {"side": side} if side else {}
    page_link(
        "attention", what, {"heads": list(chosen.values()), "apart": "true", **chosen, **more}
    )


def languages_of(tables: Sequence[Table], key: str) -> list[str]:
    """Two languages at most in which a head helps by these tables, then two in which it harms."""
    sides = ("positive languages", "negative languages")
    for table in tables:
        if table.name in TABLES[SPECIFIC] and all(side in table.columns for side in sides):
            for head, *named in zip(
                heads_by_row(table), *(table.column(side) for side in sides), strict=True
            ):
                if head_key(head) == key:
                    return [name for names in named for name in str(names).split(", ")[:2] if name]
    return []


def _words(key: str) -> str:
    return head_words(head_from(key))


FEW = 3  # up to this many figures are stacked; of more, the user chooses one


def pick(
    results: Sequence[Result[Report]],
    experiment: str,
    asked: str | None,
    weights: str | None = None,
) -> Result[Report]:
    """The report to show: the first, or the one chosen here or by the link.

    weights: fingerprint of the chosen model's weights, None if unknown.
    """
    by_key = {result.key: result for result in results}
    if len(results) == 1:
        return results[0]
    keys, key = ["", *by_key], f"report-{experiment}"
    if asked:
        set_first_value(key, asked)
    if st.session_state.get(key, "") not in keys:
        del st.session_state[key]
    newest = max(map(made_at, results)) == made_at(results[0])
    first = "The newest" if newest else "The newest of the chosen model in float32"

    def words(k: str) -> str:
        return label(by_key[k], weights) if k else first

    chosen = st.selectbox("Report", keys, format_func=words, key=key)
    return by_key.get(chosen, results[0])


def draw(result: Result[Report], form_job: ExperimentJob, weights: str | None) -> None:
    """Draw a report.

    Args:
        result: The report.
        form_job: The job chosen above; differences from it are stated.
        weights: Fingerprint of the chosen model's weights, None if unknown.
    """
    report = result.record
    st.caption(plain(label(result, weights)))
    if settings := differences(StoredJob.of(report), form_job, weights):
        st.info(
            "This report was made with other settings than those chosen above: "
            f"{plain('; '.join(settings))}."
        )
    for note in filter(None, (*report.notes, earlier_scores(report.spec))):
        st.markdown(f"- {plain(note)}")
    _figures(report)
    draw_heads(report.tables)
    for table in with_paper(report):
        show_table(table, result.key)
    _made(result)


def _figures(report: Report) -> None:
    try:
        figures = report_figures(report)
    except HeadlabError as error:
        st.warning(plain(f"The figures cannot be drawn: {error}."))
        return
    names = list(figures)
    if len(names) > FEW:
        names = [st.selectbox("Figure", names, key=f"figure-{report.name}")]
    for name in names:
        rest = name.removeprefix(report.name).strip("-").replace("-", " ")
        title = ", ".join(
            filter(
                None,
                [about.title if (about := STUDIES.get(report.name)) else report.name, rest],
            )
        )
        figure(figures[name], name, alt=title, about=_subject(report))


def _subject(report: Report) -> str:
    """What a report is on: languages, method and numbers of examples."""
    job = StoredJob.of(report).job
    method = [str(job.method)] if job.method else []
    return ", ".join([language_titles(job.languages_named), *method, sizes_words(job)])


def _made(result: Result[Report]) -> None:
    with st.expander("How it was made"):
        if about := STUDIES.get(result.record.name):
            st.caption(f"After {about.paper}.")
        commands = made_again("report", result)
        show_how_made(facts(result), commands, result.record, result.record.name, result.key)


def made_again(kind: str, result: Result[Report] | Result[LearnedGates]) -> Again:
    """The commands that make a stored result again, with paths of its files where they are noted.

    Args:
        kind: Of the result, as its spec names it.
        result: A report, or learned gates.
    """
    return known_in(Store()).again(kind, result.record.spec)


# What a page shows as one HTML file, as `headlab report` writes it.

NAMED = 4  # languages that a file's name lists


def save_view(
    choice: Choice, scores: Mapping[str, HeadScores], masks: Mapping[str, Mask] | None = None
) -> None:
    """The button that saves the report of what a page shows; none if that is neither scores nor masks.

    scores: by language.  masks: by name; reports on exactly the chosen languages come with them.
    """
    if scores or masks:
        download(
            "Report of this view (HTML)", partial(view, choice, tuple(scores.values()), masks or {}),
            view_name(choice, scores), "text/html", key="view-report",
            help="One file with maps, tables and the commands that reproduce them; it needs no network.",
        )  # fmt: skip


def view_name(choice: Choice, scores: Mapping[str, HeadScores]) -> str:
    """The name of its file: model, task, method, settings and languages."""
    names = scores or choice.languages
    named = "-".join(names) if len(names) <= NAMED else f"{len(names)}-languages"
    setting = choice.variant or next((s.estimand for s in scores.values()), "")
    of = (choice.model, choice.task, choice.method, *([setting] if setting else []), named)
    return f"{saved_name('report', tuple(filter(None, of)))}.html"


def view(choice: Choice, scores: Sequence[HeadScores], masks: Mapping[str, Mask]) -> bytes:
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
    kept = [
        result for result in store.reports().results
        if result.record.spec.get("model") in models
        and sorted(str(part(result.record.spec, "task", "language")).split(",")) == sorted(choice.languages)
    ]  # fmt: skip
    for name in dict.fromkeys((*offered_experiments(), *STUDIES)):
        yield from (result.key for result in matching(kept, choice, name)[:1])


# What languages share and where they differ: figures from the experiments' tables, cached by the scores.


def compared(scores: Mapping[str, HeadScores]) -> Compared:
    """Rank agreement of languages; resampled once per set of scores."""
    return _compared(tuple((name, _digest(s)) for name, s in scores.items()), dict(scores))


@st.cache_data(max_entries=16, show_spinner="Resampling heads …")
def _compared(digests: tuple[tuple[str, str], ...], _scores: Mapping[str, HeadScores]) -> Compared:
    return compare_languages(_scores)


def _digest(scores: HeadScores) -> str:
    halves = b"" if scores.halves is None else np.ascontiguousarray(scores.halves, "<f8").tobytes()
    return hashlib.sha256(scores.values_sha256().encode() + halves).hexdigest()


def noise_note(scores: Mapping[str, HeadScores]) -> str:
    """How far the correlations can be trusted if no noise ceiling is known, in words.

    Median half-width over the spread (standard deviation) of the values: near 0 the ranks are the heads' own; near 1 or
    above they are mostly sampling noise.
    """
    ratios = [
        float(np.median(s.half_width) / s.values.std())
        for s in scores.values()
        if s.half_width is not None and s.values.std()
    ]
    if not ratios:
        return "These scores have no intervals, so how much of ρ is noise is not known."
    noise = f"the median half-width is {np.median(ratios):.2f} of the spread of the values"
    return f"Sampling noise pulls ρ towards 0: {noise}."
