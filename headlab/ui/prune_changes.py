"""Which answers a mask changes: the list on the Prune page, and those to the Attention page's sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from headlab.pictures import MINUS
from headlab.plots.matrices import visible
from headlab.records import CHANGES
from headlab.tables import NOTHING
from headlab.tasks import names, task
from headlab.ui.attention_page import MAX_CHARACTERS, MAX_HEADS, OWN, PAIR, Sentence
from headlab.ui.figures import ticked
from headlab.ui.names import counted, head_key, language_title, plain
from headlab.ui.presses import button, uninterrupted
from headlab.ui.prune_figures import Known, Question
from headlab.ui.shell import client, waited
from headlab.ui.sidebar import unreadable
from headlab.worker.client import Client

# The list of a mask's changed answers on the Prune page.

ASKED = "_changed"
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
            st.caption("Lists the sentences that the mask turns right or wrong, once an accuracy with it is final.")
            return
        if not has_labels(question.task):
            st.caption("This task has no labels, so no answer of it is right before and wrong after.")
            return
        language = final[0]
        if len(final) > 1:
            language = st.selectbox("Language", final, format_func=language_title, key="changed-language")
        if st.session_state.get(ASKED) != question.key(language):
            figure = known[question.key(language)]
            words = f"List {figure.flipped_right} now right and {figure.flipped_wrong} now wrong"
            button(words, key="changed-list", icon="list", on_press=_ask, args=(question.key(language),))
            return
        with st.spinner("Asking the worker …"):
            found = changed(client(), question.key(language), question, language)
        _list(found, question)


def has_labels(name: str) -> bool:
    """Whether a task has labels, or is not known on this machine."""
    return name not in names() or bool(unreadable(name)) or bool(task(name).labels)


def _ask(key: tuple[str, ...]) -> None:
    st.session_state[ASKED] = key


@st.cache_data(max_entries=16, show_spinner=False)
def changed(_client: Client, key: tuple[str, ...], _question: Question, language: str) -> Mapping[str, Any]:
    """A language's changed answers, from the worker. key: what they depend on."""
    asked, mask = _question, _question.mask
    assert mask is not None
    return waited(
        lambda: _client.changes(
            asked.model, asked.task, language, mask, asked.split, asked.size, label_map=asked.label_map
        )
    )


def _list(found: Mapping[str, Any], question: Question) -> None:
    rows = pd.DataFrame(found["answers"], columns=["id", "kind", *SHOWN])
    if found["total"] > len(rows):
        more = "`headlab evaluate --mask FILE --changes FILE` writes all"
        st.caption(f"The first {len(rows):,} of {found['total']:,} changed answers; {more}.")
    counts = {kind: int((rows["kind"] == kind).sum()) for kind in CHANGES}
    left, right = st.columns([3, 2])
    kind = left.radio(
        "Answers", CHANGES, format_func=lambda name: f"{name} {counts[name]}", horizontal=True, key="changed-kind"
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
    which = "all of them" if found["total"] == len(rows) else "these"
    st.download_button(
        f"Download {which} as CSV", rows.to_csv(index=False), f"changes-{found['language']}-{question.split}.csv",
        "text/csv", key="changed-csv", on_click="ignore", icon=":material/download:",
    )  # fmt: skip


def _table(part: pd.DataFrame, question: Question) -> None:
    percent = st.column_config.NumberColumn(format="percent", help=HELP)
    shown = part[list(SHOWN)].dropna(axis="columns", how="all").rename(columns=SHOWN)
    picked = st.dataframe(
        shown, hide_index=True, key=f"changed-{part['id'].iloc[0]}-{len(part)}", on_select=uninterrupted(ticked),
        selection_mode="single-row", height=min(420, 38 + 35 * len(part)),
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
        st.switch_page("pages/attention.py", query_params=look_at(part.iloc[chosen[0]].to_dict(), question))


def look_at(row: Mapping[str, Any], question: Question) -> dict[str, Any]:
    """The link parameters of the Attention page for an answer's sentence and the heads that are off."""
    assert question.mask is not None
    heads = [head_key(head) for head in question.mask.removed[:MAX_HEADS]]
    texts = [" ".join(text.split()) for text in (row["text"], row["pair"]) if isinstance(text, str)]
    return {"source": OWN, "text": PAIR.join(texts)[:MAX_CHARACTERS], "heads": heads}


# What the model says of the sentences with the chosen heads on, and with them off.

SAME = "same label"


def told(sentences: Sequence[Sentence], answers: Sequence[Mapping[str, Any]], heads: int) -> pd.DataFrame:
    """A row per sentence: its right label, the model's with the heads on and with them off, and what that changes.

    answers: the worker's, each with `answers`.  heads: how many are off.
    """
    many = "s" * (heads != 1)
    columns = ["Sentence", "Right", f"Head{many} on", f"Head{many} off", "What changes"]
    rows = [
        [sentence.title, *(_of_words if found[0]["word"] is not None else _of_text)(sentence, found)]
        for sentence, found in ((s, a["answers"]) for s, a in zip(sentences, answers, strict=True))
        if found
    ]
    return pd.DataFrame(rows, columns=columns)


def _of_text(sentence: Sentence, found: Sequence[Mapping[str, Any]]) -> list[str]:
    (one,) = found
    right = sentence.right[0] if sentence.right else NOTHING
    return [right, _answer(one, "on"), _answer(one, "off"), _change(one, right)]


def _answer(one: Mapping[str, Any], side: str) -> str:
    return f"{one[side]} {one[f'p_{side}']:.1%}"


def _change(one: Mapping[str, Any], right: str) -> str:
    if one["on"] == one["off"]:
        moved = round(100 * (one["p_off"] - one["p_on"]), 1) + 0.0  # no -0.0
        return f"{SAME}, {moved:+.1f} points".replace("-", MINUS)
    if right == NOTHING:
        return "another label"
    return CHANGES[0 if one["off"] == right else 1 if one["on"] == right else 2]


def _of_words(sentence: Sentence, found: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many words get their right label, and each that gets another one."""
    known = len(sentence.right) == len(found)  # of a longer sentence the rest has no answers
    rights = sentence.right if known else [NOTHING] * len(found)
    each = list(zip(found, rights, strict=True))
    hits = [sum(one[side] == right for one, right in each) for side in ("on", "off")]
    changed = [
        f"{visible(one['word'])}: {_answer(one, 'on')} → {_answer(one, 'off')}" + f" (right: {right})" * known
        for one, right in each
        if one["on"] != one["off"]
    ]
    words = counted(len(found), "word")
    sides = [f"{hit} of {words} right" if known else words for hit in hits]
    return ["a label per word", *sides, "; ".join(changed) or "no word's label"]


def draw_told(sentences: Sequence[Sentence], answers: Sequence[Mapping[str, Any]], heads: int) -> None:
    """Draw the answers with the heads on and off below the picture, or a sentence on why there are none."""
    notes = dict.fromkeys(plain(answer["note"]) for answer in answers if answer["note"])
    rows = told(sentences, answers, heads)
    if rows.empty:
        st.caption(f"What the model says without these heads is not shown: {'; '.join(notes)}.")
        return
    st.markdown(f"##### What the model says with {'this head' if heads == 1 else f'these {heads} heads'} on and off")
    st.table(rows.map(plain), border="horizontal", hide_index=True)
    st.caption("; ".join(["Off: the heads' output is 0. Probabilities are among the task's labels", *notes]) + ".")
