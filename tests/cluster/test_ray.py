"""A Ray cluster of two nodes on this machine: the same bits, even if an actor or a node is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.expected_errors import raises
from support.running_worker import evaluate_request, started_worker
from support.saved_models import save_classifier
from support.waiting import wait_until
from support.worker_jobs import wait_for_end

from headlab import load
from headlab.cli.run import main
from headlab.cluster import rays
from headlab.cluster.rays import RayDevice, team
from headlab.hooks import Model
from headlab.methods.model_game import ModelGame
from headlab.methods.pair_game import ModelPairGame
from headlab.methods.run import score
from headlab.results import Store
from headlab.studies.run import Pieces, run_experiment
from headlab.tasks import task
from headlab.worker.client import Client
from headlab.worker.model_host import ModelHost
from headlab.worker.schemas import JobRow

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'headlab[ray]'")
from ray.cluster_utils import Cluster  # noqa: E402

# Ray gives warnings that have nothing to do with headlab.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
ROOT = Path(__file__).parents[2]
SHAPLEY: dict[str, Any] = {
    "language": "de",
    "size": 48,
    "samples": 144,
    "target": None,
}
# A method that plays no game, so that one actor computes all of it.
GRADIENT: dict[str, Any] = {"language": "de", "size": 48, "method": "gradient"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load(str(folder))


@pytest.fixture(scope="module")
def local_hash(model: Model) -> str:
    return score(model, task("intents"), **SHAPLEY).values_sha256()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Ray starts its workers at niceness 15: beside a busy program they would hardly ever run.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        yield from cluster_of_two()


def cluster_of_two() -> Iterator[Cluster]:
    test_cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    test_cluster.add_node(num_cpus=1)
    test_cluster.wait_for_nodes()
    ray.init(address=test_cluster.address, log_to_driver=False, configure_logging=False)
    yield test_cluster
    ray.shutdown()
    test_cluster.shutdown()


def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut runs into many small parts, so that something can be done in the middle of one."""
    monkeypatch.setattr("headlab.methods.model_game.ROUND", {"cpu": 2})


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2, 7, None])
def test_any_number_of_actors_gives_the_bits_of_a_local_run(
    cluster: Cluster, model: Model, local_hash: str, workers: int | None
) -> None:
    with team(model, "auto", workers) as helpers:
        assert helpers.pool.size == (workers or 2)  # one for each processor
        scores = score(model, task("intents"), helpers=helpers, **SHAPLEY)
        assert helpers.pool.lost == 0
        gradient = score(model, task("intents"), helpers=helpers, **GRADIENT)
    assert scores.values_sha256() == local_hash
    local_gradient = score(model, task("intents"), **GRADIENT)
    assert gradient.values_sha256() == local_gradient.values_sha256()


def in_the_middle(do: Callable[[], object]) -> Callable[[object], None]:
    """A callback for progress that calls `do` once, at the ninth report."""
    reports = count(1)

    def count_report(_: object) -> None:
        if next(reports) == 9:
            do()

    return count_report


def test_an_actor_killed_in_mid_run_changes_no_bit(
    cluster: Cluster, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowly(monkeypatch)
    local_hash = score(model, task("intents"), **SHAPLEY).values_sha256()
    with team(model, "auto", 2) as helpers:

        def kill() -> None:
            (device, *_) = helpers.pool.devices
            assert isinstance(device, RayDevice)
            ray.kill(device.actor)

        wait_until(lambda: helpers.pool.ready_count == 2, "two actors")
        scores = score(
            model, task("intents"), helpers=helpers, on_progress=in_the_middle(kill), **SHAPLEY
        )
        wait_until(lambda: helpers.pool.lost >= 1, "the news of the loss")
        gradient = score(model, task("intents"), helpers=helpers, **GRADIENT)
    assert scores.values_sha256() == local_hash
    local_gradient = score(model, task("intents"), **GRADIENT)
    assert gradient.values_sha256() == local_gradient.values_sha256()


@pytest.mark.soak
def test_a_node_lost_in_mid_run_changes_no_bit(
    cluster: Cluster, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowly(monkeypatch)
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    local_hash = score(model, task("intents"), **SHAPLEY).values_sha256()
    with team(model, "auto", 3) as helpers:
        wait_until(lambda: helpers.pool.ready_count == 3, "three actors")
        lose = in_the_middle(lambda: cluster.remove_node(node, allow_graceful=False))
        scores = score(model, task("intents"), helpers=helpers, on_progress=lose, **SHAPLEY)
    assert scores.values_sha256() == local_hash


def test_an_error_on_an_actor_is_a_sentence(cluster: Cluster, tmp_path: Path) -> None:
    model = load(str(save_classifier(tmp_path / "model")))
    save_classifier(tmp_path / "model", seed=1)  # other weights under the same name
    with team(model, "auto", 1) as helpers, raises("ray.other_model"):
        score(model, task("intents"), helpers=helpers, **SHAPLEY)


def score_command(folder: Path, cache: Path, *more_arguments: str) -> list[str]:
    arguments = ["--model", str(folder), "--languages", "de,en", "--size", "48"]
    arguments += ["-o", "samples=96", "--cache", str(cache), "--json", *more_arguments]
    return [sys.executable, "-m", "headlab.cli", "score", *arguments]


def environment_without_ray() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


def run_command(
    folder: Path, cache: Path, *more_arguments: str
) -> subprocess.CompletedProcess[str]:
    arguments = score_command(folder, cache, *more_arguments)
    return subprocess.run(
        arguments,
        cwd=ROOT,
        env=environment_without_ray(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def hashes_of(process: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert process.returncode == 0, process.stderr
    rows = json.loads(process.stdout)["languages"]
    return {language: row["values_sha256"] for language, row in rows.items()}


@pytest.fixture(scope="module")
def local_hashes(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Hashes of the command's scores without Ray, by language."""
    return hashes_of(run_command(folder, tmp_path_factory.mktemp("here")))


def test_the_command_gives_the_same_hashes_on_a_cluster_that_is_there(
    cluster: Cluster, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hashes = []
    for name, ray_options in (("here", []), ("ray", ["--ray", "auto", "--workers", "1"])):
        arguments = ["--model", str(folder), "--languages", "de", "--size", "48"]
        arguments += ["-o", "samples=24", "--cache", str(tmp_path / name), "--json"]
        assert main(["score", *arguments, *ray_options]) == 0
        rows = json.loads(capsys.readouterr().out)["languages"]
        hashes.append(rows["de"]["values_sha256"])
    assert hashes[0] == hashes[1]


def test_interactions_have_the_same_tables_on_a_cluster_that_is_there(
    cluster: Cluster, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = []
    for name, ray_options in (("here", []), ("ray", ["--ray", "auto", "--workers", "1"])):
        arguments = ["--model", str(folder), "--languages", "de", "--size", "48"]
        arguments += ["--heads", "0.0,0.1,1.0", "--samples", "48", "--cache", str(tmp_path / name)]
        assert main(["interactions", *arguments, "--json", *ray_options]) == 0
        tables.append(json.loads(capsys.readouterr().out)["tables"])
    assert tables[0] == tables[1]


@pytest.mark.soak
def test_the_command_gives_the_same_hashes_with_and_without_ray(
    folder: Path, tmp_path: Path, local_hashes: dict[str, str]
) -> None:
    process = run_command(folder, tmp_path, "--ray", "local", "--workers", "2")
    assert hashes_of(process) == local_hashes
    assert set(local_hashes) == {"de", "en"}


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nonsense", ""])
def test_a_cluster_that_is_not_there_is_a_sentence(
    model: Model, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with raises("ray.cluster_unreachable", f"'{address}'"), team(model, address):
        pass


def test_workers_without_ray_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _python, _m, _module, *arguments = score_command(folder, tmp_path)
    assert main([*arguments, "--workers", "2"]) != 0
    assert "--ray local" in capsys.readouterr().err


@pytest.mark.soak
def test_a_command_killed_on_ray_goes_on_without_it_and_leaves_no_process(
    folder: Path, tmp_path: Path, local_hashes: dict[str, str]
) -> None:
    arguments = score_command(folder, tmp_path / "cache", "--ray", "local", "--workers", "2")
    mark = f"headlab-test-{os.getpid()}"
    silent = subprocess.DEVNULL
    environment = environment_without_ray() | {"HEADLAB_MARK": mark}
    process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=silent, stderr=silent)

    def has_checkpoint_or_ended() -> bool:
        checkpoints = list((tmp_path / "cache").glob("*/checkpoint.npz"))
        return checkpoints != [] or process.poll() is not None

    wait_until(has_checkpoint_or_ended, "a checkpoint", 240)
    assert process.poll() is None
    process.kill()
    process.wait()
    wait_until(
        lambda: marked_processes(mark) == [], "the end of the last process of the killed command"
    )
    assert hashes_of(run_command(folder, tmp_path / "cache")) == local_hashes


def marked_processes(mark: str) -> list[str]:
    """Processes that have the mark in their environment."""
    names = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                names.append((path.parent / "comm").read_text())
        except OSError:  # it has ended, or is somebody else's
            continue
    return names


@pytest.mark.parametrize(("workers", "processors"), [(None, 3), (2, 3), (5, 5)])
def test_reported_25_a_local_ray_is_started_with_the_processors_that_are_allowed(
    model: Model, monkeypatch: pytest.MonkeyPatch, workers: int | None, processors: int
) -> None:
    started_with: dict[str, Any] = {}

    def refuse(**options: Any) -> None:
        started_with.update(options)
        raise ConnectionError("not in this test")

    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with raises("ray.cluster_unreachable"), rays.team(model, "local", workers):
        pass
    assert started_with["num_cpus"] == processors


def test_without_ray_the_sentence_says_how_to_get_it(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with raises("package.ray_missing"), rays.team(model, "local"):
        pass


def run_job_on_ray(client: Client, folder: Path) -> JobRow:
    """Run a job on Ray to its end, and answer a live request meanwhile."""
    spec = {
        "model": str(folder),
        "task": "intents",
        "languages": ["de"],
        "size": 48,
        "options": {"samples": 96},
    }
    job = client.submit("score", spec, place="ray").id
    assert client.submit("score", spec).id == job  # the place does not make it another job
    request = evaluate_request(str(folder), "intents", "en", size=32)
    assert list(client.evaluate(request))[-1].done  # live requests go on
    row = wait_for_end(client, job, seconds=240)
    assert row.error is None
    assert row.place == "ray"
    assert any("on Ray" in text for text in client.log(job))
    return row


def test_a_job_placed_on_a_cluster_that_is_there_gives_the_bits_of_one_placed_here(
    cluster: Cluster, folder: Path, tmp_path: Path
) -> None:
    def make() -> ModelHost:
        return ModelHost(tmp_path, make_helpers=partial(team, address="auto", workers=1))

    with started_worker(tmp_path, make, ray="cluster") as worker:
        run_job_on_ray(worker.client, folder)
    (result,) = Store(tmp_path).scan().results
    model = load(str(folder))
    local_scores = score(model, task("intents"), language="de", size=48, samples=96)
    assert result.record.values_sha256() == local_scores.values_sha256()


def test_pairs_placed_on_a_cluster_have_the_tables_of_those_computed_here(
    cluster: Cluster, folder: Path, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> ModelHost:
        return ModelHost(tmp_path, make_helpers=partial(team, address="auto", workers=1))

    local_pieces = Pieces(model, task("intents", ["de"]), dev_size=48)
    options = {"heads": "0.0,0.1,1.0", "samples": 48}
    local_report = run_experiment("interactions", local_pieces, options=options)
    monkeypatch.delattr(ModelPairGame, "interactions")  # nothing is computed in this process
    monkeypatch.delattr(ModelGame, "values")
    spec = {"model": str(folder), "task": "intents", "languages": ["de"], "dev_size": 48}
    with started_worker(tmp_path, make, ray="cluster") as worker:
        job = worker.client.submit("interactions", {**spec, "options": options}, place="ray").id
        row = wait_for_end(worker.client, job, seconds=240)
        assert row.error is None
        assert any("on Ray" in text for text in worker.client.log(job))
    (result,) = Store(tmp_path).reports().results
    assert result.record.tables == local_report.tables


@pytest.mark.soak
def test_a_job_placed_on_ray_gives_the_bits_of_one_placed_here(
    folder: Path, tmp_path: Path
) -> None:
    """Through a worker of its own: `headlab worker --ray local --workers 2`."""
    address_file = tmp_path / "told.json"
    command = [sys.executable, "-m", "headlab.worker", "--port", "0"]
    command += ["--cache", str(tmp_path / "cache"), "--ray", "local", "--workers", "2"]
    command += ["--told", str(address_file)]
    silent = subprocess.DEVNULL
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment_without_ray(), stdout=silent, stderr=silent
    )
    try:
        wait_until(address_file.exists, "the address of the worker", 240)

        def read_url() -> str | None:
            return json.loads(address_file.read_text() or "{}").get("url")

        client = Client(wait_until(read_url, "the address of the worker"))
        assert client.health().ray == "local"
        run_job_on_ray(client, folder)
        client.close()
    finally:
        process.terminate()
        process.wait(30)
    (result,) = Store(tmp_path / "cache").scan().results
    model = load(str(folder))
    local_scores = score(model, task("intents"), language="de", size=48, samples=96)
    assert result.record.values_sha256() == local_scores.values_sha256()
