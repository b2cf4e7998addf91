"""Masks side by side: where they come from, what only one of them removes, and what to do with them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from headlab.core import (
    Floats,
    Head,
    HeadGrid,
    HeadlabError,
    JsonLike,
    as_sentence,
    content_key,
    fingerprint_of,
    is_same_model,
)
from headlab.dashboard.frame import Choice, StoredScores, open_page
from headlab.dashboard.names import head_words, language_title, plain, plain_name
from headlab.dashboard.panels import stored_gates
from headlab.dashboard.panels.accuracy import SEEN, SIZES, Known, Question, evaluated
from headlab.dashboard.panels.history import HISTORY, History, history_of
from headlab.dashboard.panels.stored_reports import weights_of
from headlab.dashboard.panels.suggestion import (
    MEAN_OF_LANGUAGES,
    RULES,
    Suggestion,
    origin_of_mask,
    pooled_scores,
    removal_warning,
    suggested_heads,
    usable_rules,
)
from headlab.dashboard.widgets import (
    button,
    download,
    draw_map,
    set_widget,
    show_table,
    uninterrupted,
    widget_values,
)
from headlab.masks import (
    FORMS,
    WAYS,
    Mask,
    Place,
    combine,
    compare,
    convert_out,
    mask_from_text,
    noted,
    snippet,
)
from headlab.masks.compare import (
    Difference,
    accuracy_notes,
    accuracy_table,
    by_layer_table,
    by_stack_table,
)
from headlab.pictures import head_map
from headlab.report.commands import NOT_SHRUNK
from headlab.worker.schemas import LoadedModel

# A mask for code without headlab: a script, a smaller model, and the forms of other tools.

FOREIGN = [form for form in FORMS if form != "headlab"]


def place_of(loaded: LoadedModel, name: str) -> Place:
    """Where a model has its output projections.

    Args:
        loaded: The worker's description of it.
        name: What `headlab.load` takes.
    """
    return Place(loaded.projections, loaded.architecture, loaded.source, loaded.revision, name)


def file_name(mask: Mask, model: str) -> str:
    """A file name for the mask that any system accepts: model, rule, languages and how many heads are off."""
    rule, languages = str(mask.chosen.get("rule") or ""), mask.chosen.get("languages")
    named = [str(name) for name in languages] if isinstance(languages, list) else []
    words = [rule, "-".join(named) if len(named) <= NAMED else f"{len(named)}-languages"]
    return "-".join(
        ["mask", *map(plain_name, [model, *filter(None, words)]), f"{len(mask.removed)}-off.json"]
    )


def shrink_command(model: str, file: str) -> str:
    """The command that writes a smaller model from a mask file."""
    return shlex.join(["headlab", "shrink", "--model", model, "--mask", file, "--out", "FOLDER"])


def dialog(mask: Mask, model: str, place: Place) -> None:
    """How to use a mask outside headlab; a popover."""
    with st.popover("Use it elsewhere", icon=":material/output:", width="content"):
        if not mask.removed:
            st.markdown("All heads are on: there is nothing to switch off elsewhere.")
            return
        script, smaller, others = st.tabs(["PyTorch script", "Smaller model", "Other tools"])
        with script:
            _script(mask, place)
        with smaller:
            _smaller(mask, model)
        with others:
            _others(mask)


def _smaller(mask: Mask, model: str) -> None:
    st.markdown("A mask alone makes no model smaller.")
    if mask.of_means:
        st.markdown(NOT_SHRUNK)
        return
    st.markdown(
        "This removes the heads from the weights permanently; export the mask, and run it in its folder:"
    )
    st.code(shrink_command(model, file_name(mask, model)), language="bash", wrap_lines=True)


def _script(mask: Mask, place: Place) -> None:
    try:
        text = snippet(mask, place)
    except HeadlabError as error:
        st.markdown(plain(f"There is no script for this mask: {error}."))
        return
    st.markdown("Torch and transformers 5 are enough; headlab is not needed where it runs.")
    download("Download the script", text, "apply_mask.py", "text/x-python", key="mask-script")
    st.code(text, language="python", height=320)


def _others(mask: Mask) -> None:
    form = st.selectbox(
        "Form", FOREIGN, format_func=lambda name: f"{name}: {FORMS[name]}", key="mask-form"
    )
    try:
        written = convert_out(mask, form)
    except HeadlabError as error:
        st.markdown(plain(f"{error}."))
        return
    st.code(written.decode().strip(), language=None, wrap_lines=True, height=160)
    st.caption(
        "Layers and heads count from 0. Only the heads are exported, not the model, the method or the accuracies."
    )


# The mask as a file: exported with the accuracies seen, and imported only if it belongs to this model.

NAMED = 3  # languages that a file name lists
MESSAGE, TAKEN, UPLOAD = "_import_message", "_import_taken", "mask-upload"


def with_seen(mask: Mask, question: Question, known: Known, languages: Sequence[str]) -> Mask:
    """The mask with the final accuracies this session has seen for it on any split."""
    chosen = dict(mask.chosen)
    for split in SIZES:
        asked = question.on(split)
        rows = {name: known[asked.key(name)] for name in languages if asked.key(name) in known}
        figures = evaluated(rows, asked).get("languages", {})
        stated = {} if asked.label_map is None else {"label_map": dict(asked.label_map)}
        chosen = noted(
            chosen, split, question.task, figures, size=asked.size, ablation="zero", **stated
        )
    return replace(mask, chosen=chosen)


def export(label: str, mask: Mask, name: str, key: str | None = None) -> None:
    """The button that saves a mask as a file."""
    download(label, mask_text(mask), name, "application/json", key=key)


def mask_text(mask: Mask) -> str:
    """A mask as a file holds it."""
    return json.dumps(mask.to_json(), ensure_ascii=False, indent=1)


def take(text: bytes, name: str, history: History, fingerprint: str) -> None:
    """Make an uploaded mask the current one.

    Args:
        text: Content of its file.
        name: Of the file.
        history: Of the mask that it replaces.
        fingerprint: Of the model that it is to be of.

    Raises:
        HeadlabError: If it does not fit; nothing is changed then.
    """
    mask = mask_from_text(text, name)
    mask.check(history.grid, fingerprint)
    history.put(mask.kept, {**_without_accuracies(mask), "imported": name})


def _without_accuracies(mask: Mask) -> dict[str, JsonLike]:
    """How a mask was chosen, without the accuracies that it records."""
    return {name: value for name, value in mask.chosen.items() if name != "evaluated"}


def draw(
    mask: Mask,
    history: History,
    loaded: LoadedModel,
    question: Question,
    known: Known,
    languages: Sequence[str],
) -> None:
    """The exports, as a file and for other tools, and the import. loaded: the worker's description of the model."""
    place = place_of(loaded, question.model)
    if place.architecture:
        mask = replace(mask, model={**mask.model, "architecture": dict(place.architecture)})
    with st.container(horizontal=True, gap="small"):
        # Once the last figure has arrived, the page reruns, so the file has it.
        export(
            "Export the mask (JSON)",
            with_seen(mask, question, known, languages),
            file_name(mask, question.model),
        )
        dialog(mask, question.model, place)
    st.file_uploader(
        "Import a mask",
        type="json",
        key=UPLOAD,
        on_change=uninterrupted(_uploaded),
        args=(history, question.fingerprint),
    )
    message = st.session_state.get(MESSAGE)
    if not message:
        return
    # A message stays until the mask changes; a click may have arrived with the upload, so count from here.
    state = (history.position, history.stamp)
    message.setdefault("when", state)
    if message["when"] == state:
        (st.success if message["ok"] else st.error)(plain(message["text"]))


def _uploaded(history: History, fingerprint: str) -> None:
    file = st.session_state.get(UPLOAD)
    if file is None or file.file_id == st.session_state.get(TAKEN):
        return
    st.session_state[TAKEN] = file.file_id
    try:
        take(file.getvalue(), file.name, history, fingerprint)
    except HeadlabError as error:
        text = f"Not imported, the mask is unchanged: {as_sentence(error)}"
        st.session_state[MESSAGE] = {"ok": False, "text": text}
        return
    removed_heads = len(history.mask.removed)
    text = f"Imported {file.name}: {removed_heads} of {history.grid.size} heads are off."
    st.session_state[MESSAGE] = {"ok": True, "text": text}


# The masks that the Masks page can compare: the Prune page's, files, suggestions from stored scores, learned gates.

NOW = "Prune page, now"
SHARE = 12  # a suggestion's default k is one head in this many


class Target(NamedTuple):
    """What is known of the chosen model: fingerprint of its weights, and its heads."""

    fingerprint: str | None
    grid: HeadGrid | None


def target_of(choice: Choice, results: StoredScores) -> Target:
    """The chosen model, as known from the worker, the cached results and this session's pruning."""
    known = None if results.first is None else fingerprint_of(results.first.spec)
    fingerprint = weights_of(choice.model) or (known if isinstance(known, str) else None)
    history = st.session_state.get(f"{HISTORY}{fingerprint}")
    if isinstance(history, History):
        return Target(fingerprint, history.grid)
    return Target(fingerprint, results.grid if known == fingerprint else None)


def gather(
    choice: Choice,
    results: StoredScores,
    uploaded: Mapping[str, Mask],
    wanted: Suggestion | None,
    target: Target,
) -> dict[str, Mask]:
    """Every mask that can be compared, by display name; those of the Prune page first."""
    return {
        **_of_the_prune_page(choice, target.fingerprint),
        **uploaded,
        **({} if wanted is None else suggestions(results, wanted)),
        **_of_gates(choice),
    }


def pick_rule(results: StoredScores) -> Suggestion | None:
    """The widgets that choose the rule by which the stored scores suggest a mask; None without scores."""
    if results.first is None:
        return None
    left, right = st.columns([3, 2])
    rules = [rule for rule in usable_rules(results.first) if rule != "threshold"]
    words = {rule: f"{rule}: {RULES[rule]}" for rule in rules}
    usual = rules.index("bottom")  # as many heads in each language, so that masks can be compared
    rule = left.selectbox(
        "Suggestions of the scores", rules, usual, words.__getitem__, key="masks-rule"
    )
    size = results.first.grid.size
    if rule != "bottom":
        return Suggestion(rule)
    k = right.number_input("k, heads to switch off", 0, size, max(1, size // SHARE), key="masks-k")
    return Suggestion(rule, k=int(k))


def suggestions(results: StoredScores, wanted: Suggestion) -> dict[str, Mask]:
    """The masks suggested by each language's scores and by their mean."""
    made, every = {}, dict(results.scores)
    if len(every) > 1 and (mean := pooled_scores(every, MEAN_OF_LANGUAGES)) is not None:
        every[MEAN_OF_LANGUAGES] = mean
    for name, scores in every.items():
        if wanted.rule not in usable_rules(scores):
            continue
        whose = (
            f"Mean of {len(results.scores)} languages"
            if name == MEAN_OF_LANGUAGES
            else language_title(name)
        )
        chosen, model = (
            origin_of_mask(scores, wanted, list(results.scores)),
            scores.spec.get("model"),
        )
        mask = Mask(
            scores.grid,
            suggested_heads(scores, wanted),
            {**model} if isinstance(model, Mapping) else {},
            chosen,
        )
        made[f"{whose}: {scores.method}, {wanted.rule}"] = mask
    return made


def _of_the_prune_page(choice: Choice, fingerprint: str | None) -> dict[str, Mask]:
    """The current mask of every model pruned in this session, if any head is off."""
    masks = {}
    for key, history in widget_values(HISTORY).items():
        if not isinstance(history, History) or not history.mask.removed:
            continue
        weights = key.removeprefix(HISTORY)
        if not is_same_model(weights, fingerprint):
            model = {"name": None, "fingerprint": weights}
            masks[f"{NOW}, another model ({weights[:8]})"] = replace(history.mask, model=model)
            continue
        mask = replace(history.mask, model={"name": choice.model, "fingerprint": weights})
        question = Question.of(
            choice.model, weights, choice.task, "dev", mask, label_map=choice.label_map
        )
        figures = st.session_state.get(SEEN, {})
        masks[NOW] = with_seen(mask, question, figures, choice.languages)
    return masks


def _of_gates(choice: Choice) -> dict[str, Mask]:
    made = {}
    for language, sweeps in stored_gates.shelf(choice).by_language.items():
        for run in (run for sweep in sweeps for run in sweep.runs):
            made[
                f"Gates of {language_title(language)}, λ {run.record.weight:g} ({run.key[:6]})"
            ] = run.record.mask()
    return made


def uploads() -> tuple[dict[str, Mask], list[str]]:
    """The masks of uploaded files by file name, and a sentence for each file that is not a mask."""
    files = st.file_uploader(
        "Mask files", type="json", accept_multiple_files=True, key="masks-files"
    )
    masks, problems = read_files(files or [])
    if masks:
        st.caption(plain(f"In the lists of A and B: {', '.join(masks)}."))
    _take_up(list(masks))
    return masks, problems


A, B = "masks-a", "masks-b"  # the lists' keys
BY_HAND, HELD = "_masks_by_hand", "_masks_held"


def _take_up(names: list[str]) -> None:
    """Choose the masks that were uploaded just now: as B, and as A; what was chosen by hand stays."""
    state = st.session_state
    fresh = [name for name in names if name not in state.get(HELD, ())]
    state[HELD] = names
    free = [key for key in (A, B) if key not in state or key not in state.get(BY_HAND, ())]
    most = min(len(fresh), len(free))
    for key, name in zip(free[len(free) - most :], fresh[len(fresh) - most :], strict=True):
        set_widget(key, name)


def pick_two(names: Sequence[str]) -> tuple[str, str]:
    """The two masks to compare; by default the first two."""
    chosen = []
    for place, (letter, key) in zip(st.columns(2), (("A", A), ("B", B)), strict=True):
        if st.session_state.get(key) not in names:
            st.session_state.pop(key, None)  # from a removed file or another choice
        start = 0 if key == A else min(1, len(names) - 1)
        if key not in st.session_state:
            st.session_state[BY_HAND] = [
                other for other in st.session_state.get(BY_HAND, ()) if other != key
            ]
        chosen.append(
            place.selectbox(
                letter, names, start, key=key, on_change=uninterrupted(_by_hand), args=(key,)
            )
        )
    return chosen[0], chosen[1]


def _by_hand(key: str) -> None:
    st.session_state[BY_HAND] = [*st.session_state.get(BY_HAND, ()), key]


def read_files(files: Sequence[UploadedFile]) -> tuple[dict[str, Mask], list[str]]:
    """Masks of files by name, equal names numbered; and a sentence for each file that is not a mask."""
    made: dict[str, Mask] = {}
    problems = []
    for file in files:
        name, count = file.name, 2
        while name in made:
            name, count = f"{file.name} ({count})", count + 1
        try:
            made[name] = mask_from_text(file.getvalue(), file.name)
        except HeadlabError as error:
            problems.append(as_sentence(error))
    return made, problems


# Two masks side by side: their maps, what only one of them removes, and the accuracies they store.

READING = "Rows are layers, columns are heads, both counted from 0."


def maps(names: tuple[str, str], a: Mask, b: Mask) -> Difference | None:
    """Maps and counts of two masks, and their difference; for different grids only the maps, with the reason."""
    try:
        found = compare(a, b)
    except HeadlabError as error:
        found = None
        st.warning(plain(f"{error}."))
    places = st.columns(2 if found is None else 3, gap="medium")
    with places[0]:
        _map("A", names[0], a)
    with places[-1]:
        _map("B", names[1], b)
    if found is not None:
        with places[1]:
            _difference(found)
        st.caption(READING)
        _counts(found)
    return found


def _map(letter: str, name: str, mask: Mask) -> None:
    kept = mask.kept.astype(np.float64)
    tips = ["kept" if on else "off" for on in mask.kept]
    title = f"{letter}: {len(mask.removed)} of {mask.grid.size} off"
    shown = head_map(
        kept, mask.grid, limit=1.0, signed=False, tips=tips, named=((1, "kept"), (0, "off"))
    )
    draw_map(shown, key=f"masks-map-{letter}", title=title, compact=True)
    st.caption(plain(name))


APART = (
    (-1.0, "only A switches it off"), (1.0, "only B switches it off"), (0.0, "both keep it"),
    (float("nan"), "both switch it off"),
)  # fmt: skip


def _difference(found: Difference) -> None:
    values = difference_values(found)
    tips = [
        next(words for of, words in APART if of == value or np.isnan([of, value]).all())
        for value in values
    ]
    title = f"Different: {len(found.only_a) + len(found.only_b)}"
    shown = head_map(values, found.grid, limit=1.0, tips=tips, named=APART)
    draw_map(shown, key="masks-map-apart", title=title, compact=True)


def difference_values(found: Difference) -> Floats:
    """Float [head]: -1 where only A removes, 1 where only B does, 0 where both keep, NaN where both remove."""
    return np.where(found.a & found.b, np.nan, found.b.astype(np.float64) - found.a)


def _counts(found: Difference) -> None:
    with st.container(horizontal=True, gap="medium"):
        values = (
            *(str(len(heads)) for heads in (found.only_a, found.only_b, found.both)),
            f"{found.jaccard:.2f}",
        )
        for (label, about), value in zip(HELP.items(), values, strict=True):
            st.metric(label, value, width="content", help=about)


HELP = {
    "Only A": "Heads that A switches off and B keeps",
    "Only B": "Heads that B switches off and A keeps",
    "Both": "Heads that both switch off",
    "Jaccard": "Both, as a share of what either switches off: 1 = the same mask",
}


def tables(a: Mask, b: Mask, found: Difference) -> None:
    """What only one of two masks removes, by head, layer and stack, and their accuracies."""
    accuracies = accuracy_table({"A": a, "B": b})
    if accuracies.rows:
        show_table(accuracies, "masks")
        for note in accuracy_notes([a, b]):
            st.caption(plain(note))
    else:
        st.caption(
            "Neither mask holds accuracies. Open one on the Prune page, which measures it, and come back; or measure a "
            "file with headlab evaluate."
        )
    show_table(by_layer_table(found), "masks")
    if len(found.grid.stacks) > 1:
        show_table(by_stack_table(found), "masks")
    _only("Only A switches off", found.only_a, found)
    _only("Only B switches off", found.only_b, found)


def _only(words: str, heads: tuple[Head, ...], found: Difference) -> None:
    several = len(found.grid.stacks) > 1
    listed = "; ".join(head_words(head, several) for head in heads) or "none"
    with st.expander(f"{words}: {len(heads)}"):
        st.markdown(plain(f"{listed}."))


# What to do with compared masks: open one on the Prune page, combine several, export the result.


def openers(choice: Choice, masks: Mapping[str, Mask], target: Target) -> None:
    """A button for each mask (by letter) that opens it on the Prune page, or the reason why it cannot."""
    troubles = {}
    with st.container(horizontal=True, gap="small"):
        for letter, mask in masks.items():
            troubles[trouble(mask, target)] = letter
            _opener(
                choice, f"Open {letter} on the Prune page", f"masks-open-{letter}", mask, target
            )
    for sentence in filter(None, troubles):
        st.caption(plain(sentence))


def _opener(choice: Choice, label: str, key: str, mask: Mask, target: Target) -> None:
    button(
        label, key=key, icon="content_cut", disabled=bool(trouble(mask, target)), on_press=_open,
        args=(choice, mask, target.fingerprint),
    )  # fmt: skip


def trouble(mask: Mask, target: Target) -> str:
    """Why a mask cannot be opened on the Prune page of the chosen model; empty where it can."""
    made_for = mask.model.get("fingerprint")
    if target.fingerprint is None or (target.grid is None and not made_for):
        return "The chosen model is not known here yet: open the Prune page once, or wait for the worker."
    if made_for and not is_same_model(made_for, target.fingerprint):
        name = str(mask.model.get("name") or "another model")
        return f"A mask made for {name} ({str(made_for)[:12]}) opens once that model is chosen in the sidebar."
    if target.grid is not None and mask.grid != target.grid:
        return f"A mask of {mask.grid} does not fit the chosen model, which has {target.grid}."
    return ""


def _open(choice: Choice, mask: Mask, fingerprint: str) -> None:
    history_of(fingerprint, mask.grid).put(mask.kept, _without_accuracies(mask))
    open_page("prune", choice)


def combiner(choice: Choice, masks: Mapping[str, Mask], first: list[str], target: Target) -> None:
    """Combine several masks into one, to open or export. first: names chosen initially."""
    st.subheader("Combine several masks into one")
    options = list(masks)
    names = st.multiselect(
        "Masks", options, default=first, key=f"masks-several-{content_key(options)[:12]}"
    )
    how = st.radio(
        "Way", list(WAYS), captions=list(WAYS.values()), key="masks-way", horizontal=True
    )
    try:
        made = combine([masks[name] for name in names], how)
    except HeadlabError as error:
        st.info(plain(f"{as_sentence(error)[:1].upper()}{as_sentence(error)[1:]}"))
        return
    st.markdown(f"**{len(made.removed)} of {made.grid.size} heads** would be off.")
    if note := made.chosen.get("note"):
        st.caption(plain(f"{note}."))
    if sentence := removal_warning(made.kept):
        st.warning(sentence)
    with st.container(horizontal=True, gap="small"):
        _opener(choice, "Open it on the Prune page", "masks-open-combined", made, target)
        name = file_name(made, str(made.model.get("name") or "model"))
        export("Export it (JSON)", made, name, key="masks-export")
    if sentence := trouble(made, target):
        st.caption(plain(sentence))
