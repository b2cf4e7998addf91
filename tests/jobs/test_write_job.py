"""Jobs that write a model to the worker's disk: what `headlab export` does, asked for by a page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.saved_models import save_family
from support.tiny_task import tiny_task

import headlab
from headlab.core import HeadlabError
from headlab.hooks import Model, gated_in_this_thread
from headlab.jobs import Estimate, ForecastBasis, Job, Measured, Outcome
from headlab.jobs.local import LocalJob, LocalLab
from headlab.jobs.reading import read_command
from headlab.jobs.steps import Step, StepProgress
from headlab.jobs.table import WriteJob, job_from_params
from headlab.masks import Mask, load_mask
from headlab.results import MODELS_FOLDER, Store
from headlab.shrink.folder import MASK, PROOF
from headlab.shrink.model import rounded_weights


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = save_family(tmp_path_factory.mktemp("model") / "bert", "bert")
    return headlab.load(str(folder))


@pytest.fixture(autouse=True)
def known_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})


def mask_without_first(model: Model, count: int) -> Mask:
    """A mask without the first heads of a model."""
    kept_heads = np.arange(model.grid.size) >= count
    return Mask(model.grid, kept_heads, model.identity())


def write_job(model: Model, form: str, **fields: Any) -> WriteJob:
    """A job on the tiny task; its mask switches two heads off."""
    mask_record = mask_without_first(model, 2).to_json()
    del mask_record["created"]
    return WriteJob.model_validate(
        {"model": model.name, "form": form, "mask": mask_record, "task": "tiny", "size": 8} | fields
    )


class CountingJob(LocalJob):
    """A job at work that counts its ticks, and ends at one of them if it is told to.

    Attributes:
        ticks: So far.
        notes: That it was given.
        shares: How far it was with each of them, 0 to 1.
    """

    def __init__(self, on_tick: Callable[[int], None] = lambda ticks: None) -> None:
        super().__init__(self._note, lambda line: None)
        self.notes: list[str] = []
        self.shares: list[float] = []
        self.ticks = 0
        self._on_tick = on_tick

    def _note(self, note: str, done: int, total: int) -> None:
        self.notes.append(note)
        self.shares.append(done / total)

    def tick(self) -> None:
        """Count, then do what was asked for."""
        self.ticks += 1
        self._on_tick(self.ticks)


def run_job(job: WriteJob, model: Model, root: Path, running: LocalJob | None = None) -> Outcome:
    """Run a job on a cache below a folder."""
    lab = LocalLab(Store(root), lambda name: model, device="cpu")
    return job.resolve().run(lab, running or CountingJob())


@pytest.mark.parametrize("form", ["folder", "small"])
def test_a_model_is_written_below_the_cache(model: Model, tmp_path: Path, form: str) -> None:
    job = write_job(model, form)
    running = CountingJob()
    outcome = run_job(job, model, tmp_path, running)
    assert outcome["folder"] == job.folder()
    folder = tmp_path / outcome["folder"]
    assert folder.parent == tmp_path / MODELS_FOLDER
    assert load_mask(folder / MASK).digest == mask_without_first(model, 2).digest
    proof = json.loads((folder / PROOF).read_text())
    assert outcome["max_logit_difference"] == proof["max_logit_difference"] <= proof["tolerance"]
    assert outcome["form"] == form
    timing = ["timing both models"] if form == "small" else []
    assert list(dict.fromkeys(running.notes)) == [
        "loading the model",
        "removing what is off",
        *timing,
        "writing the files",
        "reading them back",
        "comparing",
        "done",
    ]
    assert running.shares == sorted(running.shares)
    assert (running.shares[0], running.shares[-1]) == (0, 1)
    assert running.ticks >= 2
    # What is recorded can be typed: it names no path of this machine.
    assert proof["command"][:4] == ["headlab", "export", "--mask", "mask.json"]
    assert str(tmp_path) not in json.dumps(proof)


def test_progress_moves_with_the_batches(model: Model, tmp_path: Path) -> None:
    running = CountingJob()
    run_job(write_job(model, "small", size=64), model, tmp_path, running)
    assert len(set(running.shares)) > 30
    assert max(later - earlier for earlier, later in pairwise(running.shares)) < 0.2


def test_steps_that_take_longer_than_foreseen_or_do_not_come_never_turn_back() -> None:
    running = CountingJob()
    progress = StepProgress(running, [Step("a", 10, 4), Step("b", 30), Step("c", 60, 2)])
    progress.tick()  # before the first step
    progress.begin("a")
    for _ in range(9):
        progress.tick()
    progress.begin("unforeseen")
    progress.begin("c")
    progress.tick()
    progress.begin("b")  # which is over
    progress.end()
    assert running.shares == sorted(running.shares)
    assert running.shares[:2] == [0, 0.02]
    assert (
        max(share for share, note in zip(running.shares, running.notes, strict=True) if note == "a")
        < 0.1
    )
    assert running.shares[-1] == 1
    assert running.ticks == 11


def test_the_written_model_answers_as_the_masked_one(model: Model, tmp_path: Path) -> None:
    outcome = run_job(write_job(model, "small"), model, tmp_path)
    written = headlab.load(str(tmp_path / outcome["folder"]))
    examples = tiny_task().read("xx", "dev", 0)[:4]
    inputs = model.tokenizer(
        [example.text for example in examples], return_tensors="pt", padding=True
    )
    with torch.inference_mode():
        written_logits = written.module(**inputs).logits
        with gated_in_this_thread(model, mask_without_first(model, 2)):
            masked_logits = model.module(**inputs).logits
    torch.testing.assert_close(written_logits, masked_logits, atol=1e-5, rtol=0)


def test_a_model_below_the_cache_is_no_result(model: Model, tmp_path: Path) -> None:
    run_job(write_job(model, "folder"), model, tmp_path)
    assert list(Store(tmp_path).folders()) == []
    assert not Store(tmp_path).scan().problems


def test_equal_jobs_share_a_folder_and_others_do_not(model: Model) -> None:
    job = write_job(model, "small")
    by_mean = mask_without_first(model, 2).to_json() | {"chosen": {"ablation": "mean"}}
    by_hand = mask_without_first(model, 2).to_json() | {"chosen": {"rule": "by hand"}}
    assert job.folder() == write_job(model, "small", mask=by_hand).folder()
    other_jobs = [
        write_job(model, "folder"),
        write_job(model, "small", dtype="float16"),
        write_job(model, "small", languages=["xx"]),
        write_job(model, "small", mask=None),
        write_job(model, "small", mask=by_mean),
    ]
    folders = {job.folder(), *(other_job.folder() for other_job in other_jobs)}
    assert len(folders) == 1 + len(other_jobs)
    # What the models are compared on changes nothing, but for means, which are taken there.
    assert job.folder() == write_job(model, "small", seed=3, size=9).folder()
    means_of_eight = write_job(model, "folder", mask=by_mean)
    assert means_of_eight.folder() != write_job(model, "folder", mask=by_mean, size=9).folder()


@pytest.mark.parametrize(
    ("model_name", "beginning"),
    [
        ("e5-small-intents", "models/e5-small-intents-small-"),
        ("owner/name", "models/name-small-"),
        ("/some/where/mein Modell/", "models/mein-Modell-small-"),
        ("..", "models/model-small-"),
        ("x" * 300, f"models/{'x' * 60}-small-"),
    ],
)
def test_a_folder_is_named_after_its_model(model_name: str, beginning: str) -> None:
    folder = WriteJob(model=model_name, form="small").folder()
    assert re.fullmatch(rf"{re.escape(beginning)}[0-9a-f]{{12}}", folder)


def test_the_same_job_again_replaces_its_folder(model: Model, tmp_path: Path) -> None:
    job = write_job(model, "folder")
    first, second = run_job(job, model, tmp_path), run_job(job, model, tmp_path)
    assert first == second
    assert len(list((tmp_path / MODELS_FOLDER).iterdir())) == 1


def test_a_full_disk_is_a_sentence_and_the_model_written_before_stays(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    job = write_job(model, "small")
    folder = tmp_path / run_job(job, model, tmp_path)["folder"]
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(type(model.module), "save_pretrained", fail)
    with raises("file.no_space"):
        run_job(job, model, tmp_path)
    assert list((tmp_path / MODELS_FOLDER).iterdir()) == [folder]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents


def test_a_job_that_is_stopped_leaves_nothing(model: Model, tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop_at_last_batch(ticks: int) -> None:
        if ticks == 2:  # on random input, when the folder is written but for its papers
            raise Stopped

    with pytest.raises(Stopped):
        run_job(write_job(model, "folder"), model, tmp_path, CountingJob(stop_at_last_batch))
    assert list((tmp_path / MODELS_FOLDER).iterdir()) == []


def test_others_are_never_answered_by_rounded_weights(model: Model, tmp_path: Path) -> None:
    exact_weights = {name: weight.clone() for name, weight in model.module.state_dict().items()}
    with rounded_weights(model.module, "bfloat16") as has_changed:
        assert has_changed  # or this test would show nothing

    def compare_weights(ticks: int) -> None:
        for name, weight in model.module.state_dict().items():
            assert torch.equal(weight, exact_weights[name])

    running = CountingJob(compare_weights)
    run_job(write_job(model, "folder", dtype="bfloat16"), model, tmp_path, running)
    assert running.ticks >= 2


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"form": "gif"}, "export.form_unknown"),
        ({"mask": {"format": "else"}}, "mask.not_a_mask"),
        ({"mask": None}, "export.nothing_changes"),
        ({"vocabulary": "cut"}, "vocabulary.languages_missing"),
        ({"dtype": "q8_0"}, "dtype.unknown"),
        ({"task": "nosuch"}, "task.unknown"),
        ({"languages": ["tlh"], "vocabulary": "keep"}, "task.language_unknown"),
        ({"label_map": {"no": "label"}}, "label_map.labels_mismatch"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_queued(
    model: Model, fields: dict[str, Any], code: str
) -> None:
    job = write_job(model, "small").model_copy(update=fields)
    with raises(code):
        job.resolve()


def test_means_of_no_task_are_refused_in_words_of_a_page(model: Model) -> None:
    by_mean = mask_without_first(model, 2).to_json() | {"chosen": {"ablation": "mean"}}
    job = write_job(model, "folder", mask=by_mean, task=None)
    with raises("export.means_need_task") as error:
        job.resolve()
    assert "mask.json" not in str(error.value)


def test_a_tick_comes_before_each_batch_of_means(model: Model, tmp_path: Path) -> None:
    by_mean = mask_without_first(model, 2).to_json() | {"chosen": {"ablation": "mean"}}
    running = CountingJob()
    run_job(write_job(model, "folder", mask=by_mean), model, tmp_path, running)
    means_and_comparisons = 3
    assert running.ticks >= means_and_comparisons


def test_its_command_is_that_of_an_export(model: Model) -> None:
    job = write_job(model, "small", languages=["xx"], vocabulary="keep", dtype="float16")
    line = job.terminal_lines()
    assert line.startswith("headlab export --mask MASK.json --out FOLDER --model")
    export_job = read_command(line)
    assert export_job.key == "export"
    for field in ("model", "form", "task", "languages", "vocabulary", "size", "seed", "dtype"):
        assert export_job.field_value(field) == job.field_value(field)
    assert "--mask" not in write_job(model, "small", mask=None).terminal_lines()


def test_it_costs_what_the_export_does(model: Model, tmp_path: Path) -> None:
    job = write_job(model, "folder", size=20)

    def forecast_of(job: Job, **measurement: Any) -> Estimate:
        pace = Measured(**measurement) if measurement else None
        return job.forecast(ForecastBasis((), (), "cpu", tmp_path, pace))

    assert forecast_of(job).forecast.forwards == 3 * 2 * 20
    assert forecast_of(job, heads=4, seconds=0.01).forecast.seconds == pytest.approx(1.2)
    request = forecast_of(job).measure_request
    assert request is not None
    assert request.job == job  # not one whose mask is a file that is gone
    lab = LocalLab(Store(tmp_path), lambda name: model, device="cpu")
    assert job.measure(lab, request, lambda: None).heads == model.grid.size


def test_its_fields_survive_the_list_of_jobs(model: Model) -> None:
    job = write_job(model, "small", dtype="float16").resolve()
    params = json.loads(json.dumps(job.queued_params()))
    assert job_from_params("write", params) == job


def test_it_has_no_command_of_its_own() -> None:
    with pytest.raises(HeadlabError, match="not the command of a job"):
        read_command("headlab write --model m")
