"""Examples of the user's own: the columns, the check of every row, and the saved task."""

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
from headlab.dashboard.frame import Choice, current_choice, use_model, use_task, worker_client
from headlab.dashboard.names import count_words, language_title, page_link, plain
from headlab.dashboard.pages.own.model_part import (
    ModelToCheck,
    OwnModel,
    findings_of_files,
    typed_classes,
)
from headlab.dashboard.panels.jobs import can_do, draw_misfit, misfit_reason
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
    separator_advice,
    task_names,
    unsure_meanings,
)
from headlab.tasks.own import (
    ENDINGS,
    Draft,
    DraftCheck,
    Upload,
    check_draft,
    format_of,
    read_upload,
)
from headlab.worker import SavedTask

NO_COLUMN = "— none —"
"""What is chosen where the files have no such column; no column is called so."""
SAME_IN_ALL_ROWS = "— the same in all rows —"
"""What is chosen where every row has the same value; no column is called so."""
INSTEAD_OF_COLUMN = {
    "pair": [NO_COLUMN],
    "context": [NO_COLUMN],
    "language": [SAME_IN_ALL_ROWS],
}
"""By meaning: what may be chosen in place of a column."""

LABEL_EACH_TEXT = "a label for each text"
LABEL_EACH_WORD = "a label for each word"
GENERATED_TEXT = "a text to be generated"
FROM_CHOICES = "one of several choices (language models)"

LABELLED_WORD_FORMATS = ("conllu", "conll")
"""Formats of files of labelled words."""

MEANINGS_BY_QUESTION = {
    LABEL_EACH_TEXT: {"text": "Text", "pair": "Second text", "label": "Label"},
    LABEL_EACH_WORD: {"words": "Words", "labels": "Labels of the words"},
    GENERATED_TEXT: {"text": "Text", "target": "Text to be generated"},
    FROM_CHOICES: {"context": "Context", "choices": "Choices", "answer": "Right choice"},
    "every token of a text (language models)": {"text": "Text"},
}
"""What a task may ask: by question, the titles of the columns that it needs, by their meaning."""

QUESTIONS_WITH_CONTRASTS = (LABEL_EACH_TEXT, GENERATED_TEXT, FROM_CHOICES)
"""Questions whose files may have a contrast of each text, for counterfactual ablation."""
CONTRAST_HELP = (
    "For counterfactual ablation: what is off gives its output on this text. Of as many tokens as the row's "
    "own text; cells may be empty."
)

BY_SHARE = "a share of the rows"
BY_COLUMN = "as a column says"
BY_FILE = "each file is one"

SPLIT_NAMES: Mapping[Split, str] = {
    "train": r"train(ing)?",
    "dev": r"dev|valid(ation)?|val",
    "test": r"test|eval",
}
"""Patterns of what files and columns call each split."""

PREVIEW_ROWS = 10
"""Rows of the preview."""
MAX_ERRORS = 20
"""Errors that are listed."""
LOOKED_AT_ROWS = 200
"""First rows, and about as many of the others, by whose values columns are recognised."""
MAX_LABEL_LENGTH = 40
"""Characters of a label that are shown."""
SUMMARY_LABELS = 10
"""Labels that the summary of a task names."""


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


class ReadFiles(NamedTuple):
    """The files of the uploader, read.

    Attributes:
        kind: Their format; empty if they cannot be read.
        uploads: The files.
        key: Of their contents.
        columns: Names of the columns of the rows that were looked at.
        rows: The first ones.
        errors: Of rows that cannot be read.
        values: Of each column, in rows from the whole of the files.
    """

    kind: str
    uploads: tuple[Upload, ...]
    key: str
    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, Any]]
    errors: Sequence[str]
    values: Mapping[str, Sequence[Any]] = {}


def draw_data_part(choice: Choice) -> None:
    """The uploader, the preview with every error, the columns, and the button that saves."""
    st.subheader("A task from your files")
    endings = [ending.removeprefix(".") for ending in ENDINGS]
    uploaded_files = st.file_uploader(
        "Examples as csv, tsv, jsonl, CoNLL-U or one token a line",
        endings,
        accept_multiple_files=True,
        key="own-files",
        max_upload_size=MAX_SENT_BYTES >> 20,
        help=(
            "One file or several: one a language, one a split. UTF-8, with a header row in csv "
            "and tsv."
        ),
    )
    if uploaded_files:
        files = _read_files(uploaded_files)
        if files.rows:
            _draw_preview(files)
            _draw_form(choice, files)
        else:
            _draw_errors(files.errors)
    _draw_saved_task(choice)


def _read_files(uploaded_files: Sequence[UploadedFile]) -> ReadFiles:
    uploads = tuple(Upload(_printable_name(file.name), file.getvalue()) for file in uploaded_files)
    try:
        kinds = {format_of(upload) for upload in uploads}
        if len(kinds) > 1:
            raise HeadlabError(
                f"the files are {' and '.join(sorted(kinds))}; give files of one format",
                code="upload.formats_mixed",
            )
    except HeadlabError as error:
        return ReadFiles("", uploads, "", (), [], [str(error)])
    return _first_rows(uploads, kinds.pop(), content_key([file.file_id for file in uploaded_files]))


def _printable_name(name: str) -> str:
    """A file's name as messages show it."""
    return "".join(character if character.isprintable() else "�" for character in name)[-200:]


@st.cache_data(max_entries=4, ttl=3600, show_spinner="Reading the files …")
def _first_rows(_uploads: tuple[Upload, ...], kind: str, key: str) -> ReadFiles:
    records = [record for upload in _uploads for record in read_upload(upload, kind)]
    rows = [record.values for record in records if isinstance(record, Record)]
    errors = [str(record) for record in records if isinstance(record, HeadlabError)]
    looked_at_rows = (
        rows[:LOOKED_AT_ROWS] + rows[LOOKED_AT_ROWS :: max(1, len(rows) // LOOKED_AT_ROWS)]
    )
    columns = tuple(dict.fromkeys(name for row in looked_at_rows for name in row if name))
    values = {name: tuple(row.get(name) for row in looked_at_rows) for name in columns}
    return ReadFiles(kind, _uploads, key, columns, rows[:PREVIEW_ROWS], errors, values)


def _draw_preview(files: ReadFiles) -> None:
    st.caption(
        f"Read as {files.kind}: {count_words(len(files.columns), 'column')}. The first rows:"
    )
    cells = [{name: _cell_text(verb.get(name)) for name in files.columns} for verb in files.rows]
    st.dataframe(pd.DataFrame(cells, columns=list(files.columns)), hide_index=True)
    columns_like_values = (
        columns_named_as_values(files.values) if files.kind in ("csv", "tsv") else []
    )
    if columns_like_values:
        column_list = " and ".join(
            filter(None, [", ".join(columns_like_values[:-1]), columns_like_values[-1]])
        )
        verb = "are values" if len(columns_like_values) > 1 else "is a value"
        st.warning(
            plain(
                f"The first row is read as the names of the columns, but {column_list} {verb} "
                "further down too. If the first row is an example, put a row of names above it."
            )
        )


def _cell_text(value: Any) -> str:
    if value is None:
        text = ""
    elif isinstance(value, list):
        text = " ".join(map(str, value))
    else:
        text = str(value)
    return text.encode(errors="replace").decode()[:300]


def _draw_form(choice: Choice, files: ReadFiles) -> None:
    model, classes = _classes_of_model(choice)
    with st.container(border=True, key="own-form"):
        columns, missing = _pick_columns(files, classes)
        uploads, splits, share = _pick_splits(files, columns, missing)
        name_place, aligned_place = st.columns([2, 3], vertical_alignment="bottom")
        stem = PurePosixPath(files.uploads[0].name).stem
        default_name = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:60]
        name = name_place.text_input(
            "Name of the task", default_name or "mine", key=_widget_key(files, "name")
        ).strip()
        has_aligned_rows = False
        if "language" in columns or len({upload.language for upload in uploads}) > 1:
            has_aligned_rows = aligned_place.toggle(
                "Row i means the same in every language", key=_widget_key(files, "aligned")
            )
    if missing:
        _ask_for_columns(files, missing)
        return
    draft = Draft(name, files.kind, columns, uploads, splits, has_aligned_rows, share)
    try:
        draft_key = content_key(
            {
                **replace(draft, files=()).to_json(),
                "of": [[upload.language, upload.split] for upload in uploads],
            }
        )
        outcome = _checked_draft(draft, files.key, draft_key)
    except HeadlabError as error:
        st.error(plain(as_sentence(error)))
        return
    if outcome.errors:
        _draw_errors([str(error) for error in outcome.errors])
        return
    _show_outcome(outcome, model, classes)
    if name in TASKS:
        st.warning(f"{plain(name)} is the name of a task that comes with headlab; choose another.")
    button(
        "Save the task",
        key="own-save",
        icon="save",
        kind="primary",
        on_press=_save_task,
        args=(draft, draft_key),
    )
    state = OwnTask.of_session()
    if state.refused_draft == draft_key:
        st.error(plain(state.refusal))


def _classes_of_model(choice: Choice) -> tuple[str, tuple[str, ...]]:
    """The model above the files, or else the sidebar's.

    Returns:
        Its name, and the names of its classes; none if they are not known.
    """
    own_model = OwnModel.of_session()
    name = own_model.name or choice.model
    model = ModelToCheck(
        name, choice.task, choice.method, choice.languages[:1], typed_classes(name, choice.task)
    )
    try:
        findings = findings_of_files(worker_client(), model, own_model.file_checks)
    except HeadlabError:  # without a worker, which the sidebar says
        return name, ()
    return name, tuple(name for finding in findings for name in finding.classes)


def _ask_for_columns(files: ReadFiles, missing: Sequence[str]) -> None:
    """Ask for the columns that are not chosen."""
    advice = separator_advice(files.columns, files.kind)
    if advice:
        st.warning(plain(f"{advice[0].upper()}{advice[1:]}."))
        return
    columns = f"The columns are {', '.join(files.columns)}."
    if len(files.columns) == 1:
        columns = f"The only column is {files.columns[0]}."
    st.info(
        f"Choose the column for: {', '.join(missing)}. {plain(columns)}", icon=":material/help:"
    )


def _show_outcome(outcome: DraftCheck, model: str, classes: Sequence[str]) -> None:
    """What the task has: examples, how often labels occur, and what to know before it is saved."""
    st.success(plain(_outcome_sentence(outcome)))
    if outcome.notes:
        st.warning("\n".join(f"- {plain(note)}." for note in outcome.notes))
    if not outcome.labels:
        return
    totals = Counter[str]()
    for (_, label), count in outcome.label_counts.items():
        totals[label] += count
    if classes:
        fits, words = labels_beside_classes(totals, classes, model)
        if fits:
            st.caption(plain(words))
        else:
            st.warning(plain(words))
    st.dataframe(_label_table(outcome, totals), hide_index=True, key="own-labels")


def _label_table(outcome: DraftCheck, totals: Mapping[str, int]) -> pd.DataFrame:
    """How often each label occurs, in all and in each language, the most frequent first."""
    labels = sorted(outcome.labels, key=lambda label: -totals[label])
    table = pd.DataFrame(
        {
            "Label": [_shortened_label(label) for label in labels],
            "All": [totals[label] for label in labels],
        }
    )
    languages = outcome.languages if len(outcome.languages) > 1 else []
    for language in languages:
        table[language_title(language)] = [
            outcome.label_counts.get((language, label), 0) for label in labels
        ]
    return table


def _shortened_label(label: str) -> str:
    if len(label) <= MAX_LABEL_LENGTH:
        return label
    return f"{label[:MAX_LABEL_LENGTH]}…"


def _widget_key(files: ReadFiles, name: str) -> str:
    """Key of a widget; other files start it anew."""
    return f"own-{name}-{files.key[:12]}"


@st.cache_data(max_entries=8, ttl=3600, show_spinner="Checking every row …")
def _checked_draft(_draft: Draft, key: str, draft_key: str) -> DraftCheck:
    """Every error, or what the task has.

    Args:
        _draft: The task.
        key: Of the files.
        draft_key: Of what they are to mean.
    """
    return check_draft(_draft)


def _outcome_sentence(outcome: DraftCheck) -> str:
    """What a task has, in a sentence."""
    sizes_of_languages = []
    for language in outcome.languages:
        sizes = []
        for split in SPLITS:
            if (language, split) in outcome.sizes:
                sizes.append(f"{outcome.sizes[language, split]:,} {split}")
        sizes_of_languages.append(f"{language_title(language)} {', '.join(sizes)}")
    sentence = f"Every row can be read. Examples: {'; '.join(sizes_of_languages)}."
    if outcome.labels:
        label_list = ", ".join(_shortened_label(label) for label in outcome.labels[:SUMMARY_LABELS])
        if len(outcome.labels) > SUMMARY_LABELS:
            label_list += "…"
        sentence += f" {count_words(len(outcome.labels), 'label')}: {label_list}."
    if not any(split == "test" for _, split in outcome.sizes):
        sentence += " There are no test examples to report on."
    return sentence


def _draw_errors(errors: Sequence[str]) -> None:
    cut_note = f"; the first {MAX_ERRORS}" if len(errors) > MAX_ERRORS else ""
    st.error(
        f"{count_words(len(errors), 'error')}{cut_note}:\n"
        + "\n".join(f"- {plain(error)}" for error in errors[:MAX_ERRORS])
    )


def _pick_columns(files: ReadFiles, classes: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Draw the choice of the columns.

    Args:
        files: The files.
        classes: Names of the model's classes.

    Returns:
        The chosen columns by their meaning, and the titles of those that must be chosen still.
    """
    questions = list(MEANINGS_BY_QUESTION)
    if files.kind in LABELLED_WORD_FORMATS:
        questions = [LABEL_EACH_WORD]
    question = st.radio(
        "What is asked",
        questions,
        questions.index(_likely_question(files)),
        horizontal=True,
        key=_widget_key(files, "what"),
    )
    meanings = {**MEANINGS_BY_QUESTION[question], "language": "Language"}
    has_contrasts = question in QUESTIONS_WITH_CONTRASTS
    further_meanings = ["counterfactual", "split"] if has_contrasts else ["split"]
    guesses = guess_columns(files.values, [*meanings, *further_meanings], classes)
    if files.kind == "conll":
        guesses = {"words": files.columns[0], "labels": files.columns[-1]}
    unsure = unsure_meanings(files.values, meanings, guesses)
    column_by_meaning = dict[str, str | None]()
    for place, (meaning, title) in zip(st.columns(len(meanings)), meanings.items(), strict=True):
        column_by_meaning[meaning] = _pick_column(
            place,
            files,
            title,
            meaning,
            INSTEAD_OF_COLUMN.get(meaning, []),
            guesses,
            ask=meaning in unsure,
        )
    with st.expander("More columns"):
        group_place, id_place = st.columns(2)
        if has_contrasts and not _lacks_context(column_by_meaning):
            column_by_meaning["counterfactual"] = _pick_column(
                st,
                files,
                "Contrast: the text with another right answer",
                "counterfactual",
                [NO_COLUMN],
                guesses,
                help_text=CONTRAST_HELP,
            )
        column_by_meaning["group"] = _pick_column(
            group_place, files, "Rows that belong together", "group", [NO_COLUMN], guesses
        )
        column_by_meaning["id"] = _pick_column(
            id_place, files, "Name of the row, once in a split", "id", [NO_COLUMN], guesses
        )
    missing = [title for meaning, title in meanings.items() if column_by_meaning[meaning] is None]
    columns = {}
    for meaning, column in column_by_meaning.items():
        if column is not None and column not in (NO_COLUMN, SAME_IN_ALL_ROWS):
            columns[meaning] = column
    return columns, missing


def _lacks_context(column_by_meaning: Mapping[str, str | None]) -> bool:
    """Whether choices are whole texts, of which no context could be another."""
    return column_by_meaning.get("context") == NO_COLUMN


def _likely_question(files: ReadFiles) -> str:
    """The question of `MEANINGS_BY_QUESTION` that the files most likely answer."""
    if files.kind in LABELLED_WORD_FORMATS:
        return LABEL_EACH_WORD
    if guess_columns(files.values, ("choices",)):
        return FROM_CHOICES
    if label_each_word(files.values):
        return LABEL_EACH_WORD
    guesses = guess_columns(files.values, ("text", "pair", "label", "target"))
    if "text" not in guesses and isinstance(next(iter(files.rows[0].values()), None), list):
        return LABEL_EACH_WORD
    if "target" in guesses and "label" not in guesses:
        return GENERATED_TEXT
    return LABEL_EACH_TEXT


def _pick_column(
    place: Any,
    files: ReadFiles,
    title: str,
    meaning: str,
    no_column_options: list[str],
    guesses: Mapping[str, str],
    *,
    ask: bool = False,
    help_text: str | None = None,
) -> str | None:
    """A list of columns, with the one that is guessed; None while nothing is chosen.

    Args:
        place: Where the list is drawn.
        files: The files.
        title: Of the list.
        meaning: What the column is for.
        no_column_options: What may be chosen in place of a column.
        guesses: Columns by their meaning.
        ask: Whether a person has to choose even where no column is needed.
        help_text: Shown beside the title.
    """
    options = [*no_column_options, *files.columns]
    default_index = None
    if meaning in guesses:
        default_index = options.index(guesses[meaning])
    elif no_column_options and not ask:
        default_index = 0
    selected_column = place.selectbox(
        title,
        options,
        default_index,
        key=_widget_key(files, meaning),
        placeholder="Choose a column",
        help=help_text,
    )
    if selected_column is None:
        return None
    return str(selected_column)


def _pick_splits(
    files: ReadFiles, columns: dict[str, str], missing: list[str]
) -> tuple[tuple[Upload, ...], dict[Split, str], float | None]:
    """Which language and split the examples are of.

    Args:
        files: The files.
        columns: By meaning; gets the split's column, if one is chosen.
        missing: Titles of columns that must be chosen still; gets that of the split's, if it must.

    Returns:
        The files with their language and split, the names of the splits in a column, and the share
        of dev.
    """
    unused_values = {
        name: values for name, values in files.values.items() if name not in columns.values()
    }
    guesses = guess_columns(unused_values, ["split"])
    default_index = 1 if guesses else 0
    if all(_split_of_file_name(upload.name) for upload in files.uploads):
        default_index = 2
    how_place, detail_place = st.columns([3, 2])
    splits_by = how_place.radio(
        "Which examples are dev and test",
        [BY_SHARE, BY_COLUMN, BY_FILE],
        default_index,
        horizontal=True,
        key=_widget_key(files, "how"),
        help="Heads are chosen on dev; test is for reporting.",
    )
    splits: dict[Split, str] = {}
    dev_share = None
    if splits_by == BY_SHARE:
        dev_percent = detail_place.slider(
            "Share of dev, %", 10, 90, 50, 5, key=_widget_key(files, "share")
        )
        dev_share = dev_percent / 100
    elif splits_by == BY_COLUMN:
        column = _pick_column(detail_place, files, "Column", "split", [], guesses)
        if column is None:
            missing.append("the split")
        else:
            columns["split"] = column
            splits = _pick_split_names(files, column)
    ask_language = "language" not in columns
    ask_split = splits_by == BY_FILE
    uploads = []
    for index, upload in enumerate(files.uploads):
        uploads.append(_pick_language_and_split(files, index, upload, ask_language, ask_split))
    return tuple(uploads), splits, dev_share


def _pick_language_and_split(
    files: ReadFiles, upload_index: int, upload: Upload, ask_language: bool, ask_split: bool
) -> Upload:
    """A file with the language and the split that are chosen for it."""
    if not (ask_language or ask_split):
        return upload
    language_place, split_place = st.columns(2)
    file_name = plain(upload.name)
    language_code = None
    selected_split = None
    if ask_language:
        language_code = language_place.text_input(
            f"Language of {file_name}",
            _language_of_file_name(upload.name),
            key=_widget_key(files, f"code-{upload_index}"),
        ).strip()
    if ask_split:
        default_index = SPLITS.index(_split_of_file_name(upload.name) or "dev")
        selected_split = split_place.selectbox(
            f"Examples of {file_name}",
            SPLITS,
            default_index,
            key=_widget_key(files, f"split-{upload_index}"),
        )
    return replace(upload, language=language_code or None, split=selected_split)


def _pick_split_names(files: ReadFiles, column: str) -> dict[Split, str]:
    """What the data call the splits, one list for each split."""
    values = _first_values(files.uploads, files.kind, files.key, column)
    names: dict[Split, str] = {}
    for place, split in zip(st.columns(len(SPLITS)), SPLITS, strict=True):
        default_index = 0
        for position, value in enumerate(values, 1):
            if re.fullmatch(SPLIT_NAMES[split], value, re.I):
                default_index = position
                break
        split_value = place.selectbox(
            f"{split} is called",
            [NO_COLUMN, *values],
            default_index,
            key=_widget_key(files, f"called-{split}-{column}"),
        )
        if split_value != NO_COLUMN:
            names[split] = split_value
    return names


@st.cache_data(max_entries=8, ttl=3600, show_spinner=False)
def _first_values(_uploads: tuple[Upload, ...], kind: str, key: str, column: str) -> list[str]:
    """The first values of a column."""
    texts: dict[str, None] = {}
    for upload in _uploads:
        for record in read_upload(upload, kind):
            if isinstance(record, Record):
                texts[_cell_text(record.values.get(column))] = None
    return list(texts)[:50]


def _split_of_file_name(name: str) -> Split | None:
    """The split that a file's name tells."""
    parts = re.split(r"[^A-Za-z]+", name.lower())
    for split in SPLITS:
        if any(re.fullmatch(SPLIT_NAMES[split], part) for part in parts):
            return split
    return None


def _language_of_file_name(name: str) -> str:
    """The language code at the end of a file's name, whose split is left out; else English."""
    split_pattern = "|".join(SPLIT_NAMES.values())
    stem = re.sub(
        rf"(^|[._ -])({split_pattern})(?=[._ -]|$)",
        "",
        PurePosixPath(name).stem,
        flags=re.IGNORECASE,
    )
    match = re.search(r"(?:^|[._ -])([a-z]{2}(-[A-Z][A-Za-z]{1,3})?)$", stem)
    if match and language_title(match[1]) != match[1]:
        return match[1]
    return "en"


# Saving, and what to do with a saved task.


def _save_task(draft: Draft, draft_key: str) -> None:
    """Save a task.

    Args:
        draft: The task.
        draft_key: Of what the files are to mean; a refusal is shown beside it.
    """
    state = OwnTask.of_session()
    state.refused_draft = ""
    try:
        state.saved = worker_client().save_task(draft.to_json())
    except HeadlabError as error:
        state.refused_draft = draft_key
        state.refusal = f"Not saved: {as_sentence(error)}"


def _draw_saved_task(choice: Choice) -> None:
    """The task that was saved last: its declaration, command and the button that chooses it."""
    task = OwnTask.of_session().saved
    if task is None:
        return
    with st.container(border=True, key="own-saved"):
        st.markdown(f"**{plain(task.name)} is saved.**")
        path = (default_root() / task.path).absolute()
        job = ScoreJob.model_construct(
            **{**choice.job_fields, "task": str(path)},
            method=choice.method,
            languages=list(task.sizes),
        )
        with st.expander("The same from a terminal"):
            st.caption("Its declaration, which the command line and the worker read:")
            st.code(task.declaration, language="toml", wrap_lines=True)
            st.code(job.terminal_lines(), language="bash", wrap_lines=True)
        if task.name not in task_names():
            st.warning(
                "The worker keeps its results in another folder than this dashboard, so only the "
                "worker knows it."
            )
            return
        if choice.task == task.name:
            st.caption("This task is chosen in the sidebar; every page shows it.")
            if misfit := misfit_reason(choice):
                draw_misfit(choice, misfit)
                return
            page_link("overview", "Overview: its first map")
            page_link("prune", "Prune: its accuracy, and which heads it needs")
        else:
            model = _model_of_task(choice, task.name)
            if model != choice.model:
                st.caption(f"With the model checked above, {plain(model)}.")
            button(
                "Use this task",
                key="own-use-task",
                icon="check",
                kind="primary",
                on_press=_use_task_and_model,
                args=(task.name, model),
            )


def _model_of_task(choice: Choice, task_name: str) -> str:
    """The model that a saved task is used with: the one that was checked above, if it can be used.

    The sidebar's is kept where it can do the task and the other one cannot.
    """
    own_name = OwnModel.of_session().name
    if not own_name or own_name == choice.model or can_do(own_name, task_name):
        return own_name or choice.model
    own_choice = replace(choice, model=own_name, task=task_name, label_map=None)
    needs_label_map_alone = bool(misfit_reason(own_choice))
    if can_do(choice.model, task_name) or not needs_label_map_alone:
        return choice.model
    return own_name


def _use_task_and_model(task_name: str, model: str) -> None:
    """Choose a task, and the model that it is to be used with: the action of a click."""
    current = current_choice()
    if current is None or current.model != model:
        use_model(model)
    use_task(task_name)
