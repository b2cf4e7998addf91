"""The package that docs/extending.md shows is installed from the page itself and used.

It is used as command, job, page and report.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from streamlit.testing.v1 import AppTest
from support.app_pages import app_on, page_text, run_page
from support.expected_errors import raises
from support.fake_client import FakeClient, FakeWorker, job_row
from support.running_worker import started_worker
from support.saved_models import letter_tokenizer, save_family, save_model
from support.tiny_models import SMALL_OPTIONS
from support.tiny_task import tiny_task
from support.waiting import wait_until

import headlab
from headlab.cli.figures import write_figures
from headlab.cli.run import main
from headlab.core import Option, Registry
from headlab.evaluation import Evaluator
from headlab.jobs import setting
from headlab.jobs.reading import read_command
from headlab.jobs.table import BUILT_IN_KINDS as BUILT_IN_JOBS
from headlab.jobs.table import JOBS, job_from_params
from headlab.methods import METHODS, caution
from headlab.methods.table import BUILT_IN, MethodCost
from headlab.methods.work import Work
from headlab.plots import report_figures
from headlab.results import Store
from headlab.studies.result import result_of
from headlab.studies.run import Pieces, forecast, run_experiment
from headlab.studies.table import STUDIES
from headlab.tasks import TASKS, registry_problems
from headlab.worker import catalogue
from headlab.worker.model_host import ModelHost

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
REGISTRIES: dict[str, Any] = {
    "headlab.methods": METHODS,
    "headlab.studies": STUDIES,
    "headlab.tasks": TASKS,
    "headlab.jobs": JOBS,
}


def example_files() -> dict[str, str]:
    """{path: text} of the examples; each begins with its path."""
    blocks = re.findall(
        r"^```(?:python|toml)\n# (\S+)\n(.*?)^```",
        PAGE.read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    return dict(blocks)


def install(site: Path, project: str, modules: dict[str, str]) -> None:
    """A package as pip leaves it: its modules, and its name and entry points beside them."""
    for path, text in modules.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    metadata = tomllib.loads(project)["project"]
    name = metadata["name"]
    version = metadata["version"]
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    sections = []
    for group, points in metadata["entry-points"].items():
        lines = [f"{key} = {value}\n" for key, value in points.items()]
        sections.append(f"[{group}]\n" + "".join(lines))
    (info / "entry_points.txt").write_text("\n".join(sections))


@pytest.fixture
def install_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Path]]:
    """A function that installs a package for the time of a test."""

    def install_for_test(project: str, modules: dict[str, str]) -> Path:
        install(tmp_path / "site", project, modules)
        monkeypatch.syspath_prepend(tmp_path / "site")
        for registry in REGISTRIES.values():
            registry.refresh()
        return tmp_path / "site"

    yield install_for_test
    monkeypatch.undo()
    for registry in REGISTRIES.values():
        registry.refresh()
    for name in [name for name in sys.modules if name.split(".")[0] == "headlab_toy"]:
        del sys.modules[name]


@pytest.fixture
def toy(install_package: Callable[..., Path]) -> Path:
    return install_toy(install_package, example_files())


def install_toy(install_package: Callable[..., Path], text_by_path: dict[str, str]) -> Path:
    """Install the package of the page, whose files may have been changed."""
    modules = {path: text for path, text in text_by_path.items() if path.startswith("headlab_toy/")}
    return install_package(text_by_path["pyproject.toml"], modules)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny model with the labels of the example's task."""
    names = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    torch.manual_seed(0)
    config = hf.BertConfig(
        **SMALL_OPTIONS | {"num_labels": 2, "max_position_embeddings": 64} | names
    )
    return save_model(
        tmp_path / "model", hf.BertForSequenceClassification(config), letter_tokenizer()
    )


def test_the_examples_are_short_and_whole():
    text_by_path = example_files()
    assert {Path(path).name for path in text_by_path} >= {
        "pyproject.toml",
        "entropy.py",
        "depth.py",
        "depth_figures.py",
        "polarity.py",
        "baseline.py",
    }
    assert all(len(text.splitlines()) < 60 for text in text_by_path.values())


def test_a_method_a_study_and_a_task_are_there_once_they_are_installed(toy: Path):
    assert (METHODS["entropy"].title, STUDIES["depth"].title) == (
        "Attention entropy",
        "Heads by depth",
    )
    assert headlab.task("polarity").languages == ("en", "de")
    assert [registry.added_keys for registry in REGISTRIES.values()] == [
        ("entropy",),
        ("depth",),
        ("polarity",),
        ("baseline",),
    ]
    assert all(registry.problems == [] for registry in REGISTRIES.values())
    assert "entropy" in STUDIES["depth"].options["method"].choices
    # this one needs a sign, which entropy has not
    assert "entropy" not in STUDIES["gap"].options["method"].choices


def test_another_process_has_them_from_the_command_line(toy: Path):
    command = [sys.executable, "-m", "headlab.cli", "score", "--method", "no-such"]
    process = subprocess.run(
        command,
        env={"PYTHONPATH": str(toy), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2
    assert re.search(r"use one of .*\bentropy\b", process.stderr)
    assert "cannot be imported" not in process.stderr


def test_they_are_used_from_the_command_line_a_page_and_a_report(
    toy: Path, folder: Path, tmp_path: Path, capsys
):
    cache = tmp_path / "cache"
    flags = [
        "--model",
        str(folder),
        "--task",
        "polarity",
        "--cache",
        str(cache),
        "--method",
        "entropy",
    ]
    assert main(["score", *flags, "--languages", "en", "-o", "base=10", "--json"]) == 0
    values = torch.tensor(json.loads(capsys.readouterr().out)["languages"]["en"]["values"])
    assert ((values > 0) & (values < 2)).all()  # in bans: of at most 99 tokens
    assert main(["experiment", "depth", *flags, "--languages", "all"]) == 0
    assert "## Mean score of each layer's heads" in capsys.readouterr().out
    (result,) = Store(cache).reports().results
    report_file = tmp_path / "report.html"
    assert main(["report", result.key, "--cache", str(cache), "--out", str(report_file)]) == 0
    text = report_file.read_text("utf-8")
    assert "Mean score of each layer" in text
    assert [title for title in drawn_titles(text) if "depth" in title]
    assert "headlab experiment depth --model" in re.sub(r"<[^>]+>", "", text)
    with app_on(cache):
        app = run_page(
            "experiments", experiment="depth", model=str(folder), task="polarity", method="entropy"
        )
        assert "Mean score of each layer's heads" in page_text(app)
        (figure,) = page_figures(app)
        assert [line["name"] for line in figure["data"]] == ["en", "de"]
        table = result.record.table("depth")
        assert [y for line in figure["data"] for y in line["y"]] == table.column("mean score")
        heads = run_page(
            "heads", model=str(folder), task="polarity", method="entropy", langs=["en"]
        )
        assert heads.selectbox(key="method").value == "entropy"
        assert not heads.error


def drawn_titles(page: str) -> list[str]:
    """The texts of the captions of a report's figures."""
    captions = re.findall(r"<figure.*?</figure>", page, re.DOTALL)
    return [re.sub(r"<[^>]+>", " ", caption) for caption in captions]


def page_figures(app: AppTest) -> list[dict[str, Any]]:
    """The Plotly figures on a page."""
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


PLOTLY_FIGURES = """
import plotly.graph_objects as go


def figures(result):
    figure = go.Figure()
    for language in dict.fromkeys(row.language for row in result.layers.rows):
        rows = [row for row in result.layers.rows if row.language == language]
        layers = [row.layer for row in rows]
        means = [row.mean_score for row in rows]
        figure.add_scatter(x=layers, y=means, name=language)
    figure.update_xaxes(title="layer").update_yaxes(title="mean score")
    return {"depth": figure}
"""


@pytest.mark.parametrize("figures", [None, PLOTLY_FIGURES], ids=["charts", "Plotly figures"])
def test_a_package_s_figures_are_on_the_page_in_the_document_and_in_files(
    install_package: Callable[..., Path], folder: Path, tmp_path: Path, figures: str | None
):
    text_by_path = example_files()
    if figures is not None:
        text_by_path["headlab_toy/depth_figures.py"] = figures
    install_toy(install_package, text_by_path)
    cache = tmp_path / "cache"
    figure_folder = tmp_path / "out"
    pieces = Pieces(headlab.load(folder, device="cpu"), headlab.task("polarity"), Store(cache))
    run_experiment("depth", pieces, options={"method": "entropy"})
    (result,) = Store(cache).reports().results
    (figure,) = report_figures(result.record).values()
    assert [line.name for line in figure.data] == ["en", "de"]
    assert [path.name for path in write_figures(result.record, figure_folder)] == [
        "depth.svg",
        "depth.png",
    ]
    page = tmp_path / "report.html"
    assert main(["report", result.key, "--cache", str(cache), "--out", str(page)]) == 0
    for text in (page.read_text("utf-8"), (figure_folder / "depth.svg").read_text("utf-8")):
        assert all(f">{word}</text>" in text for word in ("en", "de", "layer", "mean score"))


# A package's figures that cannot be drawn, with the reason in the warning.
FAILING_FIGURES = "import plotly.graph_objects as go\n\ndef figures(result):\n    return 1 / 0\n"
FIGURES_OF_TEXT = "def figures(result):\n    return {'depth': 'a picture'}\n"
BROKEN_FIGURES = {
    FAILING_FIGURES: "ZeroDivisionError",
    FIGURES_OF_TEXT: "depth is no chart and no Plotly figure",
    "import nosuchmodule\n": "No module named 'nosuchmodule'",
}


@pytest.mark.parametrize("figures", BROKEN_FIGURES)
def test_a_package_s_figures_that_fail_are_a_sentence_and_leave_the_rest(
    install_package: Callable[..., Path], folder: Path, tmp_path: Path, figures: str
):
    install_toy(install_package, example_files() | {"headlab_toy/depth_figures.py": figures})
    cache = tmp_path / "cache"
    pieces = Pieces(headlab.load(folder, device="cpu"), headlab.task("polarity"), Store(cache))
    run_experiment("depth", pieces, options={"method": "entropy"})
    (result,) = Store(cache).reports().results
    report_file = tmp_path / "report.html"
    assert main(["report", result.key, "--cache", str(cache), "--out", str(report_file)]) == 0
    text = html.unescape(report_file.read_text("utf-8"))
    assert "The figures are left out: study depth cannot draw them" in text
    assert BROKEN_FIGURES[figures] in text
    assert "Mean score of each layer" in text
    with app_on(cache):
        app = run_page(
            "experiments", experiment="depth", model=str(folder), task="polarity", method="entropy"
        )
    assert not app.exception
    assert BROKEN_FIGURES[figures] in app.warning[0].value
    assert "Mean score of each layer's heads" in page_text(app)
    assert "A mean over heads says nothing of a single one." in page_text(app)


PLAIN_STUDY = """
from headlab.studies.table import Experiment
from headlab.core.tables import Table

STUDY = Experiment("depth", "Heads by depth", "Do they?", "an example", {}, "headlab_toy.depth")


def run(pieces, options, report):
    return (Table("depth", "Layers", ("layer",), ("d",), ((1,),)),), ("A note.",)


def cost(pieces, options):
    return []
"""


def test_a_study_that_gives_tables_and_notes_has_no_figures(
    install_package: Callable[..., Path], folder: Path, tmp_path: Path
):
    install_toy(install_package, example_files() | {"headlab_toy/depth.py": PLAIN_STUDY})
    pieces = Pieces(headlab.load(folder, device="cpu"), headlab.task("polarity"))
    report = run_experiment("depth", pieces)
    assert report.table("depth").rows == ((1,),)
    assert report.notes[0] == "A note."
    assert report_figures(report) == {}
    assert result_of(report) is None


# A study whose records are of heads that are specific to a language, under names of its own.
MARKED_STUDY = """
from dataclasses import dataclass
from typing import Annotated

from headlab.core.records import Head
from headlab.studies.head_kinds import HeadKind
from headlab.studies.result import HeadCells, Records, StudyResult, TableName
from headlab.studies.table import Experiment

STUDY = Experiment("depth", "Heads by depth", "Do they?", "an example", {}, "headlab_toy.depth",
                   result="headlab_toy.depth:Deepest")


@dataclass(frozen=True)
class Deep:
    deepest: HeadCells


@dataclass(frozen=True, kw_only=True)
class Deepest(StudyResult):
    heads: Annotated[Records[Deep], TableName("deepest-heads"), HeadKind.SPECIFIC]


def run(pieces, options, report):
    return Deepest(heads=Records("The deepest heads", (Deep(Head("encoder", 1, 0)),)))


def cost(pieces, options):
    return []
"""


def test_a_package_s_study_offers_its_heads_to_look_at(
    install_package: Callable[..., Path], folder: Path, tmp_path: Path
):
    install_toy(install_package, example_files() | {"headlab_toy/depth.py": MARKED_STUDY})
    cache = tmp_path / "cache"
    pieces = Pieces(headlab.load(folder, device="cpu"), headlab.task("polarity"), Store(cache))
    run_experiment("depth", pieces)
    with app_on(cache):
        app = run_page("experiments", experiment="depth", model=str(folder), task="polarity")
        assert app.selectbox(key="look-specific").options == ["1.0"]


def test_the_page_draws_cached_scores(folder: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})
    cache = tmp_path / "cache"
    model = str(save_family(tmp_path / "bert", "bert"))
    headlab.score(
        headlab.load(model), tiny_task(), language="xx", method="confidence", store=Store(cache)
    )
    with app_on(cache):
        app = AppTest.from_string(example_files()["pages/depth.py"], default_timeout=30)
        app.query_params.update(model=model, task="tiny", method="confidence", langs=["xx"])
        app.run()
    assert not app.exception
    assert not app.error
    assert [title.value for title in app.subheader] == ["xx"]


def install_bad(install_package: Callable[..., Path], group: str, point: str, text: str) -> None:
    """Install a package `bad` of one module.

    Args:
        install_package: The fixture.
        group: Of entry points, such as "headlab.tasks".
        point: The line of the entry point.
        text: The module.
    """
    heading = f'[project]\nname = "bad"\nversion = "1"\n[project.entry-points."{group}"]\n'
    install_package(f"{heading}{point}\n", {"bad.py": text})
    sys.modules.pop("bad", None)


@pytest.mark.parametrize(
    "task", ["lambda data: 1", "lambda data: 1 / 0", "lambda data: headlab.task('intents')"]
)
def test_a_task_function_that_fails_is_a_sentence_and_hides_no_other(install_package, task: str):
    install_bad(
        install_package, "headlab.tasks", 'bad = "bad:make"', f"import headlab\nmake = {task}\n"
    )
    with raises("task.package_failed", "bad"):
        headlab.task("bad")
    cards = {card.name: card for card in catalogue.tasks()}
    assert "fix or remove that package" in cards["bad"].advice
    assert cards["intents"].labels


def test_they_are_a_job_of_the_worker(toy: Path, folder: Path, tmp_path: Path):
    cache = tmp_path / "cache"
    cache.mkdir()
    spec = {
        "experiment": "depth",
        "model": str(folder),
        "task": "polarity",
        "languages": "all",
        "method": "entropy",
    }
    with started_worker(cache, partial(ModelHost, cache, "cpu")) as worker:
        job_id = int(worker.client.submit("experiment", spec).id)
        wait_until(lambda: worker.client.job(job_id).state not in ("queued", "running"))
        row = worker.client.job(job_id)
    assert row.state == "done", row.error
    (report,) = Store(cache).reports().results
    assert set(report.record.table("depth").column("language")) == {"en", "de"}


# A kind of job from a package.


def test_a_package_s_job_is_forecast_run_and_listed_by_the_worker(
    toy: Path, folder: Path, tmp_path: Path
):
    cache = tmp_path / "cache"
    cache.mkdir()
    spec = {"model": str(folder), "task": "polarity", "languages": "all", "size": 4}
    with started_worker(cache, partial(ModelHost, cache, "cpu")) as worker:
        job_forecast = worker.client.forecast("baseline", spec)
        with raises("request.field_invalid", "size"):
            worker.client.submit("baseline", {**spec, "size": 0})
        with raises("task.language_unknown", "xx"):
            worker.client.submit("baseline", {**spec, "languages": ["xx"]})
        job_id = worker.client.submit("baseline", spec).id
        wait_until(lambda: worker.client.job(job_id).state not in ("queued", "running"))
        row = worker.client.job(job_id)
    examples = [headlab.task("polarity").examples(name, "dev", 4) for name in ("en", "de")]
    assert job_forecast.forwards == sum(map(len, examples)) > 0
    assert (job_forecast.seconds or 0) > 0
    assert row.state == "done", row.error
    model = headlab.load(folder, device="cpu")
    assert row.result is not None
    for language, accuracy in row.result["accuracy"].items():
        evaluator = Evaluator(model, headlab.task("polarity"), language, "dev", 4)
        assert accuracy == evaluator.evaluate().accuracy
    assert set(row.result["accuracy"]) == {"en", "de"}
    job = job_from_params("baseline", row.params)
    assert job is not None
    assert job.title() == "Baseline for English (en), German (de)"
    assert ("What", "Baseline") in job.details()
    command = ["headlab", "baseline", "--model", str(folder), "--task", "polarity"]
    assert job.commands() == [[*command, "--languages", "en,de", "--size", "4"]]


# The cost of a package's method is announced: once with the function that docs/extending.md shows,
# once with words alone, as packages gave them before there was such a function.

COSTS = {
    "function": 'MethodCost("1 forward an example", max_forwards)',
    "words": '"1 forward an example"',
}


@pytest.fixture(params=COSTS)
def toy_cost(request: pytest.FixtureRequest, install_package: Callable[..., Path]) -> str:
    """Installs the package with its method's cost in one of the two forms, and names the form."""
    text_by_path = example_files()
    method = text_by_path["headlab_toy/entropy.py"]
    assert method.count(COSTS["function"]) == 1
    text_by_path["headlab_toy/entropy.py"] = method.replace(COSTS["function"], COSTS[request.param])
    install_toy(install_package, text_by_path)
    return str(request.param)


def test_an_experiment_that_needs_a_package_s_method_is_announced(
    toy_cost: str, folder: Path, tmp_path: Path
):
    pieces = Pieces(
        headlab.load(folder, device="cpu"), headlab.task("polarity"), Store(tmp_path / "cache")
    )
    options = {"method": "entropy"}
    cost = forecast("depth", pieces, options)
    examples = sum(len(pieces.examples(language, "dev")) for language in ("en", "de"))
    assert cost.forwards == examples > 0
    assert cost.seconds is not None
    assert cost.seconds > 0
    assert cost.basis.startswith(f"entropy scores of 2 languages ({examples})")
    assert ("which is assumed (1 forward an example)" in cost.basis) == (toy_cost == "words")
    run_experiment("depth", pieces, options=options)
    assert forecast("depth", pieces, options).basis == "the report is in the cache already"


def test_a_job_by_a_package_s_method_is_announced(toy_cost: str, folder: Path, tmp_path: Path):
    cache = tmp_path / "cache"
    cache.mkdir()
    spec = {
        "model": str(folder),
        "task": "polarity",
        "languages": ["en", "de"],
        "method": "entropy",
    }
    with started_worker(cache, partial(ModelHost, cache, "cpu")) as worker:
        job_forecast = worker.client.forecast("score", spec)
    examples = sum(
        len(headlab.task("polarity").examples(language, "dev")) for language in ("en", "de")
    )
    assert job_forecast.forwards == examples > 0
    assert job_forecast.seconds > 0
    assert ("is assumed" in job_forecast.basis) == (toy_cost == "words")


@pytest.mark.parametrize("body", ["1 / 0", "return -1", "return 0.5", "return None"])
def test_a_package_that_miscounts_its_cost_is_named(
    install_package: Callable[..., Path], body: str
):
    text_by_path = example_files()
    method = text_by_path["headlab_toy/entropy.py"].replace(
        "    return examples\n", f"    {body}\n"
    )
    assert body in method
    install_toy(install_package, text_by_path | {"headlab_toy/entropy.py": method})
    with raises("method.cost_unknown", "entropy"):
        METHODS["entropy"].max_forwards({"base": 2.0}, 12, 24)


def test_a_cost_may_be_a_number_of_numpy():
    method = replace(
        METHODS["confidence"],
        cost=MethodCost("as many", lambda _, heads, examples: np.int64(examples)),
    )
    forwards = method.max_forwards({}, 12, 24)
    assert forwards == 24
    assert type(forwards) is int  # it is sent as JSON


def test_scores_without_a_forward_pass_are_missing_all_the_same(
    toy: Path, folder: Path, tmp_path: Path
):
    # Of a method that costs nothing no cost is announced, but its scores are not called cached.
    pieces = Pieces(
        headlab.load(folder, device="cpu"), headlab.task("polarity"), Store(tmp_path / "cache")
    )
    free = replace(METHODS["confidence"], key="free", cost=MethodCost("none", lambda *_: 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BUILT_IN, "free", free)
        ask = pieces.ask_scores("en", "free")
    assert (ask.forwards, ask.is_missing) == (0, True)


def test_a_caution_has_one_full_stop_wherever_it_is_shown(toy: Path):
    careful = replace(METHODS["confidence"], key="careful", caution="Approximate.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BUILT_IN, "careful", careful)
        assert caution("careful") == "Approximate"


def test_the_method_that_switches_heads_off_gives_what_it_says(toy: Path, folder: Path):
    (block,) = re.findall(
        r"^```python\n(def run\(work\):\n.*?)^```", PAGE.read_text("utf-8"), re.M | re.S
    )
    namespace: dict[str, Any] = {"np": np}
    exec(block, namespace)
    model = headlab.load(folder, device="cpu")
    evaluator = Evaluator(model, headlab.task("polarity"), "en", "dev", 8)
    values = namespace["run"](Work(evaluator, 0, {})).values
    inputs = evaluator.tensors(np.arange(len(evaluator.examples)))

    def sureness(gates: np.ndarray) -> float:
        with headlab.gated(model, gates), torch.no_grad():
            return float(model.module(**inputs).logits.softmax(-1).amax(-1).mean())

    all_on = np.ones(model.grid.size, dtype=bool)
    for head in (0, model.grid.size - 1):
        head_off = all_on.copy()
        head_off[head] = False
        change = sureness(model.grid.gates(all_on)) - sureness(model.grid.gates(head_off))
        assert values[head] == pytest.approx(change, abs=1e-6)
    assert np.ptp(values) > 1e-6
    assert evaluator.forwards == (model.grid.size + 1) * len(evaluator.examples)


METHOD = (
    "from headlab.methods.table import Method\n"
    "METHOD = Method({}, 't', {}, 'p', 'e', 'u', False, False, 'bad', {{}})\n"
)


@pytest.mark.parametrize(
    ("point", "text", "reason"),
    [
        ("shapley = bad:METHOD", "METHOD = 1", "has a name that is taken"),
        ("bad = bad:METHOD", "METHOD = 1", "1 is not a Method of headlab.methods.table"),
        ("bad = bad:METHOD", "class METHOD: pass", "the class METHOD is not a Method"),
        ("bad = bad:METHOD", METHOD.format("'other'", "'free'"), "its key is 'other', not 'bad'"),
        ("bad = bad:METHOD", METHOD.format("'bad'", "3"), "its cost, 3, is neither"),
        ("tmab = bad:METHOD", METHOD.format("'tmab'", "''"), "tmab is another name of shapley"),
        ("bad = bad:METHOD", "1 / 0", "cannot be imported (ZeroDivisionError: division by zero)"),
        ("bad = nosuchmodule:METHOD", "", "cannot be imported (ModuleNotFoundError"),
    ],
)
def test_what_does_not_fit_is_left_out_with_a_reason(
    install_package, caplog, point: str, text: str, reason: str
):
    methods_before = tuple(METHODS)
    key, value = point.split(" = ")
    install_bad(install_package, "headlab.methods", f'{key} = "{value}"', text)
    assert tuple(METHODS) == methods_before
    (problem,) = METHODS.problems if isinstance(METHODS, Registry) else ()
    assert reason in problem
    assert f"{key} ({value} of bad)" in problem
    assert problem in caplog.text


STUDY = (
    "from headlab.studies.table import Experiment\n"
    "STUDY = Experiment('{}', 't', 'q', 'p', {{}}, 'bad'{})\n"
)


@pytest.mark.parametrize(
    ("key", "job_argument", "reason"),
    [
        ("gap", "", "has a name that is taken"),
        ("front", "", "has a name that is taken"),
        ("roles", "", "has a name that is taken"),
        ("bad", ", job='front'", "its job is 'front', and only headlab's own studies"),
    ],
)
def test_a_study_that_does_not_fit_is_left_out_with_a_reason(
    install_package, key: str, job_argument: str, reason: str
):
    studies_before = tuple(STUDIES)
    module = STUDY.format(key, job_argument)
    install_bad(install_package, "headlab.studies", f'{key} = "bad:STUDY"', module)
    assert tuple(STUDIES) == studies_before
    (problem,) = STUDIES.problems
    assert reason in problem


SIZE = "setting(Option(1, 'of it', kind=int))"
WORK = "    def forecast(self, known): pass\n    def run(self, lab, running): pass\n"


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("score", f"class Bad(Job):\n    key = 'score'\n{WORK}", "has a name that is taken"),
        ("bad", "class Bad(Job):\n    key = 'bad'\n", "Bad lacks forecast and run"),
        (
            "bad",
            f"class Bad(Job):\n    key = 'x'\n{WORK}",
            "its key is 'x', not 'bad'",
        ),
        (
            "BAD",
            f"class Bad(Job):\n    key = 'BAD'\n{WORK}",
            "its key is a command",
        ),
        (
            "bad",
            f"class Bad(Job):\n    key = 'bad'\n    name = 'Bad'\n    cache: int = {SIZE}\n{WORK}",
            "Bad has a setting cache, a flag that its command has already",
        ),
        ("bad", "Bad = 1", "1 is not a subclass of headlab.jobs.Job"),
        (
            "bad",  # it has no name, which the form and the list of jobs show
            f"class Bad(Job):\n    key = 'bad'\n{WORK}",
            "Bad has no name",
        ),
        (
            "bad",  # without its flags, no command of headlab could be read
            f"class Bad(Job):\n    key = name = 'bad'\n    flags = lambda: 1 / 0\n{WORK}",
            "the flags of Bad cannot be made (ZeroDivisionError",
        ),
    ],
)
def test_a_kind_of_job_that_does_not_fit_is_left_out_with_a_reason(
    install_package, key: str, text: str, reason: str
):
    imports = "from headlab.jobs import Job, setting\nfrom headlab.core.options import Option\n"
    install_bad(install_package, "headlab.jobs", f'{key} = "bad:Bad"', imports + text)
    assert tuple(JOBS) == tuple(BUILT_IN_JOBS)
    (problem,) = JOBS.problems if isinstance(JOBS, Registry) else ()
    assert reason in problem


# Kinds of jobs with mistakes: each is a sentence, and all others go on.

NO_JSON_FIELDS = ("dated", "endless", "unwritten", "listed")
BROKEN = (
    "speechless",
    "unpredictable",
    "unresolved",
    "failing",
    "set",
    "nan",
    "list",
    *NO_JSON_FIELDS,
)


@pytest.fixture
def broken_package(install_package: Callable[..., Path]) -> None:
    """Installs tests/support/toy_broken_jobs.py, as a package announces it."""
    project = '[project]\nname = "broken"\nversion = "1"\n[project.entry-points."headlab.jobs"]\n'
    keys = (*BROKEN, "sound")
    points = [f'{key} = "support.toy_broken_jobs:{key.capitalize()}Job"\n' for key in keys]
    install_package(project + "".join(points), {"broken/__init__.py": ""})
    assert isinstance(JOBS, Registry)
    assert set(JOBS.added_keys) == set(keys)


def test_jobs_of_a_package_with_mistakes_leave_the_worker_at_work(
    broken_package: None, tmp_path: Path
):
    with started_worker(tmp_path, partial(ModelHost, tmp_path, "cpu")) as worker:
        with raises("worker.failed", "ZeroDivisionError"):
            worker.client.forecast("unpredictable", {})
        with raises("worker.failed", "ZeroDivisionError"):
            worker.client.submit("unresolved", {})
        for key in NO_JSON_FIELDS:
            with raises("job.params_invalid", f"the fields of a job of kind {key} are no JSON"):
                worker.client.submit(key, {})
        kinds = [key for key in BROKEN if key not in ("unresolved", *NO_JSON_FIELDS)]
        job_ids = {key: worker.client.submit(key, {}).id for key in (*kinds, "sound")}
        wait_until(lambda: worker.client.job(job_ids["sound"]).state == "done")
        rows = {key: worker.client.job(job_id) for key, job_id in job_ids.items()}
        assert len(worker.client.jobs()) == len(job_ids)
    assert {key: row.state for key, row in rows.items()} == {
        **dict.fromkeys(("speechless", "unpredictable", "sound"), "done"),
        **dict.fromkeys(("failing", "set", "nan", "list"), "failed"),
    }
    for key in ("set", "nan", "list"):
        assert str(rows[key].error).startswith(f"what a job of kind {key} returned is no JSON")


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"unit": "furlong"}, "sound.spec.unit: choose share or percent"),
        ({"limit": -1}, "sound.spec.limit: Input should be greater than or equal to 0"),
    ],
)
def test_a_refused_field_is_named_with_the_reason_alone(
    broken_package: None, tmp_path: Path, spec: dict[str, object], sentence: str
):
    with (
        started_worker(tmp_path, partial(ModelHost, tmp_path, "cpu")) as worker,
        raises("request.field_invalid") as refusal,
    ):
        worker.client.submit("sound", spec)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("key", ["set", "nan", "list"])
def test_an_outcome_that_is_no_json_is_a_sentence_of_the_command(
    broken_package: None, tmp_path: Path, capsys, key: str
):
    assert main([key, "--cache", str(tmp_path)]) == 2
    assert f"what a job of kind {key} returned is no JSON object" in capsys.readouterr().err


@pytest.mark.usefixtures("native_buttons")
def test_a_job_that_cannot_say_what_it_is_leaves_the_list_of_jobs_as_it_is(
    broken_package: None, tmp_path: Path
):
    client = FakeClient()
    client.rows = [
        job_row(number, "done", kind=key, params={}, result={"accuracy": {"en": "high"}})
        for number, key in ((7, "speechless"), (8, "sound"))
    ]
    with app_on(tmp_path, lambda: FakeWorker(client)):
        app = run_page("jobs")
        labels = {button.label for button in app.button}
        assert {"Job 7: speechless", "Job 8: Sound"} <= labels
        app.radio(key="new-kind-").set_value("speechless").run()
        assert "What it will take" in page_text(app)
        assert [code.value for code in app.code] == [""]
        assert not app.error
        job_page = run_page("jobs", job="7")
    assert job_page.subheader[0].value == "Job 7: speechless"
    assert job_page.table[0].value.to_numpy().tolist() == [["en", "high"]]
    assert not job_page.error
    assert not job_page.exception


@pytest.mark.parametrize(
    ("flag", "value", "advice"),
    [("--unit", "furlong", "share or percent"), ("--limit", "inf", "a number of 0 or more")],
)
def test_a_setting_s_values_are_checked_where_its_type_alone_says_less(
    broken_package: None, tmp_path: Path, capsys, flag: str, value: str, advice: str
):
    assert main(["sound", flag, value, "--cache", str(tmp_path)]) == 2
    assert advice in capsys.readouterr().err
    with raises("job.field_invalid", advice):
        read_command(f"headlab sound {flag} {value}")


@pytest.mark.usefixtures("native_buttons")
def test_figures_in_groups_are_a_table_with_a_column_for_each_name(
    broken_package: None, tmp_path: Path
):
    client = FakeClient()
    groups = {"de": {"error, %": 2.5, "n": 3}, "th": {"n": 4, "note": "few"}}
    client.rows = [job_row(8, "done", kind="sound", params={}, result={"calibration": groups})]
    with app_on(tmp_path, lambda: FakeWorker(client)):
        job_page = run_page("jobs", job="8")
    assert not job_page.exception
    table = job_page.table[0].value
    assert list(table.columns) == ["of", "error, %", "n", "note"]
    assert table.to_numpy().tolist() == [["de", "2.5", "3", ""], ["th", "", "4", "few"]]


def test_a_job_without_a_split_shows_its_size(toy: Path):
    job = job_from_params(
        "baseline", {"model": "m", "task": "polarity", "languages": ["en"], "size": 8}
    )
    assert job is not None
    assert ("Size", "8") in job.details()


def test_a_setting_that_may_be_none_is_none_by_default():
    with pytest.raises(TypeError, match="none by default"):
        setting(Option(5, "digits", kind=int, optional=True))


def test_a_task_that_is_left_out_is_among_the_problems_of_tasks(install_package):
    install_bad(install_package, "headlab.tasks", 'xnli = "bad:xnli"', "xnli = print")
    assert any("has a name that is taken" in problem for problem in registry_problems())
