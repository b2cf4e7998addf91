"""The list of a mask's changed answers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd
import streamlit as st

from headlab.core import CHANGE_KINDS
from headlab.dashboard.frame import known_task, wait_for_result, worker_client
from headlab.dashboard.names import CHANGE_WORDS, head_key, language_title
from headlab.dashboard.panels.heads.attended_sentences import (
    MAX_HEADS,
    MAX_TEXT_CHARACTERS,
    OWN_SENTENCES,
    PAIR_SEPARATOR,
    side_by_side_params,
)
from headlab.dashboard.panels.masks import AccuracyQuestion, KnownFigures, mask_file_name
from headlab.dashboard.widgets import (
    PageState,
    button,
    download_button,
    no_row_action,
    table_height,
    uninterrupted,
)
from headlab.jobs import CommandContext, subject_words
from headlab.tasks import declaration_of
from headlab.worker import Changed, Client

ALL_LABELS = "all labels"

LABEL_LIST = "changed-label"
"""Widget key of the list of labels."""

COLUMN_TITLES = {
    "text": "Text",
    "pair": "Second text",
    "word": "Word",
    "label": "Right label",
    "before": "Before",
    "p_before": "Probability before",
    "after": "After",
    "p_after": "Probability after",
}

PROBABILITY_HELP = "The probability that the model gives its own answer, among the task's labels"


@dataclass
class ListedAnswers(PageState):
    """Whose changed answers the pages of one session list.

    Attributes:
        question_key: Of the question and language whose list was asked for; empty if none was.
    """

    key = "_changed"
    question_key: tuple[str, ...] = ()


def draw_changed_answers(
    question: AccuracyQuestion, languages: Sequence[str], known_figures: KnownFigures
) -> None:
    """The list of a language's changed answers, once it is asked for.

    A chosen row opens the Attention page.

    Args:
        question: About the current mask.
        languages: Codes of the chosen languages.
        known_figures: The final figures of this session.
    """
    with st.expander("Which sentences changed", icon=":material/difference:"):
        measured_languages = [name for name in languages if question.key(name) in known_figures]
        if question.mask is None or not measured_languages:
            st.caption(
                "Lists the sentences that the mask turns right or wrong, once an accuracy with it "
                "is final."
            )
            return
        if not has_labels(question.task):
            st.caption("This task has no labels, so its answers cannot change from right to wrong.")
            return
        language = measured_languages[0]
        if len(measured_languages) > 1:
            language = st.selectbox(
                "Language", measured_languages, format_func=language_title, key="changed-language"
            )
        if ListedAnswers.of_session().question_key != question.key(language):
            figure = known_figures[question.key(language)]
            button_label = (
                f"List {figure.flipped_right} now right and {figure.flipped_wrong} now wrong"
            )
            button(
                button_label,
                key="changed-list",
                icon="list",
                on_press=_list_answers_of,
                args=(question.key(language),),
            )
            return
        with st.spinner("Asking the worker …"):
            answers = changed_answers(worker_client(), question.key(language), question, language)
        _draw_answers(answers, question)


def has_labels(name: str) -> bool:
    """Whether a task has answers with names, or is not known on this machine."""
    task = known_task(name)
    return task is None or task.has_named_answers


def _list_answers_of(key: tuple[str, ...]) -> None:
    ListedAnswers.of_session().question_key = key


@st.cache_data(max_entries=16, show_spinner=False)
def changed_answers(
    _client: Client, key: tuple[str, ...], _question: AccuracyQuestion, language: str
) -> Changed:
    """A language's changed answers, from the worker.

    Args:
        _client: Of the worker.
        key: What the answers depend on.
        _question: About a mask.
        language: Whose examples are answered.
    """
    question = _question
    mask = question.mask
    assert mask is not None
    return wait_for_result(
        lambda: _client.changes(
            question.model,
            question.task,
            language,
            mask,
            question.split,
            question.size,
            label_map=question.label_map,
            ablation=question.ablation,
        )
    )


def _draw_answers(changed_answers: Changed, question: AccuracyQuestion) -> None:
    language = changed_answers.language
    total = changed_answers.total
    rows = pd.DataFrame(changed_answers.answers, columns=["id", "kind", *COLUMN_TITLES])
    if total > len(rows):
        st.caption(
            f"The first {len(rows):,} of {total:,} changed answers. To write all, export the mask "
            "and run in its folder:"
        )
        st.code(all_changes_command(question, language), language="bash", wrap_lines=True)
    counts = {kind: int((rows["kind"] == kind).sum()) for kind in CHANGE_KINDS}
    kind_place, label_place = st.columns([3, 2])
    kind = kind_place.radio(
        "Answers",
        CHANGE_KINDS,
        format_func=lambda name: f"{CHANGE_WORDS[name]}: {counts[name]}",
        horizontal=True,
        key="changed-kind",
    )
    labels = [ALL_LABELS, *sorted(rows["label"].unique())]
    if st.session_state.get(LABEL_LIST) not in labels:  # of another language or mask
        st.session_state.pop(LABEL_LIST, None)
    label = label_place.selectbox("Right label", labels, key=LABEL_LIST)
    listed_answers = rows[rows["kind"] == kind]
    if label != ALL_LABELS:
        listed_answers = listed_answers[listed_answers["label"] == label]
    if listed_answers.empty:
        st.caption("None.")
    else:
        _draw_answers_table(listed_answers, question)
    subject = "all of them" if total == len(rows) else "these"
    name = f"changes-{language}-{question.split}.csv"
    download_button(
        f"Download {subject} as CSV", rows.to_csv(index=False), name, "text/csv", key="changed-csv"
    )


def all_changes_command(question: AccuracyQuestion, language: str) -> str:
    """The command that writes every answer that a mask changes in a language.

    It reads the mask's exported file.
    """
    assert question.mask is not None
    declaration = declaration_of(question.task)
    words = subject_words(
        CommandContext(task=None if declaration is None else str(declaration)),
        model=question.model,
        task=question.task,
        label_map=question.label_map,
        languages=[language],
    )
    words += ["--mask", mask_file_name(question.mask, question.model), "--split", question.split]
    words += ["--size", str(question.size)]
    if question.ablation != question.mask.ablation and question.mask.ablation is not None:
        words += ["--ablation", question.ablation]
    words += ["--changes", f"changes-{language}-{question.split}.csv"]
    return shlex.join(["headlab", "evaluate", *words])


def _draw_answers_table(answers: pd.DataFrame, question: AccuracyQuestion) -> None:
    percent = st.column_config.NumberColumn(format="percent", help=PROBABILITY_HELP)
    table = (
        answers[list(COLUMN_TITLES)].dropna(axis="columns", how="all").rename(columns=COLUMN_TITLES)
    )
    assert question.mask is not None
    opens_attention = question.mask.grid.has_only_heads
    event = st.dataframe(
        table,
        hide_index=True,
        key=f"changed-{answers['id'].iloc[0]}-{len(answers)}",
        on_select=uninterrupted(no_row_action) if opens_attention else "ignore",
        selection_mode="single-row",
        height=table_height(len(answers)),
        column_config={
            COLUMN_TITLES["text"]: st.column_config.TextColumn(width="medium"),
            COLUMN_TITLES["p_before"]: percent,
            COLUMN_TITLES["p_after"]: percent,
        },
    )
    if not opens_attention:
        return
    removed_count = len(question.mask.removed)
    limit = f", the first {MAX_HEADS} of {removed_count}" if removed_count > MAX_HEADS else ""
    st.caption(f"Tick a row to see what the heads that are off look at in its sentence{limit}.")
    ticked_rows = cast("Any", event)["selection"]["rows"]  # rows can be ticked then
    if ticked_rows:
        answer = answers.iloc[ticked_rows[0]].to_dict()
        st.switch_page("pages/attention.py", query_params=attention_params(answer, question))


def attention_params(row: Mapping[str, Any], question: AccuracyQuestion) -> dict[str, Any]:
    """Parameters of the link to the Attention page with a sentence and the heads that are off.

    Args:
        row: A changed answer, by column.
        question: About the mask.
    """
    assert question.mask is not None
    heads = [head_key(head) for head in question.mask.removed[:MAX_HEADS]]
    texts = []
    for text in (row["text"], row["pair"]):
        if isinstance(text, str):
            texts.append(" ".join(text.split()))
    return {
        "source": OWN_SENTENCES,
        "text": PAIR_SEPARATOR.join(texts)[:MAX_TEXT_CHARACTERS],
        **side_by_side_params(heads),
    }
