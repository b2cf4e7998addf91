"""The study of interactions: its pairs, its sets, what it stores, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose
from support.cut_vocabularies import save_intents_classifier
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.charts.studies.interactions import figures
from headlab.cli.run import main
from headlab.core import Head, HeadGrid, Progress, Report, Stack
from headlab.hooks import Model
from headlab.jobs.interactions import InteractionsJob, heads_of_mask
from headlab.jobs.reading import read_command
from headlab.masks import Mask, full_mask
from headlab.methods.interactions import chosen_halvings, estimate, pair_plan, started_tally
from headlab.methods.pair_game import ModelPairGame, all_pairs
from headlab.results import Store
from headlab.studies import typed_result
from headlab.studies.interactions import (
    InteractionsResult,
    foreseen_loss,
    head_in,
    head_text,
    heads_of_layer,
)
from headlab.studies.run import Pieces, forecast, missing_pieces, report_spec, run_experiment
from headlab.studies.table import listed_heads, study

HEADS = "0.1,1.0,1.2,2.3"
FEW: dict[str, Any] = {"heads": HEADS, "samples": 48}
THREE_STACKS = HeadGrid(
    (Stack("encoder", (4, 4)), Stack("decoder", (3, 3)), Stack("cross", (3, 3)))
)


class Stopped(Exception):
    """Ends a run, as a kill does."""


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


@pytest.fixture
def make(model: Model, tmp_path: Path) -> Callable[..., Pieces]:
    """Makes pieces with nothing in memory, on the store of this test."""

    def pieces(*languages: str, **further_options: Any) -> Pieces:
        options: dict[str, Any] = {"store": Store(tmp_path), "dev_size": 10, "test_size": 20}
        task = tiny_task().with_languages(languages or ("xx",))
        return Pieces(model, task, **options | further_options)

    return pieces


def result_of(pieces: Pieces, **options: Any) -> InteractionsResult:
    return typed_result(report_of(pieces, **options), InteractionsResult)


def report_of(pieces: Pieces, **options: Any) -> Report:
    return run_experiment("interactions", pieces, options=options or FEW)


def test_every_pair_has_what_its_samples_say(make: Callable[..., Pieces], model: Model) -> None:
    result = result_of(make())
    names = HEADS.split(",")
    assert {(pair.first, pair.second) for pair in result.pairs.rows} == {*combinations(names, 2)}
    players = np.array([model.grid.index(head_in(model.grid, name)) for name in names])
    game = ModelPairGame(make().evaluator("xx", "dev"), pairs=all_pairs(players))
    plan = pair_plan(1.0, 48, 0.01)
    empty = started_tally(game, plan, chosen_halvings(game, plan))
    *_, tally = estimate(game, empty, seed=0)
    outcome = tally.outcome()
    assert outcome.low is not None
    assert outcome.high is not None
    assert outcome.p_values is not None
    corrected = reference.holm_by_steps(outcome.p_values.tolist())
    by_heads = {(pair.first, pair.second): pair for pair in result.pairs.rows}
    for index, pair in enumerate(combinations(names, 2)):
        row = by_heads[pair]
        assert row.interaction == pytest.approx(100 * outcome.values[index])
        assert row.low == pytest.approx(100 * outcome.low[index])
        assert row.high == pytest.approx(100 * outcome.high[index])
        assert row.corrected_p == pytest.approx(corrected[index])
        assert row.samples == 48
    sizes = [abs(pair.interaction) for pair in result.pairs.rows]
    assert sizes == sorted(sizes, reverse=True)


def test_what_sets_cost_is_what_evaluate_says(make: Callable[..., Pieces], model: Model) -> None:
    pieces = make()
    result = result_of(pieces)
    whole = pieces.answers("xx", None, "dev").accuracy

    def loss(names: list[str]) -> float:
        kept = np.ones(model.grid.size, bool)
        kept[[model.grid.index(head_in(model.grid, name)) for name in names]] = False
        return 100 * (whole - pieces.answers("xx", kept, "dev").accuracy)

    alone = {head_text(row.head, model.grid): row.loss for row in result.alone.rows}
    assert [*alone] == HEADS.split(",")
    for name, value in alone.items():
        assert value == pytest.approx(loss([name]))
    assert {row.size for row in result.sets.rows} >= {2, 4}
    interactions = {
        frozenset((pair.first, pair.second)): pair.interaction for pair in result.pairs.rows
    }
    for row in result.sets.rows:
        names = row.heads.split(", ")
        assert row.size == len(names)
        assert row.alone == pytest.approx(sum(alone[name] for name in names))
        assert row.measured == pytest.approx(loss(names))
        within = sum(interactions[frozenset(pair)] for pair in combinations(names, 2))
        assert row.foreseen == pytest.approx(row.alone - within)


def test_where_only_pairs_interact_alike_everywhere_sets_are_foreseen_exactly(
    rng: np.random.Generator,
) -> None:
    players = 6
    own = rng.normal(size=players)
    pair_parts = {pair: rng.normal() for pair in combinations(range(players), 2)}

    def value(present: frozenset[int]) -> float:
        total = sum(own[player] for player in present)
        return float(total + sum(pair_parts[pair] for pair in combinations(sorted(present), 2)))

    everyone = frozenset(range(players))
    names = [f"0.{player}" for player in range(players)]
    alone = {
        names[player]: value(everyone) - value(everyone - {player}) for player in range(players)
    }
    interactions = {
        frozenset((names[first], names[second])): reference.interaction_index(
            value, players, first, second
        )
        for first, second in pair_parts
    }
    assert_allclose([*interactions.values()], [*pair_parts.values()])
    for size in range(players + 1):
        for removed in combinations(range(players), size):
            foreseen = foreseen_loss([names[player] for player in removed], alone, interactions)
            want = value(everyone) - value(everyone - frozenset(removed))
            assert foreseen == pytest.approx(want)


# What is stored of it.


def test_a_report_is_made_once_and_is_the_same_for_the_same_seed(
    make: Callable[..., Pieces], tmp_path: Path
) -> None:
    pieces = make()
    assert forecast("interactions", pieces, FEW).forwards
    report = report_of(pieces)
    assert pieces.forwards == report.example_forwards > 0
    again = make()
    assert report_of(again).to_json() == report.to_json()
    assert again.forwards == 0
    assert forecast("interactions", make(), FEW).forwards == 0
    assert missing_pieces("interactions", make(), FEW) == ()
    elsewhere = report_of(make(store=Store(tmp_path / "elsewhere")))
    assert elsewhere.tables == report.tables
    other_seed = report_of(make(seed=1))
    assert other_seed.tables != report.tables
    without_store = report_of(make(store=None))
    assert without_store.tables == report.tables


@pytest.mark.parametrize("longer", [1, 4, 9])
@pytest.mark.usefixtures("one_lane")  # beside each other they end at no fixed number of ticks
def test_an_interrupted_run_resumes_with_the_same_bits(
    make: Callable[..., Pieces], tmp_path: Path, longer: int
) -> None:
    undisturbed = report_of(make(store=Store(tmp_path / "undisturbed")))
    ticks_left = 0

    def tick() -> None:
        nonlocal ticks_left
        ticks_left -= 1
        if ticks_left < 0:
            raise Stopped

    stops = 0
    report = None
    while report is None and stops < 200:
        ticks_left = longer * stops  # every run goes on a little longer than the one before
        try:
            report = report_of(make(tick=tick))
        except Stopped:
            stops += 1
    assert report is not None
    assert stops > 2
    assert report.tables == undisturbed.tables
    assert report.notes == undisturbed.notes


def test_languages_share_their_reports(make: Callable[..., Pieces]) -> None:
    german = report_of(make("yy"))
    both_pieces = make("xx", "yy")
    steps: list[Progress] = []
    report = run_experiment(
        "interactions", both_pieces, options=FEW, on_progress=lambda step: steps.append(step)
    )
    result = typed_result(report, InteractionsResult)
    assert result.languages == ("xx", "yy")
    assert result.of_language("yy") == typed_result(german, InteractionsResult).pairs.rows
    alone = make("xx")
    assert typed_result(report_of(alone), InteractionsResult).pairs.rows == result.of_language("xx")
    assert alone.forwards == 0
    done = [step.done for step in steps]
    assert done == sorted(done)
    assert all(step.done <= step.total for step in steps)


def test_keys_say_no_more_than_what_matters(make: Callable[..., Pieces]) -> None:
    pieces = make()
    experiment = study("interactions")

    def key(**options: Any) -> str:
        return report_spec(experiment, pieces, experiment.resolve(options)).key

    assert key(heads="0.1,1.0") == key(heads=" 1.0, 0.1,0.1", method="gradient")
    assert key(heads="0.1,1.0") != key(heads="0.1,1.1")
    assert key() == key(top=20)
    assert key(top=20) != key(top=20, method="gradient")
    options = experiment.resolve({"heads": "0.1,1.0"})
    assert options == {"heads": "0.1,1.0", "value": "accuracy", "samples": 16384, "target": 0.01}
    assert experiment.resolve(options) == options


@pytest.mark.parametrize("family", ["gpt2", "deberta-v2"])
@pytest.mark.parametrize("value", ["accuracy", "log-probability"])
def test_other_models_and_values_have_interactions_too(
    make: Callable[..., Pieces], family: str, value: str
) -> None:
    other_model = tiny_model(family, tokenizer=tiny_tokenizer())
    pieces = replace(make(), model=other_model)
    result = result_of(pieces, heads="0.1,1.0,2.2", samples=16, value=value)
    assert len(result.pairs.rows) == 3
    assert result.unit == ("points" if value == "accuracy" else "nats")
    for pair in result.pairs.rows:
        assert pair.low <= pair.interaction <= pair.high


def test_a_target_ends_it_early(make: Callable[..., Pieces]) -> None:
    result = result_of(make(), heads="0.1,1.0", samples=2000, target=0.4)
    (pair,) = result.pairs.rows
    assert pair.samples < 2000
    assert pair.samples % 10 == 0
    assert pair.high - pair.low <= 80.0 + 1e-9


# Whose pairs.


def test_heads_of_the_largest_scores(make: Callable[..., Pieces], model: Model) -> None:
    pieces = make()
    options = {"top": 3, "method": "leave-one-out", "samples": 16}
    with raises("interactions.scores_missing", "leave-one-out", "xx", "headlab score", "--heads"):
        report_of(pieces, **options)
    scores = pieces.scores("xx", "leave-one-out")
    result = result_of(pieces, **options)
    largest = np.sort(np.argsort(-np.abs(scores.values), kind="stable")[:3])
    names = {head_text(model.grid.heads[index], model.grid) for index in largest}
    assert {pair.first for pair in result.pairs.rows} | {
        pair.second for pair in result.pairs.rows
    } == names


def test_the_largest_are_chosen_by_the_stored_scores_whatever_their_options(
    make: Callable[..., Pieces],
) -> None:
    pieces = make("xx", "yy")
    stored = {
        name: pieces.scores(name, "shapley", samples=16, stop="width") for name in pieces.languages
    }
    pieces.scores("xx", "shapley", samples=8)  # of one language only
    by_name = result_of(make("xx", "yy"), top=3, samples=16)
    for language, scores in stored.items():
        largest = np.sort(np.argsort(-np.abs(scores.values), kind="stable")[:3])
        names = {head_text(pieces.model.grid.heads[index], pieces.model.grid) for index in largest}
        pairs = by_name.of_language(language)
        assert {pair.first for pair in pairs} | {pair.second for pair in pairs} == names
    report = report_of(make("xx", "yy"), top=3, samples=16)
    recorded = report.spec["options"]["method_options"]
    assert (recorded["samples"], recorded["stop"]) == (16, "width")
    given = {"method_options": {"samples": 16, "stop": "width"}}
    assert report_of(make("xx", "yy"), top=3, samples=16, **given).spec == report.spec
    with raises("interactions.scores_missing", "stored: -o samples=16 -o stop=width --size 10"):
        report_of(
            make("xx", "yy"), top=3, samples=16, method_options={"stop": "sign", "samples": 16}
        )
    with raises("interactions.scores_missing", "--size 10 --seed 0"):
        report_of(make("xx", "yy", seed=1), top=3, samples=16)


def test_a_job_leaves_the_options_of_the_stored_scores_open() -> None:
    job = InteractionsJob.from_flags(
        {"model": "e5-small-intents", "task": "intents", "languages": "de", "top": 5}
    )
    assert job.resolve().method_options == {}
    asked = job.model_copy(update={"method_options": {"stop": "width"}})
    assert asked.resolve().method_options == {"stop": "width"}


def test_the_heads_of_a_layer(make: Callable[..., Pieces]) -> None:
    result = result_of(make(), layer="1", samples=16)
    assert [row.head for row in result.alone.rows] == [Head("encoder", 1, n) for n in range(4)]
    assert len(result.pairs.rows) == 6


def test_the_pairs_of_one_head_with_others(make: Callable[..., Pieces]) -> None:
    result = result_of(make(), of="2.3", heads="0.1,1.2,2.3", samples=16)
    names = {(pair.first, pair.second) for pair in result.pairs.rows}
    assert names == {("0.1", "2.3"), ("1.2", "2.3")}
    assert [row.size for row in result.sets.rows] == [2, 2]
    layer = result_of(make(), of="2.3", layer="1", samples=16)
    assert len(layer.pairs.rows) == 4
    assert len(layer.alone.rows) == 5


def test_every_spelling_of_one_choice_is_one_report(make: Callable[..., Pieces]) -> None:
    plain = report_of(make(), heads="0.1,1.0,2.3", of="2.3", samples=16)
    pieces = make()
    spelled = report_of(
        pieces, heads="encoder.1.0, 0.1,encoder.0.1,2.3", of="encoder.2.3", samples=16
    )
    assert spelled.spec == plain.spec
    assert spelled.tables == plain.tables
    assert pieces.forwards == 0


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"heads": "0.1"}, "interactions.one_head", "given 0.1"),
        ({"heads": " , "}, "interactions.one_head", "given none"),
        ({"heads": "0.1,zero"}, "interactions.head_malformed", "'zero'"),
        ({"heads": "0.1,-1.2"}, "interactions.head_malformed", "'-1.2'"),
        ({"heads": "0.1,1.0", "top": 4}, "interactions.two_choices", "heads and top"),
        ({"layer": "1", "top": 4}, "interactions.two_choices", "top and layer"),
        ({"heads": "0.1,7.0"}, "interactions.head_unknown", "no head 7.0"),
        ({"heads": "0.1,decoder.1.0"}, "interactions.stack_unknown", "decoder.1.0"),
        ({"layer": "9"}, "interactions.layer_unknown", "no layer 9"),
        ({"layer": "first"}, "interactions.layer_malformed", "'first'"),
        ({"top": 1}, "experiment.option_invalid", "top"),
        ({"heads": "0.1", "of": "0.1"}, "interactions.one_head", "given 0.1"),
        ({"heads": "0.1,encoder.0.1"}, "interactions.one_head", "one, 0.1"),
        ({"heads": "0.1", "of": "encoder.0.1"}, "interactions.one_head", "one, 0.1"),
        ({"heads": "0.1,1.0", "of": "0.1,0.2"}, "interactions.of_malformed", "'0.1,0.2'"),
        ({"heads": "0.1,1.0", "of": "7.2"}, "interactions.head_unknown", "7.2"),
        (
            {"heads": ",".join(f"0.{number}" for number in range(65))},
            "interactions.heads_too_many",
            "64",
        ),
    ],
)
def test_what_does_not_fit_is_said(
    make: Callable[..., Pieces], options: dict[str, Any], code: str, words: str
) -> None:
    with raises(code, words):
        report_of(make(), **options)


def test_heads_of_several_stacks_are_named_with_their_stack() -> None:
    assert head_in(THREE_STACKS, "cross.1.2") == Head("cross", 1, 2)
    assert head_text(Head("cross", 1, 2), THREE_STACKS) == "cross.1.2"
    with raises("interactions.stack_unknown", "encoder.1.2 or decoder.1.2"):
        head_in(THREE_STACKS, "1.2")
    with raises("interactions.stack_unknown", "encoder.1.2"):
        head_in(THREE_STACKS, "decode.1.2")
    assert len(heads_of_layer(THREE_STACKS, "decoder.1")) == 3
    with raises("interactions.stack_unknown", "encoder.1"):
        heads_of_layer(THREE_STACKS, "1")
    assert listed_heads("decoder.1.0,0.10,0.9") == ("0.9", "0.10", "decoder.1.0")


# Its command and its job.


def flags(**given: Any) -> dict[str, Any]:
    return {"model": "m", "task": "intents", "languages": "de", **given}


def test_a_masks_heads_are_named(tmp_path: Path) -> None:
    grid = HeadGrid((Stack("encoder", (2, 2)),))
    whole = full_mask(grid)
    path = tmp_path / "mask.json"
    path.write_text(json.dumps(whole.to_json()))
    with raises("interactions.mask_empty", "mask.json", "heads off"):
        InteractionsJob.from_flags(flags(mask=path))
    two_off = Mask(grid, np.array([True, False, True, False]), whole.model)
    path.write_text(json.dumps(two_off.to_json()))
    job = InteractionsJob.from_flags(flags(mask=path))
    assert job.options["heads"] == "0.1,1.1"
    with raises("interactions.two_choices", "mask and heads"):
        InteractionsJob.from_flags(flags(mask=path, heads="0.1,1.1"))
    one_off = Mask(grid, np.array([True, False, True, True]), whole.model)
    path.write_text(json.dumps(one_off.to_json()))
    with raises("interactions.one_head", "given 0.1"):
        InteractionsJob.from_flags(flags(mask=path))
    three_stacks = full_mask(THREE_STACKS)
    kept = three_stacks.kept.copy()
    kept[[0, -1]] = False
    assert heads_of_mask(replace(three_stacks, kept=kept), "m") == "encoder.0.0,cross.1.2"


def test_the_mask_of_another_model_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_intents_classifier(tmp_path)
    record = json.loads((folder / "mask.json").read_text())
    record["model"] |= {"name": "another", "fingerprint": "1" * 64}
    other = tmp_path / "other.json"
    other.write_text(json.dumps(record))
    words = ["interactions", "--model", str(folder / "model"), "--task", "intents"]
    words += ["--languages", "th", "--size", "8", "--samples", "8"]
    words += ["--device", "cpu", "--cache", str(tmp_path / "cache"), "--mask"]
    assert main([*words, str(other)]) == 2
    assert "the mask was made for another (fingerprint 111111111111)" in capsys.readouterr().err
    assert main([*words, str(folder / "mask.json")]) == 0


def test_a_method_that_chooses_no_heads_is_refused() -> None:
    for given in ({"method": "gradient"}, {"option": ["samples=8"]}):
        with raises("interactions.method_unused", "leave --method"):
            InteractionsJob.from_flags(flags(heads="0.1,1.1", **given))
    job = InteractionsJob.from_flags(flags(method="gradient"))
    assert job.options["top"] == 20
    assert job.method == "gradient"


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ("--heads 9.3,9.4,10.6", "Interactions of heads, 9.3, 9.4, 10.6"),
        ("--heads 0.0,0.1,0.2,0.3,0.4 --samples 64", "Interactions of heads, 5 heads"),
        ("--layer 9 --target 0.02", "Interactions of heads, layer 9"),
        ("--top 6 --method leave-one-out", "Interactions of heads, the 6 largest"),
        ("--layer 9 --of 10.6", "Interactions of heads, 10.6 with layer 9"),
    ],
)
def test_a_command_is_read_back_from_its_job(line: str, subject: str) -> None:
    command = f"headlab interactions --model m --task intents --languages de {line}"
    job = read_command(command)
    assert isinstance(job, InteractionsJob)
    assert job.subject() == subject
    (words,) = job.commands()
    assert read_command(" ".join(words)) == job


def test_the_job_of_a_stored_report_makes_it_again(make: Callable[..., Pieces]) -> None:
    report = report_of(make())
    job = InteractionsJob.from_spec(report.spec)
    (words,) = job.commands()
    assert "--heads" in words
    assert words[words.index("--heads") + 1] == HEADS


# Its figures.


def test_its_graph_has_a_line_for_each_pair_and_a_dot_for_each_head(
    make: Callable[..., Pieces],
) -> None:
    result = result_of(make("xx", "yy"))
    charts = figures(result)
    assert [*charts] == ["interactions-xx", "interactions-yy", "interactions-sets"]
    *lines, chosen = charts["interactions-xx"].series
    assert len(lines) == 6
    assert len(chosen.x) == 4  # type: ignore[union-attr]
