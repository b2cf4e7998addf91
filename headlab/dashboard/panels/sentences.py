"""Lists of sentences for the Attention page: which ones a mask changes, and where else a head does that."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from headlab.core import CHANGES, NOTHING
from headlab.dashboard.frame import Choice, known_task, wait_for_result, worker_client
from headlab.dashboard.names import counted, head_from, head_key, language_title, plain
from headlab.dashboard.panels.accuracy import Known, Question
from headlab.dashboard.panels.attention import (
    MAX_CHARACTERS,
    MAX_HEADS,
    OWN,
    PAIR,
    TASK,
    Sentence,
    by_title,
    examples_of,
)
from headlab.dashboard.panels.masks import file_name
from headlab.dashboard.widgets import (
    button,
    download,
    no_row_action,
    set_widget,
    table_height,
    uninterrupted,
)
from headlab.jobs.command import Surroundings, where_words
from headlab.pictures import MINUS
from headlab.plots.matrices import GIVEN, LINKS, Panel, strongest_link, visible
from headlab.tasks import declaration_of
from headlab.worker.client import Client
from headlab.worker.schemas import Answer, AttentionRequest, Changed, Weights

# The list of a mask's changed answers on the Prune page.

ASKED = "_changed"
KINDS = dict(zip(CHANGES, ("now right", "now wrong", "still wrong, differently"), strict=True))
EVERY = "all labels"
SHOWN = {
    "text": "Text", "pair": "Second text", "word": "Word", "label": "Right label", "before": "Before",
    "p_before": "Probability before", "after": "After", "p_after": "Probability after",
}  # fmt: skip
HELP = "The probability that the model gives its own answer, among the task's labels"


def draw(question: Question, languages: Sequence[str], known: Known) -> None:
    """The list of a language's changed answers, once it is asked for; a chosen row opens the Attention page."""
    with st.expander("Which sentences changed", icon=":material/difference:"):
        final = [name for name in languages if question.key(name) in known]
        if question.mask is None or not final:
            st.caption(
                "Lists the sentences that the mask turns right or wrong, once an accuracy with it is final."
            )
            return
        if not has_labels(question.task):
            st.caption("This task has no labels, so its answers cannot change from right to wrong.")
            return
        language = final[0]
        if len(final) > 1:
            language = st.selectbox(
                "Language", final, format_func=language_title, key="changed-language"
            )
        if st.session_state.get(ASKED) != question.key(language):
            figure = known[question.key(language)]
            words = f"List {figure.flipped_right} now right and {figure.flipped_wrong} now wrong"
            button(
                words,
                key="changed-list",
                icon="list",
                on_press=_ask,
                args=(question.key(language),),
            )
            return
        with st.spinner("Asking the worker …"):
            answers = changed(worker_client(), question.key(language), question, language)
        _list(answers, question)


def has_labels(name: str) -> bool:
    """Whether a task has answers with names, or is not known on this machine."""
    found = known_task(name)
    return found is None or found.named


def _ask(key: tuple[str, ...]) -> None:
    st.session_state[ASKED] = key


@st.cache_data(max_entries=16, show_spinner=False)
def changed(_client: Client, key: tuple[str, ...], _question: Question, language: str) -> Changed:
    """A language's changed answers, from the worker. key: what they depend on."""
    asked, mask = _question, _question.mask
    assert mask is not None
    return wait_for_result(
        lambda: _client.changes(
            asked.model,
            asked.task,
            language,
            mask,
            asked.split,
            asked.size,
            label_map=asked.label_map,
        )
    )


def _list(changed_answers: Changed, question: Question) -> None:
    language = changed_answers.language
    total = changed_answers.total
    rows = pd.DataFrame(changed_answers.answers, columns=["id", "kind", *SHOWN])
    if total > len(rows):
        st.caption(
            f"The first {len(rows):,} of {total:,} changed answers. To write all, export the mask and run in "
            "its folder:"
        )
        st.code(all_changes_command(question, language), language="bash", wrap_lines=True)
    counts = {kind: int((rows["kind"] == kind).sum()) for kind in CHANGES}
    left, right = st.columns([3, 2])
    kind = left.radio(
        "Answers",
        CHANGES,
        format_func=lambda name: f"{KINDS[name]}: {counts[name]}",
        horizontal=True,
        key="changed-kind",
    )
    labels = [EVERY, *sorted(rows["label"].unique())]
    if st.session_state.get("changed-label") not in labels:  # of another language or mask
        st.session_state.pop("changed-label", None)
    label = right.selectbox("Right label", labels, key="changed-label")
    part = rows[(rows["kind"] == kind) & ((rows["label"] == label) | (label == EVERY))]
    if part.empty:
        st.caption("None.")
    else:
        _table(part, question)
    which = "all of them" if total == len(rows) else "these"
    name = f"changes-{language}-{question.split}.csv"
    download(
        f"Download {which} as CSV", rows.to_csv(index=False), name, "text/csv", key="changed-csv"
    )


def all_changes_command(question: Question, language: str) -> str:
    """The command that writes every answer that a mask changes in a language, with the mask's exported file."""
    assert question.mask is not None
    declaration = declaration_of(question.task)
    words = where_words(
        Surroundings(task=None if declaration is None else str(declaration)),
        model=question.model,
        task=question.task,
        label_map=question.label_map,
        languages=[language],
    )
    words += ["--mask", file_name(question.mask, question.model), "--split", question.split]
    words += ["--size", str(question.size)]
    words += ["--changes", f"changes-{language}-{question.split}.csv"]
    return shlex.join(["headlab", "evaluate", *words])


def _table(part: pd.DataFrame, question: Question) -> None:
    percent = st.column_config.NumberColumn(format="percent", help=HELP)
    shown = part[list(SHOWN)].dropna(axis="columns", how="all").rename(columns=SHOWN)
    picked = st.dataframe(
        shown, hide_index=True, key=f"changed-{part['id'].iloc[0]}-{len(part)}", on_select=uninterrupted(no_row_action),
        selection_mode="single-row", height=table_height(len(part)),
        column_config={
            SHOWN["text"]: st.column_config.TextColumn(width="medium"),
            SHOWN["p_before"]: percent,
            SHOWN["p_after"]: percent,
        },
    )  # fmt: skip
    assert question.mask is not None
    off = len(question.mask.removed)
    some = f", the first {MAX_HEADS} of {off}" if off > MAX_HEADS else ""
    st.caption(f"Tick a row to see what the heads that are off look at in its sentence{some}.")
    if chosen := picked["selection"]["rows"]:
        st.switch_page(
            "pages/attention.py", query_params=look_at(part.iloc[chosen[0]].to_dict(), question)
        )


def look_at(row: Mapping[str, Any], question: Question) -> dict[str, Any]:
    """The link parameters of the Attention page for an answer's sentence and the heads that are off."""
    assert question.mask is not None
    heads = [head_key(head) for head in question.mask.removed[:MAX_HEADS]]
    texts = [" ".join(text.split()) for text in (row["text"], row["pair"]) if isinstance(text, str)]
    return {"source": OWN, "text": PAIR.join(texts)[:MAX_CHARACTERS], "heads": heads}


# What the model says of the sentences with the chosen heads on, and with them off.

SAME = "same label"


def told(
    sentences: Sequence[Sentence], answers: Sequence[Sequence[Answer]], heads: int
) -> pd.DataFrame:
    """A row per sentence: its right label, the model's with the heads on and with them off, and what that changes.

    Args:
        sentences: What the model was asked about.
        answers: The model's, by sentence; none for a sentence that gets no row.
        heads: How many heads are off.
    """
    many = "s" * (heads != 1)
    columns = ["Sentence", "Right", f"Head{many} on", f"Head{many} off", "What changes"]
    rows = []
    for sentence, sentence_answers in zip(sentences, answers, strict=True):
        if not sentence_answers:
            continue
        cells_of = _text_cells if sentence_answers[0].word is None else _word_cells
        rows.append([sentence.title, *cells_of(sentence, sentence_answers)])
    return pd.DataFrame(rows, columns=columns)


def _text_cells(sentence: Sentence, answers: Sequence[Answer]) -> list[str]:
    (answer,) = answers
    right = sentence.right[0] if sentence.right else NOTHING
    return [right, _with_heads_on(answer), _with_heads_off(answer), _change(answer, right)]


def _with_heads_on(answer: Answer) -> str:
    return f"{answer.on} {answer.p_on:.1%}"


def _with_heads_off(answer: Answer) -> str:
    return f"{answer.off} {answer.p_off:.1%}"


def _change(answer: Answer, right: str) -> str:
    if answer.on == answer.off:
        moved = round(100 * (answer.p_off - answer.p_on), 1) + 0.0  # no -0.0
        return f"{SAME}, {moved:+.1f} points".replace("-", MINUS)
    if right == NOTHING:
        return "another label"
    now_right, now_wrong, still_wrong = CHANGES
    if answer.off == right:
        return KINDS[now_right]
    return KINDS[now_wrong if answer.on == right else still_wrong]


def _word_cells(sentence: Sentence, answers: Sequence[Answer]) -> list[str]:
    """How many words get their right label, and each that gets another one."""
    words = counted(len(answers), "word")
    changes = []
    if len(sentence.right) != len(answers):  # of a longer sentence the rest has no answers
        for answer in answers:
            if answer.on != answer.off:
                changes.append(_word_change(answer))
        return ["a label per word", words, words, "; ".join(changes) or "no word's label"]
    right_on, right_off = 0, 0
    for answer, right in zip(answers, sentence.right, strict=True):
        right_on += answer.on == right
        right_off += answer.off == right
        if answer.on != answer.off:
            changes.append(f"{_word_change(answer)} (right: {right})")
    return [
        "a label per word",
        f"{right_on} of {words} right",
        f"{right_off} of {words} right",
        "; ".join(changes) or "no word's label",
    ]


def _word_change(answer: Answer) -> str:
    return f"{visible(answer.word or '')}: {_with_heads_on(answer)} → {_with_heads_off(answer)}"


def draw_told(sentences: Sequence[Sentence], attention: Sequence[Weights], heads: int) -> None:
    """Draw the answers with the heads on and off below the picture, or a sentence on why there are none.

    Args:
        sentences: What is shown.
        attention: Of each sentence, with the model's answers.
        heads: How many heads are off.
    """
    notes = dict.fromkeys(plain(weights.note) for weights in attention if weights.note)
    unanswered = []
    for sentence, weights in zip(sentences, attention, strict=True):
        if not weights.answers:
            unanswered.append(sentence.title)
    rows = told(sentences, [weights.answers for weights in attention], heads)
    if rows.empty:
        st.caption(f"The model's answers without these heads are not shown: {'; '.join(notes)}.")
        return
    st.markdown(
        f"##### Answers with {'this head' if heads == 1 else f'these {heads} heads'} on and off"
    )
    st.table(rows.map(plain), border="horizontal", hide_index=True)
    without = f" No answers: {plain(', '.join(unanswered))}." if unanswered else ""
    st.caption(
        "; ".join(
            ["Off: the heads' output is 0. Probabilities are among the task's labels", *notes]
        )
        + f".{without}"
    )


# Where else a head does that: the task's sentences by its strongest link of a kind.

LOOKED, LISTED = 64, 20
LONGEST = 2000  # characters that the worker takes
LOOK = "_elsewhere"


@st.cache_data(max_entries=32, show_spinner=False)
def looked(
    _client: Client, fingerprint: str, model: str, task: str, language: str, head: str
) -> list[Panel | None]:
    """Attention of a head in the first sentences of a language, whose titles are the texts; None for one too long."""
    panels = list[Panel | None]()
    for example in examples_of(_client, task, language)[:LOOKED]:
        if max(len(example.text), len(example.pair or "")) > LONGEST:
            panels.append(None)
            continue
        request = AttentionRequest.model_construct(
            model=model,
            text=example.text,
            heads=[head_from(head)],
            pair=example.pair,
            words=example.words,
        )
        panels.append(Panel.of(example.text, wait_for_result(partial(_client.attention, request))))
    return panels


def elsewhere(worker: Client, choice: Choice, fingerprint: str, head: str, name: str) -> None:
    """Draw the list of sentences, once it is asked for; a chosen row opens its sentence."""
    with st.expander("Where else does this head do that", icon=":material/search:"):
        left, right = st.columns(2)
        language = left.selectbox(
            "In", choice.languages, format_func=language_title, key="elsewhere-language"
        )
        kind = right.selectbox("Looks", LINKS, key="elsewhere-kind")
        token = right.text_input("Token looked at", key="elsewhere-token") if kind == GIVEN else ""
        asked = fingerprint, choice.model, choice.task, language, head
        if st.session_state.get(LOOK) != asked:
            button(
                f"Look through the first {LOOKED} sentences",
                key="elsewhere",
                on_press=_look,
                args=(asked,),
            )
            return
        if kind == GIVEN and not token.strip():
            st.caption("Type the token, as it is written in the sentences.")
            return
        with st.spinner("Asking the worker …"):
            panels = looked(worker, *asked)
        found, long = ranked(panels, head, kind, token), panels.count(None)
        over = (
            f" {counted(long, 'sentence')} of over {LONGEST:,} characters left out." if long else ""
        )
        if found.empty:
            st.caption(f"None of the first {len(panels)} sentences has such a link.{over}")
            return

        def opened() -> None:
            for row in st.session_state["elsewhere-rows"]["selection"]["rows"]:
                open_sentence(worker, choice, language, int(found.index[row]))

        st.dataframe(
            found, hide_index=True, key="elsewhere-rows", on_select=uninterrupted(opened), selection_mode="single-row",
            column_config={"Weight": st.column_config.NumberColumn(format="%.3f")},
        )  # fmt: skip
        which = f"the {len(found)} of the first {len(panels)} sentences with its strongest link of this kind"
        st.caption(f"{plain(name)}: {which}.{over} Tick a row to open its sentence.")


def ranked(panels: Sequence[Panel | None], head: str, kind: str, token: str = "") -> pd.DataFrame:
    """The sentences with a head's strongest links of a kind, the strongest first; the index is a sentence's number."""
    links = [
        (at, panel, strongest_link(panel, head, kind, token))
        for at, panel in enumerate(panels)
        if panel
    ]
    found = sorted(
        ((-link.weight, at, link, panel) for at, panel, link in links if link),
        key=lambda row: row[:2],
    )
    rows = [
        (link.weight, of.tokens[link.query], of.tokens[link.key], of.title)
        for _, _, link, of in found[:LISTED]
    ]
    index = [at for _, at, *_ in found[:LISTED]]
    return pd.DataFrame(rows, columns=["Weight", "From", "To", "Sentence"], index=index)


def _look(asked: tuple[str, ...]) -> None:
    st.session_state[LOOK] = asked


def open_sentence(worker: Client, choice: Choice, language: str, at: int) -> None:
    """Choose the sentence of this number in a language, as its widgets do."""
    example = examples_of(worker, choice.task, language)[at]
    shown = st.session_state.get("side", ())
    set_widget("source", TASK)
    set_widget("side", [*shown] if language in shown else [language])
    set_widget("row", at)
    if example.label is not None:
        set_widget("label", example.label)
    titles = by_title(examples_of(worker, choice.task, language), example.label)
    for title, other in titles.items():
        if (other.text, other.pair) == (example.text, example.pair):
            set_widget(f"sentence-{language}", title)
            break
