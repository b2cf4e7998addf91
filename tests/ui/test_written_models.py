"""The form that writes a model, with a worker that is only a list of jobs."""

from __future__ import annotations

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest
from support.cached_scores import GRID, MODEL
from support.fake_client import loaded_model
from support.page_actions import choose, press
from support.submitted_jobs import submitted_jobs

from headlab.core import HeadGrid, Stack
from headlab.dashboard.frame import Choice
from headlab.dashboard.panels.masks.written_models import (
    NO_FORM,
    forms_for,
    proof_sentence,
    savings_sentence,
    write_job,
    writes_to,
)
from headlab.masks import Mask, mask_from_json
from headlab.studies.savings import Costs

pytestmark = pytest.mark.usefixtures("native_buttons")

CHOICE = Choice(MODEL, "intents", ("de", "th"), "shapley")
MEAN = {"ablation": "mean", "task": "intents", "languages": ["th"]}
NOT_REMOVABLE = Costs(1000, (0, 0, 0), (), "of an unknown family")
DECODER = HeadGrid((Stack("decoder", (2, 2)),))


def mask_without(*removed_heads, grid=GRID, **chosen):
    kept_heads = np.ones(grid.size, bool)
    kept_heads[list(removed_heads)] = False
    return Mask(grid, kept_heads, {"name": MODEL, "fingerprint": "0" * 64}, chosen)


def write_form(mask, model=None) -> AppTest:
    """The form for a mask, drawn."""

    def body(choice, mask, model):
        from headlab.dashboard.panels.masks.written_models import draw_write_form

        draw_write_form(choice, mask, model, "model")

    arguments = (CHOICE, mask, model or loaded_model(MODEL))
    app = AppTest.from_function(body, args=arguments, default_timeout=30).run()
    assert not app.exception
    return app


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in (*app.markdown, *app.caption))


@pytest.mark.parametrize(
    ("mask", "model", "forms"),
    [
        (mask_without(5), loaded_model(MODEL), ["small", "onnx", "folder"]),
        (mask_without(1, grid=DECODER), loaded_model("d"), ["small", "onnx", "gguf", "folder"]),
        (mask_without(5, **MEAN), loaded_model(MODEL), ["folder"]),
        (mask_without(5), loaded_model(MODEL, costs=NOT_REMOVABLE), ["folder"]),
        (mask_without(5), loaded_model(MODEL, projections=["a"] * 12), ["small", "onnx"]),
        (mask_without(5, **MEAN), loaded_model(MODEL, projections=["a"] * 12), []),
    ],
)
def test_only_forms_that_may_be_written_are_offered(mask, model, forms):
    assert forms_for(mask, model) == forms


def test_a_model_that_cannot_be_written_is_said_to_be_one(worker):
    model = loaded_model(MODEL, costs=NOT_REMOVABLE, projections=["a"] * 12)
    app = write_form(mask_without(5), model)
    assert NO_FORM in texts(app)
    assert not app.button


def test_a_press_queues_the_model_that_is_shown(worker):
    app = write_form(mask_without(5, rule="by hand"))
    assert "What is off leaves the weights" in texts(app)
    assert "**About 2 min**" in texts(app)
    choose(app, "model-form", "folder")
    app.checkbox(key="model-vocabulary").check().run()
    press(app, "model-start")
    (submitted,) = submitted_jobs(worker)
    assert submitted.kind == "write"
    mask_record = submitted.params.pop("mask")
    assert mask_from_json(mask_record).digest == mask_without(5).digest
    assert submitted.params == {
        "model": MODEL,
        "task": "intents",
        "languages": ["de", "th"],
        "form": "folder",
        "vocabulary": "cut",
    }
    assert "Job 1" in app.get("progress")[0].proto.text
    worker.change(1, state="failed", error="the disk is full")
    app.run()
    assert "the disk is full" in app.error[0].value
    assert app.button(key="model-start").label == "Write it"


def test_nothing_is_written_while_all_heads_and_the_whole_vocabulary_stay(worker):
    app = write_form(mask_without())
    assert "All heads are on" in texts(app)
    assert not app.button
    app.checkbox(key="model-vocabulary").check().run()
    press(app, "model-start")
    (submitted,) = submitted_jobs(worker)
    assert "mask" not in submitted.params
    assert "vocabulary" not in submitted.params  # cut, as is the default of this form


def test_heads_that_give_their_mean_take_it_on_their_own_languages(worker):
    app = write_form(mask_without(5, **MEAN))
    assert "go on giving their mean" in texts(app)
    job = write_job(CHOICE, mask_without(5, **MEAN), "folder", cuts_vocabulary=False)
    assert job.languages == ["th"]
    assert job.size == 512
    job = write_job(CHOICE, mask_without(5, **MEAN), "folder", cuts_vocabulary=True)
    assert job.languages == ["de", "th"]  # the vocabulary is that of the chosen languages
    of_other_languages = mask_without(5, **{**MEAN, "languages": ["fi"]})
    job = write_job(CHOICE, of_other_languages, "folder", cuts_vocabulary=False)
    assert job.languages == ["de", "th"]
    assert job.size == 1024


def test_the_same_heads_are_the_same_model_wherever_the_mask_comes_from(worker):
    first_job = write_job(CHOICE, mask_without(5, rule="link"), "small", cuts_vocabulary=True)
    worker.submit(first_job)
    same_job = write_job(CHOICE, mask_without(5, rule="by hand"), "small", cuts_vocabulary=True)
    other_job = write_job(CHOICE, mask_without(6), "small", cuts_vocabulary=True)
    (row,) = worker.jobs()
    assert writes_to(row, same_job.folder())
    assert not writes_to(row, other_job.folder())
    of_another_version = row.model_copy(update={"params": row.params | {"mask": {"version": 99}}})
    assert not writes_to(of_another_version, same_job.folder())


def test_of_rounded_weights_the_usual_difference_is_said_first():
    outcome = {
        "examples": 32,
        "max_logit_difference": 38.0,
        "usual_difference": 1.01,
        "is_rounded": True,
        "tolerance": 4.2,
    }
    sentence = proof_sentence(outcome)
    assert "by 1 for 99 % of the answers, and by 38 at most (rounding explains 4)" in sentence


def test_sizes_and_proof_are_said_in_figures():
    outcome = {
        "parameters_before": 100_000_000,
        "parameters_after": 99_960_000,
        "bytes_before": 400_000_000,
        "bytes_after": 200_000_000,
        "examples": 96,
        "max_logit_difference": 0.00042,
        "tolerance": 0.0012,
    }
    assert savings_sentence(outcome) == (
        "Parameters: 100.0 M → 100.0 M (−0.04 %). Weights: 400.0 MB → 200.0 MB."
    )
    assert "96 examples" in proof_sentence(outcome)
    assert "0.00042 at most (rounding explains 0.001)" in proof_sentence(outcome)
