"""A model with a mask built in: what is asked of the worker, and what it has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from headlab.core import HeadlabError, size_text
from headlab.dashboard.frame import (
    Choice,
    errors_as_sentences,
    loaded_model,
    open_page,
    supervisor,
    worker_client,
)
from headlab.dashboard.names import language_title, languages_words, plain
from headlab.dashboard.panels.jobs import (
    LIVE_STATES,
    draw_forecast,
    draw_job_progress,
    job_of_row,
    rerun_when_jobs_change,
    show_last_failure,
    show_terminal_commands,
    start_job,
)
from headlab.dashboard.panels.jobs.job_actions import failure_sentence
from headlab.dashboard.panels.masks.mask_figures import signed_points
from headlab.dashboard.widgets import button
from headlab.jobs import Job
from headlab.jobs.export import SHAPES_KEPT
from headlab.jobs.table import WriteJob
from headlab.jobs.written_model import difference_text
from headlab.masks import Mask
from headlab.methods import FIRST_MAP_METHOD, is_encoder
from headlab.results import default_root
from headlab.tasks import DEV_SIZE
from headlab.worker import JobRow, LoadedModel

MILLION = 1e6
FORM_TITLES: Mapping[str, str] = {
    "small": "Smaller: without what is off",
    "onnx": "Smaller, as ONNX",
    "gguf": "Smaller, as GGUF for llama.cpp",
    SHAPES_KEPT: "Same size, for transformers",
}
FORM_NOTES: Mapping[str, str] = {
    "small": "What is off leaves the weights. headlab loads it.",
    "onnx": "What is off leaves the weights; onnxruntime runs it. Needs the extra `headlab[onnx]`.",
    "gguf": "For Llama and Mistral; heads leave in whole groups. Needs the extra `headlab[gguf]`.",
    SHAPES_KEPT: (
        "The mask is built into the weights; transformers reads it without headlab. It saves no "
        "memory and no time."
    ),
}
ONLY_SAME_SIZE = (
    "These {} were chosen under mean ablation: they go on giving their mean, so they cannot "
    "leave the weights."
)
BEYOND_WEIGHTS = (
    "These {} were chosen to give their output on another or a shorter text, which no weights can hold: "
    "choose a mask made with zero ablation."
)
NO_FORM = (
    "Nothing of this model can be removed or silenced in its weights: one layer serves several "
    "times, or headlab does not know the family."
)
VOCABULARY_HELP = (
    "Pieces that only other languages use leave the embeddings, most of a multilingual model. "
    "Needs the extra `headlab[vocabulary]`."
)


def why_not_removable(mask: Mask) -> str:
    """Why what a mask switches off cannot leave the weights, in a sentence; empty where it can.

    It is because of what the mask was chosen under, as `headlab.shrink` refuses it. A model may
    still not be one that anything can be removed from.

    Args:
        mask: Of heads, or of other players.
    """
    if not mask.removed:
        return ""
    if mask.beyond_weights:
        return BEYOND_WEIGHTS.format(mask.grid.noun)
    return ONLY_SAME_SIZE.format(mask.grid.noun) if mask.of_means else ""


def forms_for(mask: Mask, model: LoadedModel) -> list[str]:
    """The forms that a model may be written in under a mask, by their keys.

    What else speaks against one, the job says when it reads the weights.

    Args:
        mask: Of the heads that go.
        model: The worker's description of the model.
    """
    if mask.beyond_weights:
        return []
    can_shrink = not mask.of_means and (model.costs is None or bool(model.costs.layers))
    is_layer_shared = len(set(model.projections)) < len(model.projections)
    is_possible = {
        "small": can_shrink,
        "onnx": can_shrink,
        "gguf": can_shrink and not is_encoder(mask.grid),
        SHAPES_KEPT: not is_layer_shared,
    }
    return [form for form in FORM_TITLES if is_possible[form]]


def write_job(choice: Choice, mask: Mask, form: str, *, cuts_vocabulary: bool) -> WriteJob:
    """The job that writes a model.

    The mask is without the time at which it was made, so that equal masks make the same job.

    Args:
        choice: The model, and the task and the languages whose examples are compared.
        mask: Of the heads that go.
        form: How it is written.
        cuts_vocabulary: Whether only these languages' vocabulary stays.
    """
    fields: dict[str, Any] = {**choice.job_fields, "languages": list(choice.languages)}
    if cuts_vocabulary != (form != SHAPES_KEPT):  # otherwise it is the form's default
        fields["vocabulary"] = "cut" if cuts_vocabulary else "keep"
    if mask.of_means and mask.removed:
        languages = [code for code in mask.languages if code in choice.languages]
        if languages and not cuts_vocabulary:  # a cut vocabulary is that of the chosen languages
            fields["languages"] = languages
        # as many examples of each language as its mean was taken on when the mask was chosen
        fields["size"] = DEV_SIZE * len(fields["languages"])
    if mask.removed:
        mask_record = mask.to_json()
        del mask_record["created"]
        fields["mask"] = mask_record
    return WriteJob.model_construct(form=form, **fields)


def offer_written_model(label: str, choice: Choice, mask: Mask, key: str) -> None:
    """A button that unfolds the form for a written model; nothing is asked while it is folded.

    Args:
        label: Of the button.
        choice: The sidebar's.
        mask: Of the heads that go.
        key: What the keys of the form's widgets start with.
    """
    popover = st.popover(
        label, icon=":material/save_as:", width="content", key=f"{key}-write", on_change="rerun"
    )
    if not popover.open:
        return
    with popover, errors_as_sentences():
        draw_write_form(choice, mask, loaded_model(choice.model), key)


def draw_write_form(choice: Choice, mask: Mask, model: LoadedModel, key: str) -> None:
    """The form, the button, and the cost, or what was written before.

    Args:
        choice: The sidebar's.
        mask: Of the heads that go.
        model: The worker's description of the model.
        key: What the keys of the widgets start with.
    """
    forms = forms_for(mask, model)
    if not forms:
        st.markdown(BEYOND_WEIGHTS.format(mask.grid.noun) if mask.beyond_weights else NO_FORM)
        return
    form = st.selectbox("Form", forms, format_func=FORM_TITLES.__getitem__, key=f"{key}-form")
    st.caption(FORM_NOTES[form])
    if mask.of_means:
        st.caption(ONLY_SAME_SIZE.format(mask.grid.noun))
    languages = plain(languages_words(choice.languages))
    cuts_vocabulary = bool(choice.languages) and st.checkbox(
        f"Only the vocabulary of {languages}", key=f"{key}-vocabulary", help=VOCABULARY_HELP
    )
    if not mask.removed and not cuts_vocabulary:
        st.caption(f"All {mask.grid.noun} are on: switch some off, or cut the vocabulary.")
        return
    job = write_job(choice, mask, form, cuts_vocabulary=cuts_vocabulary)
    folder = job.folder()
    rows = [row for row in written_rows() if writes_to(row, folder)]
    live_rows = [row for row in rows if row.state in LIVE_STATES]
    done_rows = [row for row in rows if row.state == "done"]
    button(
        "Write it again" if done_rows else "Write it",
        kind="secondary" if done_rows else "primary",
        icon="save_as",
        key=f"{key}-start",
        on_press=start_job,
        args=(job,),
    )
    if rows and rows[0].state == "failed":
        st.error(plain(failure_sentence(rows[0])))
    else:
        show_last_failure()
    if live_rows:
        draw_job_progress(live_rows[0], f"Job {live_rows[0].id}")
        rerun_when_jobs_change(live_rows)
    elif done_rows:
        draw_written_model(job, done_rows[0])
    else:
        draw_forecast(job, "", "")
    show_terminal_commands(job)


def written_rows() -> Sequence[JobRow]:
    """The jobs that write models, the newest first; none if no worker is connected."""
    if not supervisor().is_connected:
        return []
    rows = [row for row in worker_client().jobs() if row.kind == WriteJob.key]
    return sorted(rows, key=lambda row: -row.id)


def writes_to(row: JobRow, folder: str) -> bool:
    """Whether a job in the list writes a folder: the same model, whatever its mask comes from."""
    listed_job = job_of_row(row)
    try:
        return isinstance(listed_job, WriteJob) and listed_job.folder() == folder
    except HeadlabError:  # the mask is of another version of headlab
        return False


def draw_written_model(job: Job, job_row: JobRow) -> None:
    """Where a finished job has written its model, what it saves, and what was proved.

    Args:
        job: The job.
        job_row: It in the worker's list.
    """
    outcome = job_row.result or {}
    folder = str(outcome.get("folder", ""))
    path = default_root().absolute() / folder
    is_here = bool(folder) and path.is_dir()
    if is_here:
        st.markdown("**Written to:**")
        st.code(str(path), language=None, wrap_lines=True)
    else:
        st.markdown(
            f"**Written to** {plain(folder)}, below the cache folder of the worker. This page does "
            "not find it there: the folder is gone, or the worker has another cache."
        )
    st.markdown(plain(savings_sentence(outcome)))
    st.caption(plain(proof_sentence(outcome)))
    for sentence in vocabulary_sentences(outcome):
        st.caption(plain(sentence))
    if is_here and outcome.get("form") != "gguf":
        button(
            "Open it in headlab",
            icon="grid_view",
            key=f"open-written-{job_row.id}",
            on_press=_open_written,
            args=(path, job),
        )


def savings_sentence(outcome: Mapping[str, Any]) -> str:
    """How large a written model is, and how large the original.

    Args:
        outcome: Of the job, as `headlab export --json` prints it.
    """
    before, after = outcome["parameters_before"], outcome["parameters_after"]
    millions = f"{before / MILLION:,.1f} M"
    parameters = f"{millions}, as before"
    if after != before:
        saved_percent = 100 * (before - after) / before
        percent_text = f"{saved_percent:.1f}" if saved_percent >= 1 else f"{saved_percent:.1g}"
        parameters = f"{millions} → {after / MILLION:,.1f} M (−{percent_text} %)"
    weights = f"{size_text(outcome['bytes_before'])} → {size_text(outcome['bytes_after'])}"
    return f"Parameters: {parameters}. Weights: {weights}."


def proof_sentence(outcome: Mapping[str, Any]) -> str:
    """How far a written model's answers are from the masked one's.

    Args:
        outcome: Of the job.
    """
    return (
        f"Read back and compared on {outcome['examples']} examples: its logits differ from the "
        f"masked model's by {difference_text(outcome)} (rounding explains "
        f"{outcome['tolerance']:.1g}). proof.json has the details."
    )


def vocabulary_sentences(outcome: Mapping[str, Any]) -> list[str]:
    """What a cut vocabulary loses, and what that does to the accuracy; none if it was kept.

    Args:
        outcome: Of the job.
    """
    if "pieces_lost" not in outcome:
        return []
    losses = [
        f"{language_title(language)} {100 * share:.1f} %"
        for language, share in outcome["pieces_lost"].items()
    ]
    sentences = [f"Pieces of held-out texts that are gone: {', '.join(losses)}."]
    differences = [
        f"{language_title(language)} {_difference_text(figure)}"
        for language, figure in outcome["accuracy"].items()
    ]
    if differences:
        sentences.append(
            f"Accuracy on test against the untouched model, in points: {', '.join(differences)}."
        )
    return sentences


def _difference_text(figure: Mapping[str, float]) -> str:
    """A difference of accuracies in points with its interval."""
    difference, low, high = [signed_points(figure[name]) for name in ("difference", "low", "high")]
    return f"{difference} [{low}, {high}]"


def _open_written(path: Path, job: Job) -> None:
    """Open a written model on the Overview, with the task and the languages of the job."""
    choice = Choice(
        str(path),
        str(job.field_value("task")),
        tuple(job.language_codes),
        FIRST_MAP_METHOD,
        job.field_value("label_map"),
    )
    open_page("overview", choice)
