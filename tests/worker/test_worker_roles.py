"""Role jobs from end to end on a tiny model and treebank: params, reports, cost, resume."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.checked_jobs import checked_fields
from support.expected_errors import raises
from support.running_worker import RunningWorker, started_worker
from support.saved_models import save_family
from support.tiny_task import tiny_task
from support.worker_jobs import log_lines, wait_for_end

from headlab import load
from headlab.core import Report
from headlab.hooks import Model
from headlab.jobs import Refusal
from headlab.jobs.roles import RolesJob
from headlab.results import Store
from headlab.roles import of_task, of_trees, read_roles
from headlab.roles.study import study
from headlab.tasks import treebank
from headlab.worker.model_host import ModelHost

SENTENCES = 12


def conllu(sentences: int) -> str:
    """Sentences of four words: a noun, its adjective before it, a verb and an adverb after it."""
    parents = (2, 3, 0, 3)
    relations = ("amod", "nsubj", "root", "advmod")
    lines = []
    for number in range(sentences):
        for offset in range(4):
            word = f"w{4 + (7 * number + offset) % 60}"
            tree = f"{parents[offset]}\t{relations[offset]}"
            lines.append(f"{offset + 1}\t{word}\t_\t_\t_\t_\t{tree}\t_\t_")
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = save_family(tmp_path_factory.mktemp("model") / "bert", "bert")
    return load(str(folder))


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A treebank of two languages, and one that is broken."""
    folder = tmp_path / "data" / "ud"
    folder.mkdir(parents=True)
    for language in ("xx", "zz"):
        (folder / f"{language}.dev.conllu").write_text(conllu(SENTENCES))
    sentence_without_root = conllu(1).replace("\t0\troot", "\t4\troot")
    (folder / "bad.test.conllu").write_text(sentence_without_root)
    monkeypatch.setenv("HEADLAB_DATA", str(folder.parent))
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})
    return folder.parent


@pytest.fixture
def worker(model: Model, tmp_path: Path) -> Iterator[RunningWorker]:
    cache = tmp_path / "cache"
    cache.mkdir()
    make = partial(ModelHost, cache, "cpu", loader=lambda _: model, tasks=lambda _: tiny_task())
    with started_worker(cache, make) as worker:
        yield worker


def spec_of(model: Model, **changes: Any) -> dict[str, Any]:
    return {"model": model.name, "languages": ["xx", "zz"], **changes}


def submit(worker: RunningWorker, spec: dict[str, Any]) -> int:
    return int(worker.client.submit("roles", spec).id)


def rows_of(report: Report) -> list[object]:
    """The rows of each table of a report."""
    return [table.rows for table in report.tables]


# Params


def test_equal_work_has_equal_params() -> None:
    spec = {"model": "m", "languages": ["zz", "xx", "zz"], "task": "tiny"}
    params = checked_fields("roles", spec)
    assert params == checked_fields("roles", params)
    assert params["languages"] == ["zz", "xx"]
    assert params["split"] == "dev"
    assert params["task"] is None
    assert params["size"] is None
    assert params["options"]["positional"] == 0.9
    spec_of_task = {
        "model": "m",
        "task": "tiny",
        "languages": "all",
        "source": "task",
    }
    params_of_task = checked_fields("roles", spec_of_task)
    assert params_of_task["languages"] == ["xx", "yy"]
    assert params_of_task["task"] == "tiny"
    assert params_of_task["size"] == 512


def test_all_languages_are_those_of_the_treebank(data: Path) -> None:
    (data / "ud" / "bad.test.conllu").unlink()
    params = checked_fields("roles", {"model": "m", "languages": "all"})
    assert params["languages"] == ["xx", "zz"]


@pytest.mark.parametrize(
    ("changes", "expected_error"),
    [
        ({"languages": ["tlh"]}, ("treebank.missing", "tlh", "bad, xx, zz", "HEADLAB_DATA")),
        ({"split": "test"}, ("treebank.missing", "test", "xx")),
        (
            {"languages": ["bad"], "split": "test"},
            ("treebank.root_missing", "bad.test.conllu", "line 1"),
        ),
        ({"source": "task"}, ("roles.task_unnamed",)),
        ({"source": "task", "task": "nothing"}, ("task.unknown", "'nothing'")),
        ({"source": "task", "task": "tiny"}, ("task.language_unknown", "'zz'")),
        ({"options": {"size": 4}}, ("roles.option_unknown", "size")),
        ({"options": {"margin": 2.0}}, ("roles.option_invalid", "margin", 2.0)),
        ({"options": {"examples": 10**6}}, ("job.number_too_large", 100)),
    ],
)
def test_params_that_do_not_fit_are_refused(
    model: Model, changes: dict[str, Any], expected_error: tuple[object, ...]
) -> None:
    with raises(*expected_error, kind=Refusal) as caught:
        checked_fields("roles", spec_of(model, **changes))
    assert caught.value.status == 422


def test_without_a_data_folder_a_sentence_says_what_to_do(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADLAB_DATA")
    with raises("treebank.missing", "xx, zz", "none", "HEADLAB_DATA"):
        checked_fields("roles", spec_of(model))
    with raises("treebank.missing", "any language"):
        checked_fields("roles", spec_of(model, languages="all"))


def test_a_request_that_does_not_fit_is_refused_and_nothing_is_queued(
    worker: RunningWorker, model: Model
) -> None:
    changes: list[dict[str, Any]] = [
        {"languages": ["tlh"]},
        {"size": 0},
        {"more": 1},
        {"source": "web"},
        {"languages": ["../x"]},
        {"options": {"margin": [1]}},
    ]
    for change in changes:
        body = {"kind": "roles", "spec": spec_of(model, **change)}
        answer = httpx.post(f"{worker.url}/jobs", json=body)
        assert answer.status_code == 422
        assert list(answer.json()) == ["error", "code"]
    body_for_ray = {"kind": "roles", "spec": spec_of(model), "place": "ray"}
    assert httpx.post(f"{worker.url}/jobs", json=body_for_ray).status_code == 422
    assert worker.client.jobs() == []


# Reports


def test_a_job_leaves_the_library_s_reports_and_a_second_one_costs_nothing(
    worker: RunningWorker, model: Model, tmp_path: Path
) -> None:
    forecast = worker.client.forecast("roles", spec_of(model))
    assert forecast.forwards == 2 * SENTENCES
    assert forecast.basis.startswith("one pass over 24 sentences of 2 languages; ")
    assert forecast.basis.endswith(" a forward, measured now")
    assert forecast.seconds > 0
    assert not list((tmp_path / "cache").glob("*/result.npz"))
    finished_job = wait_for_end(worker.client, submit(worker, spec_of(model)))
    results = Store(tmp_path / "cache").reports().results
    reports = {result.key: result.record for result in results}
    job_reports = [reports.pop(key) for key in finished_job.result["keys"]]
    assert reports == {}
    languages = [report.spec["task"]["language"] for report in job_reports]
    assert languages == ["xx", "zz"]
    trees = treebank(None, "xx", "dev")
    library_report = study(model, of_trees(trees, "xx", "dev"))
    assert job_reports[0].spec == library_report.spec
    assert rows_of(job_reports[0]) == rows_of(library_report)
    assert read_roles(job_reports[0]).has_syntax
    assert finished_job.done == finished_job.total
    assert log_lines(worker.client, finished_job.id).count("xx: report started") == 1
    forecast_of_stored = worker.client.forecast("roles", spec_of(model))
    assert forecast_of_stored.forwards == 0
    assert forecast_of_stored.seconds == 0.0
    assert forecast_of_stored.basis == "the reports are in the cache already"
    spec_of_other_margin = spec_of(model, options={"margin": 0.2})
    forecast_of_other_margin = worker.client.forecast("roles", spec_of_other_margin)
    assert forecast_of_other_margin.seconds > 0
    assert "as in 2 reports of its roles" in forecast_of_other_margin.basis
    second_job = wait_for_end(worker.client, submit(worker, spec_of(model)))
    assert second_job.result == finished_job.result


def test_texts_of_a_task_give_the_roles_that_need_no_trees(
    worker: RunningWorker, model: Model, tmp_path: Path
) -> None:
    spec = spec_of(model, languages=["yy"], source="task", task="tiny", size=8)
    wait_for_end(worker.client, submit(worker, spec))
    (stored_result,) = Store(tmp_path / "cache").reports().results
    assert stored_result.record.spec["task"]["size"] == 8
    library_report = study(model, of_task(tiny_task(), "yy", "dev", 8))
    assert rows_of(stored_result.record) == rows_of(library_report)
    roles = read_roles(stored_result.record)
    assert not roles.has_syntax
    assert roles.grid == model.grid
    assert worker.client.forecast("roles", spec).forwards == 0


def test_a_cancelled_job_goes_on_with_the_languages_it_has(
    worker: RunningWorker, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_sentences = RolesJob.sentences
    languages_read = list[str]()

    def sentences_with_cancellation(
        job: RolesJob, lab: Any, language: str, size: int | None
    ) -> Any:
        languages_read.append(language)
        if languages_read == ["xx", "zz"]:  # the second language, for the first time
            worker.client.cancel(1)
        return real_sentences(job, lab, language, size)

    monkeypatch.setattr(RolesJob, "sentences", sentences_with_cancellation)
    monkeypatch.setattr("headlab.worker.runner.BETWEEN_SECONDS", 0.0)
    job = submit(worker, spec_of(model))
    wait_for_end(worker.client, job, "cancelled")
    (first_report,) = (tmp_path / "cache").glob("*/result.npz")
    time_written = first_report.stat().st_mtime_ns
    worker.client.resume(job)
    finished_job = wait_for_end(worker.client, job, "done")
    assert languages_read == ["xx", "zz", "xx", "zz"]
    assert first_report.stat().st_mtime_ns == time_written
    assert len(finished_job.result["keys"]) == 2
    assert "xx: report in the cache already" in log_lines(worker.client, job)
