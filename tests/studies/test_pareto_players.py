"""Fronts of other players than heads: counts, planted players, resuming, records and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from support.expected_errors import raises
from support.players_by_hand import playing
from support.task_answers import task_answered_by
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import HeadGrid, HeadlabError, Report, Stack
from headlab.evaluation import Evaluator, compare
from headlab.hooks import Model, with_players
from headlab.jobs.table import FrontJob
from headlab.masks import Mask, mask_from_json
from headlab.report.commands import MaskFile, mask_again
from headlab.results import Store
from headlab.shrink import parameters_of, shrink_players
from headlab.studies import pareto_run
from headlab.studies.pareto import (
    CHOSEN_WITHOUT_LAYERS,
    FRONT_TABLE,
    LIKE_ANY_OTHER,
    WITHOUT_LAYERS,
    WITHOUT_LAYERS_OF_STACK,
    FrontResult,
    NestedOrder,
    Point,
    chosen_mask,
    emptied_sentences,
    mask_at,
    per_parameter,
)
from headlab.studies.pareto_run import FrontPlan, choosable_points, require_layer_left
from headlab.studies.run import (
    Pieces,
    experiment_with_options,
    forecast,
    report_spec,
    run_experiment,
)
from headlab.studies.savings_run import costs_of, macs_of, made_up_inputs
from headlab.studies.table import STUDIES

OPTIONS = {"method": "leave-one-out", "points": 4, "within": 40.0, "by": "estimate"}
TOKENS = 6
JOINT = "heads,neurons:2"
# Families and players whose smaller models are made, to be counted.
COUNTED = [
    ("bert", JOINT),
    ("bert", "attention,feed-forward"),
    ("bert", "heads,attention,feed-forward,neurons:2,layers"),
    ("llama", "kv-groups,neurons:2"),
    ("llama", "heads,neurons:2,layers"),
    ("gpt2", "heads,neurons:2,layers"),
    ("modernbert", "neurons:2"),
    ("t5", JOINT),
]


@cache
def model_of(family: str) -> Model:
    return tiny_model(family, tokenizer=tiny_tokenizer())


def pieces_of(model: Model, store: Path | None = None, **changes: Any) -> Pieces:
    languages = changes.pop("languages", ["xx", "yy"])
    task = changes.pop("task", tiny_task()).with_languages(languages)
    some_store = None if store is None else Store(store)
    return Pieces(model, task, some_store, dev_size=16, test_size=20, **changes)


@pytest.mark.parametrize(("family", "players"), COUNTED)
def test_what_is_counted_is_what_the_smaller_model_has(family: str, players: str) -> None:
    model = playing(model_of(family), players)
    costs = costs_of(model)
    assert costs.are_known
    rng = np.random.default_rng(0)
    kinds = np.array([model.grid.kind_of(player) for player in model.grid.heads])
    masks = [np.ones(model.grid.size, bool)]
    for share in (0.9, 0.6, 0.3):
        kept = rng.random(model.grid.size) < share
        kept[(kinds == "layers") & (rng.random(model.grid.size) < 0.6)] = True
        masks.append(kept)
    for kept in masks:
        smaller = shrink_players(model, Mask(model.grid, kept, model.identity()))
        cost = costs.shrunk(kept, TOKENS)
        assert cost.parameters == smaller.parameters_after == parameters_of(smaller.module)
        inputs = made_up_inputs(smaller.module, TOKENS)
        if "t5" not in family:  # whose cross-attention is counted by the target's length
            assert cost.macs == macs_of(smaller.module, inputs)


def test_kinds_that_cannot_be_removed_say_why_and_are_ordered_without_their_cost() -> None:
    shared = costs_of(playing(model_of("albert"), "neurons:2"))
    assert not shared.are_known
    assert "share their weights" in shared.note
    with raises("costs.players_not_removable", "share their weights"):
        shared.shrunk(np.ones(6, bool))
    tuples = costs_of(playing(model_of("t5"), "layers"))
    assert not tuples.are_known
    assert "more than states" in tuples.note
    unknown = costs_of(playing(model_of("bert"), JOINT)).unknown("no reason")
    assert not unknown.are_known
    assert unknown.parameters == costs_of(model_of("bert")).parameters
    with raises("mask.shape_mismatch", "12 players", "18"):
        costs_of(playing(model_of("bert"), JOINT)).shrunk(np.ones(12, bool))


def test_players_are_ordered_by_what_each_costs_alone() -> None:
    model = playing(model_of("bert"), JOINT)
    costs = costs_of(model)
    assert not costs.are_even
    values = np.linspace(1, 2, model.grid.size)
    head, group = 4 * 24 * 6 + 18, 16 * (24 + 1 + 24)
    want = values / np.array([head] * 12 + [group] * 6)
    assert_allclose(per_parameter(values, costs), want)
    assert costs_of(playing(model_of("bert"), "neurons:2")).are_even
    # Heads that share keys and values leave together, as where heads alone are players.
    llama = playing(model_of("llama"), JOINT)
    heads = llama.head_grid.size
    of_heads = per_parameter(np.ones(heads), costs_of(model_of("llama")))
    assert_allclose(per_parameter(np.ones(llama.grid.size), costs_of(llama))[:heads], of_heads)


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    store = tmp_path_factory.mktemp("store")
    model = playing(model_of("bert"), JOINT)
    return store, run_experiment("front", pieces_of(model, store), options=OPTIONS)


def test_a_joint_front_has_its_players_in_record_mask_and_words(
    front: tuple[Path, Report],
) -> None:
    store, report = front
    model = playing(model_of("bert"), JOINT)
    assert report.spec.players == report.spec["options"]["players"] == JOINT
    assert report.spec.groups == model.grid.members_sha256
    table = report.table(FRONT_TABLE)
    assert {"players removed", "players kept"} <= set(table.columns)
    without_heads = "All 12 heads are removed: no token sees another any more."
    assert [note for note in report.notes if "heads" in note.lower()] == [without_heads]
    assert report.notes[-1] == LIKE_ANY_OTHER
    assert table.column("players kept")[0] == 18
    result = FrontResult.from_report(Report.from_json(json.loads(json.dumps(report.to_json()))))
    assert result.noun == "players"
    costs = costs_of(model)
    for point in result.points:
        mask = mask_at(report, point.order, point.heads_removed, model.grid)
        assert mask.to_json()["version"] == 3
        assert point.parameters == shrink_players(model, mask).parameters_after
        assert point.parameters == costs.shrunk(mask.kept).parameters
        for language, accuracy, difference in zip(
            point.languages, point.accuracy, point.difference, strict=True
        ):
            evaluator = Evaluator(model, tiny_task(), language, "dev", 16)
            evaluation = evaluator.evaluate(mask)
            assert evaluation.accuracy == pytest.approx(accuracy)
            gain = evaluation.accuracy - evaluator.evaluate().accuracy
            assert gain == pytest.approx(difference)
    mask = chosen_mask(report, model.grid)
    again = mask_from_json(json.loads(json.dumps(mask.to_json())))
    assert again.digest == mask.digest
    assert again.chosen["front"]["players"] == JOINT
    figures = again.chosen["evaluated"]["test"]["languages"]["xx"]
    evaluator = Evaluator(model, tiny_task(), "xx", "test", 20)
    comparison = compare(evaluator.evaluate(), evaluator.evaluate(again), 0)
    assert figures["difference"] == pytest.approx(comparison.difference)
    assert figures["low"] == pytest.approx(comparison.low)
    # Pages list what is of heads.
    assert Store(store).reports().results == ()
    assert len(Store(store).reports(None).results) == 1
    assert len(Store(store).reports(JOINT).results) == 1


def test_a_stored_front_is_read_and_another_question_needs_answers_alone(
    front: tuple[Path, Report],
) -> None:
    store, report = front
    model = playing(model_of("bert"), JOINT)
    pieces = pieces_of(model, store)
    assert run_experiment("front", pieces, options=OPTIONS).to_json() == report.to_json()
    named = {**OPTIONS, "players": "neurons:2, heads"}
    assert run_experiment("front", pieces, options=named).to_json() == report.to_json()
    assert pieces.forwards == 0
    best = {"method": "leave-one-out", "points": 4, "heads": 12}
    other = run_experiment("front", pieces, options=best)
    assert other.notes[0].startswith("Best with 12 players, the weakest language protected")


def test_fronts_of_heads_keep_their_keys() -> None:
    pieces = pieces_of(model_of("bert"))
    study = STUDIES["front"]
    options = study.resolve({**OPTIONS, "players": "heads"})
    assert options == study.resolve(OPTIONS)
    assert "players" not in options
    spec = report_spec(study, pieces, options).to_json()
    assert not {"players", "groups"} & set(spec)
    of_heads = with_players(playing(model_of("bert"), JOINT), "heads")
    assert report_spec(study, pieces_of(of_heads), options).to_json() == spec
    report = run_experiment("front", pieces, options={**OPTIONS, "method": "random", "points": 2})
    assert {"heads removed", "heads kept"} <= set(report.table(FRONT_TABLE).columns)
    assert FrontResult.from_report(report).noun == "heads"
    assert not any("player" in note.lower() for note in report.notes)


def test_an_interrupted_front_of_players_ends_with_the_same_numbers(
    front: tuple[Path, Report], tmp_path: Path
) -> None:
    model = playing(model_of("bert"), JOINT)

    def stop(step: Any) -> None:
        if step.note.startswith("order weakest in yy: 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment("front", pieces_of(model, tmp_path), options=OPTIONS, on_progress=stop)
    pieces = pieces_of(model, tmp_path)
    report = run_experiment("front", pieces, options=OPTIONS)
    assert report.tables == front[1].tables
    assert report.notes == front[1].notes
    assert 0 < pieces.forwards < front[1].example_forwards


def test_a_group_of_noise_leaves_first() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer(), seed=3)
    layers = model.module.bert.encoder.layer
    with torch.no_grad():
        noise = torch.randn(24, 16, generator=torch.Generator().manual_seed(1))
        layers[2].output.dense.weight[:, 0::2] = noise.double() * 3
        layers[2].intermediate.dense.bias[0::2] = 1.0
    variant = playing(model, "heads,neurons:2")
    noisy = [str(player) for player in variant.grid.heads].index("encoder-neurons 2.0")
    kept = np.ones(variant.grid.size, bool)
    kept[noisy] = False
    task = task_answered_by(variant, Mask(variant.grid, kept))
    options = {"method": "leave-one-out", "points": None, "within": 0.0, "orders": "mean,weakest"}
    report = run_experiment("front", pieces_of(variant, task=task), options=options)
    result = FrontResult.from_report(report)
    for order in dict.fromkeys(point.order for point in result.points):
        assert result.removal_order(order, variant.grid)[0] == noisy
    without_noise = next(point for point in result.points if point.heads_removed == 1)
    assert without_noise.worst > 0.2
    assert chosen_mask(report, variant.grid).removed[0:1]
    assert not chosen_mask(report, variant.grid).kept[noisy]


def closed_mask(model: Model, kept: list[int]) -> Mask:
    """The mask that keeps these players alone."""
    return Mask(model.grid, np.isin(np.arange(model.grid.size), kept))


@pytest.mark.parametrize(
    ("players", "words"),
    [
        ("heads", "All 12 heads are removed: no token sees another any more."),
        ("attention", "All 3 attention blocks are removed: no token sees another any more."),
        ("feed-forward", "All 3 feed-forward blocks are removed: layers are attention alone."),
        ("neurons:2", "All 6 groups of neurons are removed: layers are attention alone."),
    ],
)
def test_a_model_without_any_player_of_a_kind_is_chosen_with_words(
    players: str, words: str
) -> None:
    model = playing(model_of("bert"), players) if players != "heads" else model_of("bert")
    task = task_answered_by(model, closed_mask(model, []))
    options = {"method": "leave-one-out", "points": None, "within": 100.0, "by": "estimate"}
    report = run_experiment("front", pieces_of(model, task=task), options=options)
    assert not chosen_mask(report, model.grid).kept.any()
    assert words in report.notes
    assert LIKE_ANY_OTHER in report.notes
    assert shrink_players(model, chosen_mask(report, model.grid)).parameters_after
    kept_one = {**options, "within": None, "heads": 1}
    report = run_experiment("front", pieces_of(model, task=task), options=kept_one)
    assert not any(note.startswith("All ") for note in report.notes)


def test_a_model_without_any_layer_is_measured_but_never_chosen() -> None:
    model = playing(model_of("bert"), "layers")
    task = task_answered_by(model, closed_mask(model, []))
    options = {"method": "leave-one-out", "points": None, "within": 100.0, "by": "estimate"}
    report = run_experiment("front", pieces_of(model, task=task), options=options)
    result = FrontResult.from_report(report)
    assert min(point.heads_kept for point in result.points) == 0
    assert [row.heads_kept for row in result.answers.rows] == [1, 1]
    assert any("It is not chosen: none can be written" in note for note in report.notes)
    assert shrink_players(model, chosen_mask(report, model.grid)).parameters_after
    assert emptied_sentences(model.grid, np.zeros(3, bool)) == [
        "All 3 layers are removed: answers come from the embeddings of tokens alone.",
        WITHOUT_LAYERS,
    ]
    assert emptied_sentences(model.grid, np.eye(3, dtype=bool)[1]) == []
    for function in (forecast, run_experiment):
        with raises("front.no_layer_left", "1 or more"):
            function("front", pieces_of(model), options={"points": 3, "heads": 0})
    strict = {**options, "within": 0.0}
    report = run_experiment("front", pieces_of(model), options=strict)
    assert not any("not chosen" in note for note in report.notes)


def test_a_front_of_layers_that_an_earlier_version_stored_is_made_again() -> None:
    """An earlier version chose models without a layer; fronts of other players are as they were."""
    versions = {}
    for players in ("heads", "neurons:2", "layers", "heads,layers"):
        model = playing(model_of("bert"), players)
        pieces = pieces_of(model)
        experiment, options = experiment_with_options("front", pieces, {"points": 3})
        versions[players] = report_spec(experiment, pieces, options).version
    assert versions == {"heads": 2, "neurons:2": 2, "layers": 3, "heads,layers": 3}


def test_a_joint_front_that_keeps_no_layer_at_the_size_asked_for_says_so() -> None:
    model = playing(model_of("bert"), "heads,layers")
    grid = model.grid
    layers = [index for index, player in enumerate(grid.heads) if "layers" in player.stack]
    values = np.ones(grid.size)
    values[layers] = 0.0  # leave first
    order = NestedOrder("mean", values, np.argsort(values, kind="stable"))
    points = [
        Point("mean", removed, grid.size - removed, None, ("xx",), *([(0.0,)] * 5), 0.0, 0.0, 0.0)
        for removed in range(grid.size + 1)
    ]
    for kept_count in (grid.size - 2, None):
        plan = FrontPlan({"heads": kept_count}, {}, [order], [], [])
        require_layer_left(grid, plan)
        choosable = choosable_points(grid, plan, points)
        assert min(point.heads_kept for point in choosable) == grid.size - 2
    with raises("front.no_layer_left", "12 players"):
        require_layer_left(grid, FrontPlan({"heads": 12}, {}, [order], [], []))


def test_a_size_without_a_layer_is_refused_before_anything_is_measured(monkeypatch) -> None:
    def measure(*_: object) -> None:
        raise AssertionError("an accuracy was measured")

    monkeypatch.setattr(pareto_run, "walk_curve", measure)
    model = playing(model_of("bert"), "heads,layers")
    options = {"method": "leave-one-out", "points": 3, "within": None, "heads": 1}
    with raises("front.no_layer_left", "1 player"):
        run_experiment("front", pieces_of(model), options=options)


def test_what_is_emptied_of_a_model_with_two_stacks_is_said_of_that_stack() -> None:
    heads = HeadGrid.from_json({"encoder": [4, 4], "decoder": [3, 3], "cross": [3, 3]})
    without_encoder = np.arange(heads.size) >= 8
    assert emptied_sentences(heads, without_encoder) == [
        "All 8 encoder heads are removed: no token of the text sees another.",
        LIKE_ANY_OTHER,
    ]
    without_cross = np.arange(heads.size) < 14
    assert emptied_sentences(heads, without_cross)[0] == (
        "All 6 cross-attention heads are removed: the decoder sees nothing of the text that it "
        "answers."
    )
    layers = HeadGrid.from_json({"encoder-layers": [1, 1], "decoder-layers": [1, 1]})
    without_encoder = np.array([False, False, True, True])
    assert emptied_sentences(layers, without_encoder) == [
        "All 2 encoder layers are removed: the decoder is given the embeddings of the text's "
        "tokens.",
        WITHOUT_LAYERS_OF_STACK,
    ]
    assert emptied_sentences(layers, without_encoder, is_chosen=True)[-1] == CHOSEN_WITHOUT_LAYERS
    blocks = HeadGrid.from_json({"encoder-feed-forward": [1, 1], "decoder-feed-forward": [1, 1]})
    assert emptied_sentences(blocks, ~without_encoder)[0] == (
        "All 2 decoder feed-forward blocks are removed: layers of the decoder are attention alone."
    )
    one_layer = HeadGrid.from_json({"decoder-layers": [1]})
    assert emptied_sentences(one_layer, np.zeros(1, bool))[0] == (
        "The only layer is removed: answers come from the embeddings of tokens alone."
    )


def test_one_kind_is_called_by_its_own_noun() -> None:
    model = playing(model_of("bert"), "neurons:2")
    options = {"method": "leave-one-out", "points": 3, "within": None, "heads": 3}
    report = run_experiment("front", pieces_of(model), options=options)
    columns = report.table(FRONT_TABLE).columns
    assert {"groups of neurons removed", "groups of neurons kept"} <= set(columns)
    text = json.dumps(report.to_json(), ensure_ascii=False)
    words = " ".join([*report.notes, *(note for table in report.tables for note in table.notes)])
    assert "player" not in words
    assert " heads" not in words
    assert "There is no order by cost: all groups of neurons of this model cost alike." in words
    assert "Best with 3 groups of neurons, the weakest language protected" in words
    assert "3 groups of neurons are removed, by order" in words
    assert "no group of neurons is removed" in words.lower()
    assert FrontResult.from_report(Report.from_json(json.loads(text))).noun == "groups of neurons"
    one = run_experiment("front", pieces_of(model), options={**options, "heads": 1})
    assert "Best with 1 group of neurons, the weakest language" in " ".join(one.notes)
    all_kept = run_experiment("front", pieces_of(model), options={**options, "heads": 6})
    assert "no group of neurons goes; 6 are left" in " ".join(all_kept.notes)


def test_a_front_stored_when_all_players_had_one_noun_is_read() -> None:
    model = playing(model_of("bert"), "neurons:2")
    options = {"method": "leave-one-out", "points": 3, "within": 40.0}
    report = run_experiment("front", pieces_of(model), options=options)
    text = json.dumps(report.to_json()).replace("groups of neurons", "players")
    earlier = Report.from_json(json.loads(text))
    assert FrontResult.from_report(earlier).noun == "players"
    assert FrontResult.from_report(earlier).points == FrontResult.from_report(report).points
    mask = chosen_mask(earlier, model.grid)
    assert_array_equal(mask.kept, chosen_mask(report, model.grid).kept)


def test_what_does_not_fit_is_refused_before_anything_is_computed(
    front: tuple[Path, Report],
) -> None:
    model = playing(model_of("bert"), JOINT)
    pieces = pieces_of(model)
    refusals: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
        ({"players": "layers"}, ("front.players_not_of_model", "layers", JOINT)),
        ({"players": "wheels"}, ("players.unknown", "wheels", "neurons:N")),
        ({"players": "neurons:0"}, ("players.groups_invalid", "neurons:8")),
        ({"method": "confidence"}, ("method.players", "leave-one-out")),
        ({"heads": 19, "within": None}, ("front.heads_too_many", "18 players")),
    ]
    for options, refusal in refusals:
        for function in (forecast, run_experiment):
            with raises(*refusal):
                function("front", pieces, options={**OPTIONS, **options})
    assert pieces.forwards == 0
    with raises("front.players_not_of_model", "heads"):
        run_experiment("front", pieces_of(model_of("bert")), options={"players": "layers"})
    _, report = front
    for grid in (model_of("bert").grid, playing(model_of("bert"), "neurons:2").grid):
        with raises("front.other_players", JOINT):
            chosen_mask(report, grid)
    stacks = []
    for stack in model.grid.stacks:
        members = stack.members and tuple(layer[::-1] for layer in stack.members)
        stacks.append(Stack(stack.name, stack.heads, members))
    with raises("front.other_players", "same groups"):
        chosen_mask(report, type(model.grid)(tuple(stacks)))


def test_the_vocabulary_is_cut_beside_the_players() -> None:
    costs = costs_of(playing(model_of("bert"), JOINT))
    pieces = costs.vocabulary
    assert pieces is not None
    cut = costs.cut_to(pieces.pieces - 3)
    kept = np.arange(18) % 3 > 0
    saved = 3 * pieces.parameters
    assert costs.shrunk(kept).parameters - cut.shrunk(kept).parameters == saved
    assert cut.are_known


def mutated(value: Any, rng: np.random.Generator) -> Any:
    """A JSON value with one part of it replaced by something else."""
    if isinstance(value, dict) and value:
        name = list(value)[rng.integers(len(value))]
        return {**value, name: mutated(value[name], rng)}
    if isinstance(value, list) and value:
        place = int(rng.integers(len(value)))
        return [*value[:place], mutated(value[place], rng), *value[place + 1 :]]
    others: tuple[Any, ...] = (None, -1, 1e400, "", "heads", "neurons:2", [], {}, True)
    return others[rng.integers(len(others))]


def reports_of(front: Report, count: int) -> Iterator[Any]:
    rng = np.random.default_rng(0)
    value = json.loads(json.dumps(front.to_json()))
    for _ in range(count):
        yield mutated(mutated(value, rng), rng)


def test_a_damaged_front_of_players_gives_a_sentence_or_a_mask(front: tuple[Path, Report]) -> None:
    grid = playing(model_of("bert"), JOINT).grid
    for value in reports_of(front[1], 300):
        try:
            mask = chosen_mask(Report.from_json(value), grid)
        except HeadlabError:
            continue
        assert mask.grid == grid


def test_jobs_of_fronts_say_their_players_as_their_commands_do(front: tuple[Path, Report]) -> None:
    (words,) = FrontJob.from_spec(front[1].spec).commands()
    assert words[words.index("--players") + 1] == JOINT
    mask = chosen_mask(front[1], playing(model_of("bert"), JOINT).grid)
    (command,) = mask_again(MaskFile(mask, "m", "mask.json")).commands
    assert command[command.index("--players") + 1] == JOINT
    values = {"model": "m", "task": "intents", "languages": "de,fi", "within": 2.0}
    job = FrontJob.from_flags({**values, "players": "neurons:8,heads", "method": "smoothed"})
    (words,) = job.commands()
    assert words[words.index("--players") + 1] == "neurons:8,heads"
    resolved = job.study().resolve(job.study_options())
    assert resolved["players"] == "heads,neurons:8"
    (words,) = FrontJob.from_flags(values).commands()
    assert "--players" not in words
    with raises("players.unknown", "wheels"):
        job = FrontJob.from_flags({**values, "players": "wheels"})
        job.study().resolve(job.study_options())


def test_random_masks_of_a_front_cost_what_their_gates_say() -> None:
    """Counts fall as players leave, whatever the order."""
    model = playing(model_of("llama"), "heads,kv-groups,neurons:2,layers")
    costs = costs_of(model)
    rng = np.random.default_rng(1)
    for _ in range(5):
        kept = np.ones(model.grid.size, bool)
        counts = [costs.shrunk(kept).parameters]
        for player in rng.permutation(model.grid.size):
            kept[player] = False
            counts.append(costs.shrunk(kept).parameters)
        assert_array_equal(counts, sorted(counts, reverse=True))
        assert counts[-1] < counts[0]
