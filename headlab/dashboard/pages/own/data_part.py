"""Examples of the user's own: which column means what, the check of every row, and the saved task."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pandas as pd
import streamlit as st
from streamlit.typing import UploadedFile

from headlab.core import MAX_SENT_BYTES, HeadlabError, as_sentence, content_key, default_root
from headlab.dashboard.frame import Choice, use_task, worker_client
from headlab.dashboard.names import counted, language_title, page_link, plain
from headlab.dashboard.pages.own.model_part import (
    ModelRequest,
    OwnModel,
    _classes,
    findings_of_files,
)
from headlab.dashboard.widgets import PageState, button
from headlab.jobs.table import ScoreJob
from headlab.tasks import (
    SPLITS,
    TASKS,
    Record,
    Split,
    columns_named_as_values,
    guess_columns,
    label_each_word,
    labels_beside_classes,
    names,
    separator_advice,
    unsure_meanings,
)
from headlab.tasks.own import ENDINGS, Checked, Draft, Upload, check, format_of, read_upload
from headlab.worker import SavedTask

NONE, SAME = "— none —", "— the same in all rows —"  # no column is called so

CHOICES = "one of several choices (language models)"

WORDS, GENERATED = "a label for each word", "a text to be generated"

SENTENCES = ("conllu", "conll")  # formats of labelled words

ASKED = {
    "a label for each text": {"text": "Text", "pair": "Second text", "label": "Label"},
    WORDS: {"words": "Words", "labels": "Labels of the words"},
    GENERATED: {"text": "Text", "target": "Text to be generated"},
    CHOICES: {"context": "Context", "choices": "Choices", "answer": "Right choice"},
    "every token of a text (language models)": {"text": "Text"},
}

SHARE, COLUMN, FILES = "a share of the rows", "as a column says", "each file is one"

SPLIT_NAMES: Mapping[Split, str] = {
    "train": r"train(ing)?",
    "dev": r"dev|valid(ation)?|val",
    "test": r"test|eval",
}

SHOWN, ERRORS = 10, 20  # rows of the preview, and errors that are listed

LOOKED_AT = (
    200  # first rows, and about as many of the others, by whose values columns are recognised
)

LABEL = 40  # characters of a label that are shown


@dataclass
class OwnTask(PageState):
    """The task part of the page of one session.

    Attributes:
        saved: The task that was saved last; None if none was.
        refused_draft: Key of the draft that the worker refused to save; empty if it refused none.
        refusal: Why it refused it.
    """

    key = "_own_saved"
    saved: SavedTask | None = None
    refused_draft: str = ""
    refusal: str = ""


class Files(NamedTuple):
    """The files of the uploader, read.

    key: of their contents.  columns: of the rows that were looked at.  rows: the first ones.  values: of each column,
    in rows from the whole of the files.
    """

    kind: str
    uploads: tuple[Upload, ...]
    key: str
    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, Any]]
    errors: Sequence[str]
    values: Mapping[str, Sequence[Any]] = {}


def draw_data_part(choice: Choice) -> None:
    """The uploader, the columns, the preview with every error, and the button that saves the task."""
    st.subheader("A task from your files")
    endings = [ending.removeprefix(".") for ending in ENDINGS]
    given = st.file_uploader(
        "Examples as csv, tsv, jsonl, CoNLL-U or one token a line",
        endings,
        accept_multiple_files=True,
        key="own-files",
        max_upload_size=MAX_SENT_BYTES >> 20,
        help="One file or several: one a language, one a split. UTF-8, with a header row in csv and tsv.",
    )
    if given:
        found = _files(given)
        if found.rows:
            _table(found)
            _form(choice, found)
        else:
            _errors(found.errors)
    _saved(choice)


def _files(given: Sequence[UploadedFile]) -> Files:
    uploads = tuple(Upload(_shown(file.name), file.getvalue()) for file in given)
    try:
        kinds = {format_of(upload) for upload in uploads}
        if len(kinds) > 1:
            raise HeadlabError(
                f"the files are {' and '.join(sorted(kinds))}; give files of one format",
                code="upload.formats_mixed",
            )
    except HeadlabError as error:
        return Files("", uploads, "", (), [], [str(error)])
    return _first_rows(uploads, kinds.pop(), content_key([file.file_id for file in given]))


def _shown(name: str) -> str:
    """A file's name as messages show it."""
    return "".join(c if c.isprintable() else "�" for c in name)[-200:]


@st.cache_data(max_entries=4, ttl=3600, show_spinner="Reading the files …")
def _first_rows(_uploads: tuple[Upload, ...], kind: str, key: str) -> Files:
    records = [record for upload in _uploads for record in read_upload(upload, kind)]
    rows = [record.values for record in records if isinstance(record, Record)]
    errors = [str(record) for record in records if isinstance(record, HeadlabError)]
    looked_at_rows = rows[:LOOKED_AT] + rows[LOOKED_AT :: max(1, len(rows) // LOOKED_AT)]
    columns = tuple(dict.fromkeys(name for row in looked_at_rows for name in row if name))
    values = {name: tuple(row.get(name) for row in looked_at_rows) for name in columns}
    return Files(kind, _uploads, key, columns, rows[:SHOWN], errors, values)


def _table(found: Files) -> None:
    st.caption(f"Read as {found.kind}: {counted(len(found.columns), 'column')}. The first rows:")
    cells = [{name: _cell(values.get(name)) for name in found.columns} for values in found.rows]
    st.dataframe(pd.DataFrame(cells, columns=list(found.columns)), hide_index=True)
    repeated = columns_named_as_values(found.values) if found.kind in ("csv", "tsv") else []
    if repeated:
        named = " and ".join(filter(None, [", ".join(repeated[:-1]), repeated[-1]]))
        values = "are values" if len(repeated) > 1 else "is a value"
        st.warning(
            plain(
                f"The first row is read as the names of the columns, but {named} {values} further down too. If the "
                "first row is an example, put a row of names above it."
            )
        )


def _cell(value: Any) -> str:
    text = (
        " ".join(map(str, value))
        if isinstance(value, list)
        else ""
        if value is None
        else str(value)
    )
    return text.encode(errors="replace").decode()[:300]


def _form(choice: Choice, found: Files) -> None:
    model, classes = _classes_of_model(choice)
    with st.container(border=True, key="own-form"):
        columns, missing = _columns(found, classes)
        uploads, splits, share = _places(found, columns, missing)
        left, right = st.columns([2, 3], vertical_alignment="bottom")
        start = re.sub(r"[^A-Za-z0-9_-]+", "-", PurePosixPath(found.uploads[0].name).stem).strip(
            "-_"
        )[:60]
        name = left.text_input("Name of the task", start or "mine", key=_key(found, "name")).strip()
        aligned = "language" in columns or len({u.language for u in uploads}) > 1
        aligned = aligned and right.toggle(
            "Row i means the same in every language", key=_key(found, "aligned")
        )
    if missing:
        _ask(found, missing)
        return
    draft = Draft(name, found.kind, columns, uploads, splits, aligned, share)
    try:
        asked = content_key(
            {**replace(draft, files=()).to_json(), "of": [[u.language, u.split] for u in uploads]}
        )
        outcome = _checked(draft, found.key, asked)
    except HeadlabError as error:
        st.error(plain(as_sentence(error)))
        return
    if outcome.errors:
        _errors([str(error) for error in outcome.errors])
        return
    _show_outcome(outcome, model, classes)
    if name in TASKS:
        st.warning(f"{plain(name)} is the name of a task that comes with headlab; choose another.")
    button(
        "Save the task",
        key="own-save",
        icon="save",
        kind="primary",
        on_press=_save,
        args=(draft, asked),
    )
    state = OwnTask.of_session()
    if state.refused_draft == asked:
        st.error(plain(state.refusal))


def _classes_of_model(choice: Choice) -> tuple[str, tuple[str, ...]]:
    """The model above the files, or else the sidebar's, with the names of its classes; none if they are not known."""
    own_model = OwnModel.of_session()
    name = own_model.name or choice.model
    model = ModelRequest(
        name, choice.task, choice.method, choice.languages[:1], _classes(name, choice.task)
    )
    try:
        findings = findings_of_files(worker_client(), model, own_model.file_checks)
    except HeadlabError:  # without a worker, which the sidebar says
        return name, ()
    return name, tuple(name for finding in findings for name in finding.classes)


def _ask(found: Files, missing: Sequence[str]) -> None:
    """Ask for the columns that are not chosen."""
    advice = separator_advice(found.columns, found.kind)
    if advice:
        st.warning(plain(f"{advice[0].upper()}{advice[1:]}."))
        return
    columns = f"The columns are {', '.join(found.columns)}."
    if len(found.columns) == 1:
        columns = f"The only column is {found.columns[0]}."
    st.info(
        f"Choose the column for: {', '.join(missing)}. {plain(columns)}", icon=":material/help:"
    )


def _show_outcome(outcome: Checked, model: str, classes: Sequence[str]) -> None:
    """What the task has: its examples, how often each label occurs, and what to know before it is saved."""
    st.success(plain(_outcome(outcome)))
    if outcome.notes:
        st.warning("\n".join(f"- {plain(note)}." for note in outcome.notes))
    if not outcome.labels:
        return
    totals = Counter[str]()
    for (_, label), count in outcome.label_counts.items():
        totals[label] += count
    if classes:
        fits, words = labels_beside_classes(totals, classes, model)
        (st.caption if fits else st.warning)(plain(words))
    st.dataframe(_label_table(outcome, totals), hide_index=True, key="own-labels")


def _label_table(outcome: Checked, totals: Mapping[str, int]) -> pd.DataFrame:
    """How often each label occurs, in all and in each language, the most frequent first."""
    labels = sorted(outcome.labels, key=lambda label: -totals[label])
    table = pd.DataFrame(
        {"Label": [_short(label) for label in labels], "All": [totals[label] for label in labels]}
    )
    languages = outcome.languages if len(outcome.languages) > 1 else []
    for language in languages:
        table[language_title(language)] = [
            outcome.label_counts.get((language, label), 0) for label in labels
        ]
    return table


def _short(label: str) -> str:
    return label if len(label) <= LABEL else f"{label[:LABEL]}…"


def _key(found: Files, name: str) -> str:
    """Key of a widget; other files start it anew."""
    return f"own-{name}-{found.key[:12]}"


@st.cache_data(max_entries=8, ttl=3600, show_spinner="Checking every row …")
def _checked(_draft: Draft, key: str, asked: str) -> Checked:
    """Every error, or what the task has. key, asked: of the files, and of what they are to mean."""
    return check(_draft)


def _outcome(found: Checked) -> str:
    """What a task has, in a sentence."""
    told = [
        f"{language_title(language)} "
        + ", ".join(
            f"{found.sizes[language, s]:,} {s}" for s in SPLITS if (language, s) in found.sizes
        )
        for language in found.languages
    ]
    some = [_short(label) for label in found.labels[:10]]
    labels = f" {counted(len(found.labels), 'label')}: {', '.join(some)}" + (
        "…" * (len(found.labels) > 10)
    )
    test = (
        ""
        if any(split == "test" for _, split in found.sizes)
        else " There are no test examples to report on."
    )
    return f"Every row can be read. Examples: {'; '.join(told)}.{f'{labels}.' if found.labels else ''}{test}"


def _errors(errors: Sequence[str]) -> None:
    more = f"; the first {ERRORS}" if len(errors) > ERRORS else ""
    st.error(
        f"{counted(len(errors), 'error')}{more}:\n"
        + "\n".join(f"- {plain(error)}" for error in errors[:ERRORS])
    )


def _columns(found: Files, classes: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The columns by their meaning, as they are chosen, and the titles of those that must be chosen still."""
    kinds = [WORDS] if found.kind in SENTENCES else list(ASKED)
    what = st.radio(
        "What is asked", kinds, kinds.index(_kind(found)), horizontal=True, key=_key(found, "what")
    )
    meanings = {**ASKED[what], "language": "Language"}
    guesses = guess_columns(found.values, [*meanings, "split"], classes)
    if found.kind == "conll":
        guesses = {"words": found.columns[0], "labels": found.columns[-1]}
    unsure = unsure_meanings(found.values, meanings, guesses)
    chosen = dict[str, str | None]()
    for place, (meaning, title) in zip(st.columns(len(meanings)), meanings.items(), strict=True):
        none = {"pair": [NONE], "context": [NONE], "language": [SAME]}.get(meaning, [])
        chosen[meaning] = _pick(place, found, title, meaning, none, guesses, ask=meaning in unsure)
    with st.expander("More columns"):
        left, right = st.columns(2)
        chosen["group"] = _pick(left, found, "Rows that belong together", "group", [NONE], guesses)
        chosen["id"] = _pick(
            right, found, "Name of the row, once in a split", "id", [NONE], guesses
        )
    missing = [title for meaning, title in meanings.items() if chosen[meaning] is None]
    return {
        name: column for name, column in chosen.items() if column not in (NONE, SAME, None)
    }, missing


def _kind(found: Files) -> str:
    """What is asked, as the columns tell."""
    if found.kind in SENTENCES:
        return WORDS
    if guess_columns(found.values, ("choices",)):
        return CHOICES
    if label_each_word(found.values):
        return WORDS
    generated = guess_columns(found.values, ("text", "pair", "label", "target"))
    if "text" not in generated and isinstance(next(iter(found.rows[0].values()), None), list):
        return WORDS
    return GENERATED if "target" in generated and "label" not in generated else next(iter(ASKED))


def _pick(
    place: Any,
    found: Files,
    title: str,
    meaning: str,
    none: list[str],
    guesses: Mapping[str, str],
    *,
    ask: bool = False,
) -> str | None:
    """A list of columns, with the one that is guessed; None while nothing is chosen.

    Args:
        place: where the list is drawn.
        found: the files.
        title: of the list.
        meaning: what the column is for.
        none: what may be chosen in place of a column.
        guesses: columns by their meaning.
        ask: whether a person has to choose even where no column is needed.
    """
    options = [*none, *found.columns]
    start = None
    if meaning in guesses:
        start = options.index(guesses[meaning])
    elif none and not ask:
        start = 0
    picked = place.selectbox(
        title, options, start, key=_key(found, meaning), placeholder="Choose a column"
    )
    return None if picked is None else str(picked)


def _places(
    found: Files, columns: dict[str, str], missing: list[str]
) -> tuple[tuple[Upload, ...], dict[Split, str], float | None]:
    """The files with their language and split, the names of the splits in a column, and the share of dev.

    columns: gets the split's column, if one is chosen.  missing: gets its title, if it must be chosen still.
    """
    free = {name: values for name, values in found.values.items() if name not in columns.values()}
    guesses = guess_columns(free, ["split"])
    start = 1 if guesses else 0
    if all(_named_split(upload.name) for upload in found.uploads):
        start = 2
    left, right = st.columns([3, 2])
    how = left.radio(
        "Which examples are dev and test",
        [SHARE, COLUMN, FILES],
        start,
        horizontal=True,
        key=_key(found, "how"),
        help="Heads are chosen on dev; test is for reporting.",
    )
    splits, share = dict[Split, str](), None
    if how == SHARE:
        share = right.slider("Share of dev, %", 10, 90, 50, 5, key=_key(found, "share")) / 100
    elif how == COLUMN:
        column = _pick(right, found, "Column", "split", [], guesses)
        if column is None:
            missing.append("the split")
        else:
            columns["split"] = column
            splits = _split_names(found, column)
    uploads = [
        _place_of(found, at, upload, "language" not in columns, how == FILES)
        for at, upload in enumerate(found.uploads)
    ]
    return tuple(uploads), splits, share


def _place_of(found: Files, at: int, upload: Upload, language: bool, split: bool) -> Upload:
    """A file with the language and the split that are chosen for it."""
    if not (language or split):
        return upload
    left, right = st.columns(2)
    code, one, whose = None, None, plain(upload.name)
    if language:
        code = left.text_input(
            f"Language of {whose}", _named_language(upload.name), key=_key(found, f"code-{at}")
        ).strip()
    if split:
        start = SPLITS.index(_named_split(upload.name) or "dev")
        one = right.selectbox(f"Examples of {whose}", SPLITS, start, key=_key(found, f"split-{at}"))
    return replace(upload, language=code or None, split=one)


def _split_names(found: Files, column: str) -> dict[Split, str]:
    """What the data call the splits, one list for each split."""
    values = _values(found.uploads, found.kind, found.key, column)
    names: dict[Split, str] = {}
    for place, split in zip(st.columns(len(SPLITS)), SPLITS, strict=True):
        start = next(
            (
                at
                for at, value in enumerate(values, 1)
                if re.fullmatch(SPLIT_NAMES[split], value, re.I)
            ),
            0,
        )
        told = place.selectbox(
            f"{split} is called",
            [NONE, *values],
            start,
            key=_key(found, f"called-{split}-{column}"),
        )
        if told != NONE:
            names[split] = told
    return names


@st.cache_data(max_entries=8, ttl=3600, show_spinner=False)
def _values(_uploads: tuple[Upload, ...], kind: str, key: str, column: str) -> list[str]:
    """The first values of a column."""
    every = (
        one for upload in _uploads for one in read_upload(upload, kind) if isinstance(one, Record)
    )
    return list(dict.fromkeys(_cell(one.values.get(column)) for one in every))[:50]


def _named_split(name: str) -> Split | None:
    """The split that a file's name tells."""
    parts = re.split(r"[^A-Za-z]+", name.lower())
    return next(
        (split for split in SPLITS for part in parts if re.fullmatch(SPLIT_NAMES[split], part)),
        None,
    )


def _named_language(name: str) -> str:
    """The language code at the end of a file's name, beside that of its split; English where there is none."""
    split = "|".join(SPLIT_NAMES.values())
    stem = re.sub(
        rf"(^|[._ -])({split})(?=[._ -]|$)", "", PurePosixPath(name).stem, flags=re.IGNORECASE
    )
    found = re.search(r"(?:^|[._ -])([a-z]{2}(-[A-Z][A-Za-z]{1,3})?)$", stem)
    return found[1] if found and language_title(found[1]) != found[1] else "en"


# Saving, and what to do with a saved task.


def _save(draft: Draft, asked: str) -> None:
    """Save a task. asked: key of what was asked for, which a refusal is shown beside."""
    state = OwnTask.of_session()
    state.refused_draft = ""
    try:
        state.saved = worker_client().save_task(draft.to_json())
    except HeadlabError as error:
        state.refused_draft = asked
        state.refusal = f"Not saved: {as_sentence(error)}"


def _saved(choice: Choice) -> None:
    """The declaration of the task that was saved last, the command that reads it, and the button that chooses it."""
    task = OwnTask.of_session().saved
    if task is None:
        return
    with st.container(border=True, key="own-saved"):
        st.markdown(
            f"**{plain(task.name)} is saved.** Its declaration, which the command line and the worker read:"
        )
        st.code(task.declaration, language="toml", wrap_lines=True)
        path = (default_root() / task.path).absolute()
        job = ScoreJob.model_construct(
            **{**choice.about, "task": str(path)},
            method=choice.method,
            languages=list(task.sizes),
        )
        st.code(job.terminal_lines(), language="bash", wrap_lines=True)
        if task.name not in names():
            st.warning(
                "The worker keeps its results in another folder than this dashboard, so only the worker knows it."
            )
            return
        if choice.task == task.name:
            st.caption("This task is chosen in the sidebar; every page shows it.")
            page_link("prune", "Prune: its accuracy, and which heads it needs")
        else:
            button(
                "Use this task",
                key="own-use-task",
                icon="check",
                kind="primary",
                on_press=use_task,
                args=(task.name,),
            )
