"""Jobs of the terminal alone: they work on files of the machine where their command is typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from support.expected_errors import raises

import headlab
from headlab.core import HeadGrid, Stack
from headlab.dashboard.pages.jobs.form import offered_kinds
from headlab.jobs import ForecastBasis, Job, Measured, Refusal
from headlab.jobs.export import ExportJob
from headlab.jobs.lm import LmJob, LmPruneJob
from headlab.jobs.local import LocalLab, forecast_here
from headlab.jobs.reading import read_command
from headlab.jobs.shrink import ShrinkJob
from headlab.jobs.table import BUILT_IN_KINDS, JOBS, check_queued, queued_kinds
from headlab.jobs.translation import TranslationJob
from headlab.masks import Mask, full_mask
from headlab.results import Store
from headlab.training import LmGateOptions, LmOptions, TranslationOptions
from headlab.worker.catalogue import submission_type

TERMINAL = ("shrink", "export", "train lm", "train lm-prune", "train translation")
MEAN = {"ablation": "mean"}
# Commands of each kind with the titles of their jobs; their files do not exist.
TITLES_BY_LINE = {
    "headlab shrink --mask no/mask.json --out no/small --model m": (
        "Smaller model, m without the heads of mask.json"
    ),
    "headlab shrink --mask mask.json --out small --model m --task intents --languages de,th "
    "--dtype bfloat16 --onnx": "Smaller model, m without the heads of mask.json",
    "headlab export --mask no/mask.json --out no/plain --model m --as folder": (
        "Exported model, m without the heads of mask.json"
    ),
    "headlab export --mask mask.json --out small --model m --task intents --languages de,th "
    "--as small": "Exported model, m without the heads of mask.json",
    "headlab train lm --data no/text.txt --out lm --steps 30 -o clip=0.5 --seed 4": (
        "Language model, all-attention, trained on text.txt"
    ),
    "headlab train lm-prune no/lm --data text.txt --out lm-pruned --no-warm-up -o tune_rate=0.1": (
        "Pruned language model, lm on text.txt"
    ),
    "headlab train translation --out model --language en-fr --mask no/mask.json -o steps=30 "
    "--beams 2": "Translation model, en-fr",
}


def forecast_basis(root: Path, **measurement: Any) -> ForecastBasis:
    """What a forecast goes by: an empty store and the pace that was measured now, if any."""
    pace = Measured(**measurement) if measurement else None
    return ForecastBasis((), (), "cpu", root, pace)


def text_file(folder: Path) -> Path:
    """Forty lines of four words and their ends, of which the last four are held out."""
    path = folder / "text.txt"
    path.write_text("one two three four\n" * 40)
    return path


def test_jobs_of_the_terminal_alone_are_not_taken_by_a_worker() -> None:
    kinds_without_place = [key for key, kind in BUILT_IN_KINDS.items() if not kind.places]
    assert tuple(kinds_without_place) == TERMINAL
    assert not set(TERMINAL) & set(queued_kinds())
    assert not set(TERMINAL) & set(offered_kinds())
    schema = json.dumps(TypeAdapter(submission_type()).json_schema())
    assert "ScoreSubmission" in schema
    assert "Shrink" not in schema
    assert "LmJob" not in schema


@pytest.mark.parametrize("kind", TERMINAL)
def test_a_request_for_a_job_of_the_terminal_alone_is_refused_with_its_command(kind: str) -> None:
    with raises("job.terminal_only", f"headlab {kind}", kind=Refusal):
        check_queued(kind)
    for queued_kind in (*queued_kinds(), "no-such"):
        check_queued(queued_kind)


@pytest.mark.parametrize("line", TITLES_BY_LINE)
def test_a_line_is_read_without_its_files_and_written_again(line: str) -> None:
    job = read_command(line)
    assert job.terminal_lines() == line
    assert job.title() == TITLES_BY_LINE[line]
    assert read_command(job.terminal_lines()) == job


def test_the_options_that_were_changed_are_among_the_details() -> None:
    job = LmJob(data=Path("text.txt"), training=LmOptions(steps=30))
    assert ("Option steps", "30 (default 3000)") in job.details()
    assert ("Data", "text.txt") in job.details()
    shrunk = ShrinkJob(mask=Path("mask.json"), out=Path("small"))
    assert ("Mask", "mask.json") in shrunk.details()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("headlab train lm --data t -o steps=3", "option.set_elsewhere"),
        ("headlab train lm --data t -o seed=3", "option.set_elsewhere"),
        ("headlab train lm --data t -o nothing=3", "option.unknown"),
        ("headlab train lm --data t --heads 7", "training.width_mismatch"),
        ("headlab train lm-prune lm --data t -o block=3", "lm.block_fixed"),
        ("headlab train translation --out m -o seed=3", "option.seed_elsewhere"),
        ("headlab train nothing --data t", "command.no_job"),
        ("headlab train", "command.no_job"),
        ("headlab shrink --mask m", "command.value_invalid"),
        ("headlab shrink --mask m --out s --repeats 5", "job.field_invalid"),
        # an empty text, as of a variable that is not set, is not the default
        ("headlab shrink --mask m --out s --model ''", "job.field_invalid"),
        ("headlab shrink --mask m --out s --task intents --languages ''", "language.none"),
        ("headlab train translation --out m --language ''", "job.field_invalid"),
        ("headlab train translation --out m --task ''", "job.field_invalid"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_line_is_read(line: str, code: str) -> None:
    with raises(code):
        read_command(line)


def test_a_language_model_costs_its_steps_and_the_held_out_text(tmp_path: Path) -> None:
    options = LmOptions(steps=30, batch=4, block=5)
    job = LmJob(data=text_file(tmp_path), out=tmp_path / "lm", training=options)
    estimate = job.forecast(forecast_basis(tmp_path))
    windows = 4 * 5 // (5 // 2)  # four held-out lines of four words and their ends
    assert estimate.measure_request is not None
    assert estimate.measure_request.job == job
    assert estimate.forecast.forwards == 30 * 4 + windows
    assert estimate.forecast.seconds is None
    timed_forecast = job.forecast(forecast_basis(tmp_path, heads=4, seconds=0.3)).forecast
    assert timed_forecast.seconds == pytest.approx(30 * 4 * 0.3 + windows * 0.1)
    assert "30 steps of 4 windows of 5 tokens; 300 ms" in timed_forecast.basis


def pruning_job(folder: Path, record: dict[str, Any]) -> LmPruneJob:
    """A pruning job on a model whose training left this record."""
    model = folder / "lm"
    model.mkdir()
    (model / "perplexity.json").write_text('{"block": 5}')
    (model / "training.json").write_text(json.dumps(record))
    options = LmGateOptions(steps=20, tune_steps=10, batch=4)
    folder_of_pruned = folder / "pruned"
    return LmPruneJob(
        model=model, data=text_file(folder), out=folder_of_pruned, training=options
    ).resolve()


def test_pruning_a_language_model_is_as_fast_as_its_own_training(tmp_path: Path) -> None:
    record = {
        "options": {"steps": 10, "batch": 8},
        "took": {"seconds": 24.0, "device": "cpu"},
    }
    job = pruning_job(tmp_path, record)
    assert job.training.block == 5
    estimate = job.forecast(forecast_basis(tmp_path))
    assert estimate.measure_request is None
    windows = 2 * (4 * 5 // (5 // 2))  # after the heads are removed, and after the last step
    assert estimate.forecast.forwards == 30 * 4 + windows
    assert estimate.forecast.seconds == pytest.approx(30 * 4 * 0.3 + windows * 0.1)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"options": {"steps": 10, "batch": 8}, "took": {"seconds": 9.0, "device": "cuda:0"}},
        {"options": {"steps": 10, "batch": 8}, "took": {"seconds": 0.0, "device": "cpu"}},
    ],
)
def test_the_record_of_a_training_on_another_device_gives_no_pace(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    estimate = pruning_job(tmp_path, record).forecast(forecast_basis(tmp_path))
    assert estimate.forecast.seconds is None
    assert estimate.measure_request is not None


def test_a_model_to_prune_is_checked_before_anything_is_computed(tmp_path: Path) -> None:
    job = pruning_job(tmp_path, {})
    with raises("output.is_model"):
        job.model_copy(update={"out": job.model / "below"}).resolve()
    with raises("lm.folder_missing"):
        job.model_copy(update={"model": tmp_path}).resolve()


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (None, "model.unreadable"),
        ('{"model_type": ', "model.unreadable"),
        ('{"model_type": "bert"}', "lm.folder_missing"),
        ('{"model_type": "all-attention", "num_hidden_layers": 1000000}', "model.unreadable"),
    ],
)
def test_a_model_to_prune_whose_sizes_cannot_be_read_is_not_timed(
    tmp_path: Path, config: str | None, code: str
) -> None:
    job = pruning_job(tmp_path, {})
    if config is not None:
        (job.model / "config.json").write_text(config)
    lab = LocalLab(Store(tmp_path), headlab.load, device="cpu")
    with raises(code):
        forecast_here(job, lab)


def test_a_translation_model_costs_its_steps_and_the_passes_over_dev(tmp_path: Path) -> None:
    options = TranslationOptions(steps=30, batch=4)
    job = TranslationJob(out=tmp_path / "mt", training=options, size=9, beams=2)
    estimate = job.forecast(forecast_basis(tmp_path))
    assert estimate.measure_request is not None
    assert estimate.forecast.forwards == 30 * 4 + 9 * 4
    assert estimate.forecast.seconds is None
    timed_forecast = job.forecast(forecast_basis(tmp_path, heads=4, seconds=0.3)).forecast
    assert timed_forecast.seconds == pytest.approx(30 * 4 * 0.3 + 9 * 4 * 0.1)


def test_a_mask_that_cannot_be_read_is_refused_before_anything_is_timed(tmp_path: Path) -> None:
    mask = tmp_path / "mask.json"
    for job in (
        TranslationJob(out=tmp_path / "mt", mask=mask),
        ShrinkJob(mask=mask, out=tmp_path / "small"),
    ):
        with raises("file.unreadable", str(mask)):
            job.resolve()


def test_a_smaller_model_costs_its_proof_and_its_timing(tmp_path: Path) -> None:
    job = ShrinkJob(mask=Path("mask.json"), out=tmp_path / "small", size=20, repeats=6)
    timing = 6 * 2 * 2 * 32  # rounds, models, passes of each, examples of a pass
    estimate = job.forecast(forecast_basis(tmp_path))
    assert estimate.measure_request is not None
    comparison = 3 * 2 * 20  # models, examples and as much random input
    assert estimate.forecast.forwards == comparison + timing
    assert estimate.forecast.seconds is None
    timed_forecast = job.forecast(forecast_basis(tmp_path, heads=4, seconds=0.01)).forecast
    assert timed_forecast.seconds == pytest.approx((comparison + timing) * 0.01)
    estimate_with_onnx = job.model_copy(update={"dtype": "bfloat16", "onnx": True}).forecast(
        forecast_basis(tmp_path)
    )
    # rounded weights are compared again, on both; the ONNX file on the examples
    assert estimate_with_onnx.forecast.forwards == 3 * 5 * 20 + timing


def test_an_exported_model_costs_what_its_form_does(tmp_path: Path) -> None:
    mask_file = tmp_path / "mask.json"
    full_mask(HeadGrid((Stack("encoder", (2, 2)),))).save(mask_file)
    job = ExportJob(mask=mask_file, out=tmp_path / "plain", size=20, repeats=6)
    assert job.forecast(forecast_basis(tmp_path)).forecast.forwards == 3 * 2 * 20
    onnx_job = job.model_copy(update={"form": "onnx"})
    same_job = ShrinkJob(mask=mask_file, out=job.out, size=20, repeats=6, onnx=True)
    forecast = same_job.forecast(forecast_basis(tmp_path)).forecast
    assert onnx_job.forecast(forecast_basis(tmp_path)).forecast == forecast
    mean_mask = Mask(
        HeadGrid((Stack("encoder", (2, 2)),)), np.array([True, False, True, True]), {}, MEAN
    )
    mean_mask.save(mask_file)
    assert job.forecast(forecast_basis(tmp_path)).forecast.forwards == 3 * 2 * 20 + 20


def test_an_unknown_form_and_means_of_nothing_are_refused(tmp_path: Path) -> None:
    mask_file = tmp_path / "mask.json"
    grid = HeadGrid((Stack("encoder", (2, 2)),))
    Mask(grid, np.array([True, False, True, True]), {}, MEAN).save(mask_file)
    job = ExportJob(mask=mask_file, out=tmp_path / "plain")
    with raises("export.form_unknown", "folder, small, onnx, gguf"):
        job.model_copy(update={"form": "gif"}).resolve()
    with raises("export.means_need_task", "--task intents"):
        job.resolve()
    job.model_copy(update={"task": "intents"}).resolve()


def test_dtypes_are_those_of_the_form(tmp_path: Path) -> None:
    mask_file = tmp_path / "mask.json"
    full_mask(HeadGrid((Stack("encoder", (2, 2)),))).save(mask_file)
    job = ExportJob(mask=mask_file, out=tmp_path / "plain", dtype="q8_0")
    job.model_copy(update={"form": "gguf"}).resolve()
    for form in ("folder", "small", "onnx"):
        with raises("dtype.unknown", "q8_0"):
            job.model_copy(update={"form": form}).resolve()
    with raises("gguf.dtype_unknown", "bfloat16", "float32, float16, q8_0"):
        job.model_copy(update={"form": "gguf", "dtype": "bfloat16"}).resolve()


@pytest.mark.parametrize("kind", TERMINAL)
def test_options_of_another_type_are_refused(kind: str) -> None:
    job_class: type[Job] = JOBS[kind]
    fields = {
        "mask": "m",
        "out": "o",
        "data": "d",
        "model": "m",
        "training": 3,
        "size": "many",
    }
    wrong_fields = {name: value for name, value in fields.items() if job_class.has_field(name)}
    job = job_class.model_construct(**wrong_fields)
    with raises("job.field_invalid"):
        job.with_checked_fields()
