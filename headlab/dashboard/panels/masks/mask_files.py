"""Masks as files: download, upload, models that are written with them, and code that uses them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import streamlit as st

from headlab.core import HEADS, HeadlabError, JsonLike, as_sentence, nouns_of_kinds
from headlab.dashboard.frame import Choice
from headlab.dashboard.names import plain, plain_name
from headlab.dashboard.panels.masks.history import MaskHistory
from headlab.dashboard.panels.masks.mask_figures import (
    EXAMPLES_BY_SPLIT,
    AccuracyQuestion,
    KnownFigures,
    accuracies_for_mask_file,
    figures_known,
)
from headlab.dashboard.panels.masks.model_players import ModelPlayers
from headlab.dashboard.panels.masks.model_players import place_of as place_of
from headlab.dashboard.panels.masks.written_models import offer_written_model
from headlab.dashboard.widgets import PageState, download_button, uninterrupted
from headlab.masks import (
    FORMS,
    Mask,
    ScriptModel,
    convert_out,
    mask_from_text,
    mask_of_heads,
    mask_script,
    noted,
)

# A mask for code without headlab: a script, and the forms of other tools.

FOREIGN_FORMS = [form for form in FORMS if form != "headlab"]
MAX_NAMED_LANGUAGES = 3
"""Languages that a file name lists; of more it says how many."""


def mask_file_name(mask: Mask, model: str) -> str:
    """A file name for the mask that any system accepts.

    It says the model, the rule, the languages and how many heads are off.
    """
    rule = str(mask.chosen.get("rule") or "")
    languages = mask.chosen.get("languages")
    codes = [str(code) for code in languages] if isinstance(languages, list) else []
    languages_part = "-".join(codes)
    if len(codes) > MAX_NAMED_LANGUAGES:
        languages_part = f"{len(codes)}-languages"
    parts = [plain_name(part) for part in (model, rule, languages_part) if part]
    return "-".join(["mask", *parts, f"{len(mask.removed)}-off.json"])


def draw_use_elsewhere(mask: Mask, place: ScriptModel, why_unknown: str = "") -> None:
    """How to use a mask outside headlab; a popover.

    Args:
        mask: The mask.
        place: Where the model has what is off.
        why_unknown: Why that is not known, in a sentence; else empty.
    """
    with st.popover("Use it elsewhere", icon=":material/output:", width="content"):
        if not mask.removed:
            st.markdown(f"All {mask.grid.noun} are on: there is nothing to switch off elsewhere.")
            return
        script, none_words = _script_of(mask, place, why_unknown)
        script_tab, other_tools_tab = st.tabs(["PyTorch script", "Other tools"])
        with script_tab:
            if script:
                _draw_script(script)
            else:
                st.markdown(plain(none_words))
        with other_tools_tab:
            _draw_other_tools(mask, place, has_script=bool(script))


def _script_of(mask: Mask, place: ScriptModel, why_unknown: str) -> tuple[str, str]:
    """The script that applies a mask, or an empty one and why there is none, in sentences.

    Args:
        mask: Of which something is off.
        place: Where the model has what is off.
        why_unknown: Why that is not known, in a sentence; else empty.
    """
    if place.players is None and mask_of_heads(mask) is None:
        return "", f"There is no script for this mask. {why_unknown}"
    try:
        return mask_script(mask, place), ""
    except HeadlabError as error:
        return "", f"There is no script for this mask: {as_sentence(error)}"


def _draw_script(script: str) -> None:
    st.markdown("Torch and transformers 5 are enough; headlab is not needed where it runs.")
    download_button(
        "Download the script", script, "apply_mask.py", "text/x-python", key="mask-script"
    )
    st.code(script, language="python", height=320)


def _draw_other_tools(mask: Mask, place: ScriptModel, *, has_script: bool) -> None:
    of_heads = mask_of_heads(mask, place.players)
    if of_heads is None:
        sentence = f"Other tools know attention heads only, and here {others_off(mask)} off."
        if has_script:
            sentence += " The script switches off all of it."
        st.markdown(sentence)
        return
    form = st.selectbox(
        "Form", FOREIGN_FORMS, format_func=lambda name: f"{name}: {FORMS[name]}", key="mask-form"
    )
    try:
        mask_bytes = convert_out(of_heads, form)
    except HeadlabError as error:
        st.markdown(plain(f"{error}."))
        return
    st.code(mask_bytes.decode().strip(), language=None, wrap_lines=True, height=160)
    st.caption(
        "Layers and heads count from 0. Only the heads are exported, not the model, the method or the accuracies."
    )


def others_off(mask: Mask) -> str:
    """What is off that other tools have no form for, with its verb: "2 groups of neurons are".

    Args:
        mask: Of any players.
    """
    counts = Counter(mask.grid.kind_of(player) for player in mask.removed)
    phrases = []
    for kind in mask.grid.kinds:
        if counts[kind] and kind != HEADS:
            one, several = nouns_of_kinds([kind])
            phrases.append(f"{counts[kind]:,} {one if counts[kind] == 1 else several}")
    *earlier, last = phrases
    listed = f"{', '.join(earlier)} and {last}" if earlier else last
    verb = "is" if sum(counts.values()) - counts[HEADS] == 1 else "are"
    return f"{listed} {verb}"


# The mask as a file: exported with the accuracies seen, and imported only if it belongs to this
# model.

UPLOAD = "mask-upload"
"""Key of the widget that takes a mask."""


@dataclass
class MaskImport(PageState):
    """The mask that one session has imported last.

    Attributes:
        file_id: Streamlit's name of its file, which later runs bring again; empty if there is none.
        message: Whether it was imported, or why not; empty if there is nothing to say.
        is_imported: Whether the message tells of a success.
        drawn_at: Position and stamp of the history when the message was first drawn; None before.
    """

    key = "_import_message"
    file_id: str = ""
    message: str = ""
    is_imported: bool = False
    drawn_at: tuple[int, int] | None = None

    def tell(self, message: str, *, is_imported: bool) -> None:
        """Show a message until the mask changes."""
        self.message = message
        self.is_imported = is_imported
        self.drawn_at = None


def with_measured_accuracies(
    mask: Mask, question: AccuracyQuestion, known_figures: KnownFigures, languages: Sequence[str]
) -> Mask:
    """The mask with the final accuracies this session has seen for it on any split."""
    origin = dict(mask.chosen)
    for split in EXAMPLES_BY_SPLIT:
        split_question = question.on_split(split)
        figures_by_language = figures_known(split_question, languages, known_figures)
        accuracies = accuracies_for_mask_file(figures_by_language, split_question).get(
            "languages", {}
        )
        label_map = split_question.label_map
        label_map_field = {} if label_map is None else {"label_map": dict(label_map)}
        origin = noted(
            origin,
            split,
            question.task,
            accuracies,
            size=split_question.size,
            ablation=question.ablation,
            **label_map_field,
        )
    return replace(mask, chosen=origin)


def offer_mask_file(
    label: str, mask: Mask | Callable[[], Mask], name: str, key: str | None = None
) -> None:
    """The button that saves a mask as a file.

    Args:
        label: Of the button.
        mask: The mask, or what makes it when the button is pressed.
        name: Of the file.
        key: Widget key.
    """
    if isinstance(mask, Mask):
        download_button(label, mask.to_text(), name, "application/json", key=key)
        return
    make_mask = mask

    def make_text() -> str:
        return make_mask().to_text()

    download_button(label, make_text, name, "application/json", key=key)


def take_uploaded_mask(
    content: bytes, file_name: str, history: MaskHistory, fingerprint: str
) -> None:
    """Make an uploaded mask the current one.

    Args:
        content: Of its file.
        file_name: Of the file.
        history: Of the mask that it replaces.
        fingerprint: Of the model that it is to be of.

    Raises:
        HeadlabError: If it does not fit; nothing is changed then.
    """
    mask = mask_from_text(content, file_name)
    mask.check(history.grid, fingerprint)
    history.set_mask(mask.kept, {**choice_without_accuracies(mask), "imported": file_name})


def choice_without_accuracies(mask: Mask) -> dict[str, JsonLike]:
    """How a mask was chosen, without the accuracies that it records."""
    return {name: value for name, value in mask.chosen.items() if name != "evaluated"}


def draw_mask_files(
    mask: Mask,
    history: MaskHistory,
    players: ModelPlayers,
    question: AccuracyQuestion,
    known_figures: KnownFigures,
    choice: Choice,
) -> None:
    """Draw the exports, as a file, as a model and for other tools, and the import.

    Args:
        mask: That is exported.
        history: Of the mask that an import replaces.
        players: What is known of the model's players.
        question: Of the mask's accuracy.
        known_figures: Final figures of this session, of which the file has those of this mask.
        choice: The sidebar's; the file has the accuracies in its languages.
    """
    place = players.place
    if place.architecture:
        mask = replace(mask, model={**mask.model, "architecture": dict(place.architecture)})
    with st.container(horizontal=True, gap="small"):
        # Made at the press: the last figure may have arrived since this was drawn.
        make_mask = partial(
            with_measured_accuracies, mask, question, known_figures, choice.languages
        )
        offer_mask_file("Export the mask (JSON)", make_mask, mask_file_name(mask, question.model))
        offer_written_model("Write the model", choice, mask, "model")
        draw_use_elsewhere(mask, place, players.why_unknown)
    st.file_uploader(
        "Import a mask",
        type="json",
        key=UPLOAD,
        on_change=uninterrupted(_import_upload),
        args=(history, question.fingerprint),
    )
    mask_import = MaskImport.of_session()
    if not mask_import.message:
        return
    # A message stays until the mask changes; a click may have arrived with the upload, so count
    # from here.
    position_and_stamp = (history.position, history.stamp)
    if mask_import.drawn_at is None:
        mask_import.drawn_at = position_and_stamp
    if mask_import.drawn_at == position_and_stamp:
        show_message = st.success if mask_import.is_imported else st.error
        show_message(plain(mask_import.message))


def _import_upload(history: MaskHistory, fingerprint: str) -> None:
    file = st.session_state.get(UPLOAD)
    mask_import = MaskImport.of_session()
    if file is None or file.file_id == mask_import.file_id:
        return
    mask_import.file_id = file.file_id
    try:
        take_uploaded_mask(file.getvalue(), file.name, history, fingerprint)
    except HeadlabError as error:
        reason = as_sentence(error)
        mask_import.tell(f"Not imported, the mask is unchanged: {reason}", is_imported=False)
        return
    removed_count = len(history.mask.removed)
    verb = "is" if removed_count == 1 else "are"
    heads_off = f"{removed_count} of {history.grid.count_words(history.grid.size)} {verb} off"
    mask_import.tell(f"Imported {file.name}: {heads_off}.", is_imported=True)
