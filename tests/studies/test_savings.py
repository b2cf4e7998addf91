"""What a mask is worth: counts against models that really shrank, times as ratios with honest intervals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.expected_errors import raises
from support.synthetic_text import tiny_lm
from support.tiny_models import FAMILIES, tiny_batch, tiny_model, tiny_module
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.cli.main import main
from headlab.hooks import gated, make_gateable
from headlab.masks import Mask, full_mask
from headlab.models.checkpoint import Checkpoint
from headlab.shrink import shrink_model
from headlab.shrink.model import parameters_of
from headlab.studies.savings import (
    NO_SPEED,
    Costs,
    LayerCost,
    MeasuredSpeed,
    ModelCost,
    Ratio,
    Savings,
    median_interval,
    ratio_of,
    saved_shares,
)
from headlab.studies.savings_run import (
    costs_of,
    latency_ratio,
    macs_of,
    made_up_inputs,
    measure,
    pass_orders,
    seconds_of_passes,
)

SHRINK = ["bert", "xlm-roberta", "electra", "distilbert", "marian", "mbart", "t5", "gpt2", "llama"]
LEFT = ["albert", "deberta-v2", "modernbert", "bloom", "xlm"]


def uneven(grid, seed=0, empty=True):
    """A mask that takes some heads of most layers, and the first layer whole if `empty`."""
    kept = np.random.default_rng(seed).random(grid.size) < 0.5
    if empty:
        kept[: grid.stacks[0].heads[0]] = False
    return Mask(grid, kept)


@pytest.mark.parametrize("family", SHRINK)
def test_what_arithmetic_foretells_is_what_the_shrunk_model_has(family):
    model = tiny_model(family)
    costs = costs_of(model)
    assert costs.untouched().parameters == parameters_of(model.module)
    mask = uneven(model.grid)
    shrunk = shrink_model(model, mask)
    left = costs.shrunk(mask.kept, 13)
    assert left.parameters == parameters_of(shrunk.module)
    assert left.macs == macs_of(shrunk.module, made_up_inputs(model.module, 13))
    assert (
        left.macs
        < costs.untouched(13).macs
        == macs_of(model.module, made_up_inputs(model.module, 13))
    )


@pytest.mark.parametrize(
    "shape", [{}, {"positions": "learned", "persistent": 0, "feed_forward": 8, "pre_norm": False}]
)
def test_so_it_is_for_all_attention_models_their_persistent_vectors_counted(shape):
    model = make_gateable(Checkpoint("lm", "test", "lm", tiny_lm(**shape), None))
    mask = uneven(model.grid)
    left = costs_of(model).shrunk(mask.kept, 6)
    shrunk = shrink_model(model, mask).module
    assert (left.parameters, left.macs) == (
        parameters_of(shrunk),
        macs_of(shrunk, made_up_inputs(model.module, 6)),
    )


@pytest.mark.parametrize("tokens", [1, 6, 17])
def test_multiply_accumulates_are_those_of_the_products_one_by_one(tokens):
    model = tiny_model("bert")
    own = reference.encoder_macs([4, 4, 4], 6, 24, 32, 5, 24, tokens)
    assert costs_of(model).untouched(tokens).macs == own
    kept = np.ones(12, bool)
    kept[[0, 1, 2, 3, 9]] = False
    assert costs_of(model).shrunk(kept, tokens).macs == reference.encoder_macs(
        [0, 4, 3], 6, 24, 32, 5, 24, tokens
    )


@pytest.mark.parametrize("family", LEFT)
def test_a_family_whose_heads_cannot_be_taken_out_says_so_and_is_counted_whole(family):
    model = tiny_model(family)
    costs = costs_of(model)
    assert costs.parameters == parameters_of(model.module)
    assert not costs.layers
    with raises("costs.heads_not_removable", model.name):
        costs.shrunk(np.ones(model.grid.size, bool))


def test_a_masked_model_computes_as_much_as_the_untouched_one():
    model = tiny_model("bert")
    inputs = tiny_batch(model.module)
    with gated(model, uneven(model.grid)):
        masked = macs_of(model.module, inputs)
    assert masked == macs_of(model.module, inputs)


def test_grouped_queries_save_nothing_until_their_whole_group_is_off():
    costs = costs_of(tiny_model("llama"))
    kept = np.ones(12, bool)
    kept[0] = False
    assert costs.shrunk(kept) == costs.untouched()
    kept[1] = False
    assert costs.shrunk(kept).parameters == costs.parameters - costs.layers[0].parameters
    assert costs.layers[0].together == 2
    assert costs.even


def test_costs_survive_their_json_and_say_what_saves_what():
    costs = Costs(
        1000, (5, 10, 1), (LayerCost(0, 4, 2, 100, 3, 1, 7), LayerCost(4, 2, 1, 80, 3, 1)), ""
    )
    again = Costs.from_json(json.loads(json.dumps(costs.to_json())))
    assert again == costs
    assert not costs.even
    left = again.shrunk(np.array([False, False, False, False, True, False]), 2)
    assert left == ModelCost(1000 - 200 - 7 - 80, (5 + 20 + 4) - 2 * (6 + 4) - (6 + 4) + 1 - 1, 2)
    assert saved_shares(ModelCost(10, 10, 1), ModelCost(5, 8, 1)) == {
        "parameters": 0.5,
        "macs": pytest.approx(0.2),
    }


@given(
    st.recursive(
        st.none() | st.integers(-3, 9) | st.text(max_size=4),
        lambda x: (
            st.lists(x)
            | st.dictionaries(st.sampled_from(["parameters", "macs", "layers", "note"]), x)
        ),
        max_leaves=12,
    )
)
@settings(max_examples=150, deadline=None)
def test_what_is_no_costs_is_refused_in_a_sentence(value):
    with raises("costs.malformed"):
        Costs.from_json(value)


def test_the_interval_of_a_median_has_the_ranks_that_counting_gives():
    for n in (6, 9, 15, 40):
        k = reference.median_rank(n, 0.95)
        low, high = median_interval(np.arange(1.0, n + 1), 0.95)
        assert (low, high) == (k, n + 1 - k)
    with raises("ratio.values_too_few"):
        median_interval(np.arange(5.0), 0.95)


def test_the_interval_of_a_median_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        low, high = median_interval(rng.lognormal(0.3, 1.0, 15))
        covered += low <= np.exp(0.3) <= high
    assert covered / 2000 >= 0.94


class Slow(torch.nn.Module):
    """A module that takes so long by the clock it holds."""

    def __init__(self, clock, seconds):
        super().__init__()
        self.clock, self.seconds, self.rng = clock, seconds, np.random.default_rng(int(seconds))

    def forward(self, x):
        self.clock.append(self.clock[-1] + self.seconds * self.rng.uniform(0.9, 1.1))
        return x


def test_the_ratio_of_two_models_is_after_over_before_and_below_one_is_faster():
    clock = [0.0]
    before = Slow(clock, 2.0)
    after = Slow(clock, 1.0)
    inputs = [{"x": torch.zeros(1)}, {"x": torch.zeros(1)}]
    ratio = latency_ratio(before, after, inputs, repeats=20, seed=3, clock=lambda: clock[-1])
    assert ratio.low <= ratio.ratio <= ratio.high < 1
    assert ratio.sure
    assert ratio.ratio == pytest.approx(0.5, abs=0.1)
    assert ratio.rounds == 20
    same = latency_ratio(
        before, Slow(clock, 2.0), inputs, repeats=20, seed=3, clock=lambda: clock[-1]
    )
    assert same.low <= 1 <= same.high
    assert not same.sure


def test_too_few_rounds_and_no_batch_are_refused():
    module = torch.nn.Identity()
    with raises("latency.rounds_too_few", 6):
        latency_ratio(module, module, [{"input": torch.zeros(1)}], repeats=5, seed=0)
    with raises("latency.no_batch"):
        latency_ratio(module, module, [], repeats=9, seed=0)


def test_all_models_have_their_turn_in_every_round_and_no_place_of_their_own():
    found = pass_orders(40, 3, seed=1)
    assert all(sorted(order.tolist()) == [0, 1, 2] for order in found)
    assert all((a == b[::-1]).all() for a, b in zip(found[::2], found[1::2], strict=True))
    assert np.mean([int(np.flatnonzero(order == 0)[0]) for order in found]) == 1
    assert [o.tolist() for o in pass_orders(5, 3, seed=1)] == [o.tolist() for o in found[:5]]


def test_every_timed_pass_follows_one_of_its_own_kind():
    seen = []
    seconds_of_passes(
        [[lambda: seen.append("a"), lambda: seen.append("b")]],
        torch.device("cpu"),
        rounds=6,
        seed=0,
    )
    assert len(seen) == 24
    assert all(x == y for x, y in zip(seen[::2], seen[1::2], strict=True))


def test_all_batch_sizes_have_their_turn_in_every_round_and_the_models_of_one_follow_one_another():
    seen = []
    rounds = []
    groups = [[lambda g=g, m=m: seen.append((g, m)) for m in "ab"] for g in (1, 8, 32)]
    found = seconds_of_passes(groups, torch.device("cpu"), rounds=8, seed=2, on_round=rounds.append)
    assert [s.shape for s in found] == [(8, 2)] * 3
    assert rounds == list(range(8))
    turns = [seen[at : at + 12 : 2] for at in range(0, len(seen), 12)]  # every pass is there twice
    assert all(sorted(turn) == sorted((g, m) for g in (1, 8, 32) for m in "ab") for turn in turns)
    assert all(turn[at][0] == turn[at + 1][0] for turn in turns for at in (0, 2, 4))
    assert len({tuple(g for g, _ in turn) for turn in turns}) > 1


def test_a_machine_that_slows_down_slows_all_batch_sizes_alike():
    clock = [0.0]

    def slow():  # each pass takes longer than the one before, whatever it does
        clock.append(clock[-1] + 1 + clock[-1] / 50)

    one, other = seconds_of_passes(
        [[slow], [slow]], torch.device("cpu"), rounds=12, seed=0, clock=lambda: clock[-1]
    )
    assert np.median(one) == pytest.approx(np.median(other), rel=0.2)


def attached(family, tokenizer=True):
    module = tiny_module(family, torch.float32)
    return make_gateable(
        Checkpoint(family, "test", family, module, tiny_tokenizer() if tokenizer else None)
    )


def test_measuring_gives_all_three_models_and_says_that_a_mask_alone_saves_nothing():
    model = attached("bert")
    mask = uneven(model.grid)
    done = []
    worth = measure(
        model,
        mask,
        task=tiny_task(),
        batch_sizes=(8, 16),
        rounds=6,
        on_round=lambda done_, total, note: done.append(done_),
    )
    assert worth.removed == len(mask.removed)
    assert worth.untouched.parameters == parameters_of(model.module)
    assert worth.shrunk == costs_of(model).shrunk(mask.kept, worth.untouched.tokens)
    assert [s.rows for s in worth.speeds] == [8, 16]
    assert done == list(range(7))
    assert all(s.between[0] <= s.milliseconds <= s.between[1] for s in worth.speeds)
    assert (
        f"Timed: bert on examples of tiny in {', '.join(tiny_task().languages)}; 6 rounds, seed 0."
        in worth.sentences()
    )
    assert all(
        s.masked.ratio > 0 and s.shrunk is not None and s.throughput() > 0 for s in worth.speeds
    )
    assert worth.sentences()[0] == NO_SPEED
    assert Savings.from_json(json.loads(json.dumps(worth.to_json()))) == worth
    size, speed = worth.report().tables
    assert [row[0] for row in size.rows] == ["untouched", "masked", "shrunk"]
    assert (
        size.column("parameters")[0] == size.column("parameters")[1] > size.column("parameters")[2]
    )
    assert len(speed.rows) == 6
    assert [None if low is None else low > 0 for low in speed.column("ms low")] == [
        True,
        None,
        None,
    ] * 2


def test_what_was_measured_before_times_had_an_interval_is_read():
    ratio = Ratio(0.9, 0.8, 1.0, 0.95, 6)
    value = Savings(
        12, 3, ModelCost(9, 9, 4), None, (MeasuredSpeed("cpu", 1, 4, 2.0, ratio, None),), "why"
    ).to_json()
    del value["speed"][0]["milliseconds_interval"]
    assert Savings.from_json(value).speeds[0].between is None
    value["speed"][0]["milliseconds_interval"] = [1.0]
    with raises("worth.malformed"):
        Savings.from_json(value)


@pytest.mark.parametrize(
    "given", [["--languages", "nosuchlang"], ["--data", "."], ["--languages", "de", "--data", "."]]
)
def test_examples_of_a_task_that_is_not_named_are_refused_not_ignored(tmp_path, capsys, given):
    assert main(["worth", "--mask", str(tmp_path / "mask.json"), *given]) == 2
    told = capsys.readouterr().err
    assert all(name in told for name in given if name.startswith("--"))
    assert "--task intents" in told


def test_a_model_that_cannot_shrink_is_measured_masked_and_the_reason_stands_there():
    worth = measure(
        attached("deberta-v2"),
        uneven(attached("deberta-v2").grid),
        task=tiny_task(),
        batch_sizes=(16,),
        rounds=6,
    )
    assert worth.shrunk is None
    assert worth.speeds[0].shrunk is None
    assert "cannot be removed" in " ".join(worth.sentences())
    assert "cannot shrink" in worth.refused
    assert Savings.from_json(worth.to_json()) == worth


def test_heads_that_must_stay_masked_are_told(monkeypatch):
    model = attached("llama")
    kept = np.ones(12, bool)
    kept[[0, 1, 4]] = False
    worth = measure(model, Mask(model.grid, kept), task=tiny_task(), batch_sizes=(16,), rounds=6)
    assert worth.still == 1
    assert "stay masked: 1" in " ".join(worth.sentences())


def test_without_a_task_plain_sentences_give_the_lengths_and_a_sequence_to_sequence_model_gets_a_target():
    model = attached("marian")
    worth = measure(model, full_mask(model.grid), batch_sizes=(16,), rounds=6)
    assert worth.speeds[0].rows == 16
    assert worth.shrunk == worth.untouched
    assert (
        "marian on sentences of intents in all its languages, as plain texts; 6 rounds"
        in worth.sentences()[-2]
    )


def test_what_cannot_be_measured_is_refused():
    model = attached("bert", tokenizer=False)
    with raises("tokenizer.missing"):
        measure(model, full_mask(model.grid), rounds=6)
    with raises("worth.batch_sizes_invalid"):
        measure(model, full_mask(model.grid), batch_sizes=(0,))
    with raises("mask.other_grid"):
        measure(model, full_mask(tiny_model("gpt2").grid))


def test_a_sentence_says_when_a_ratio_may_as_well_be_one():
    seconds = np.full(8, 2.0)
    sure = ratio_of(seconds, seconds / 2)
    not_sure = Ratio(0.99, 0.9, 1.1, 0.95, 8)
    words = Savings(
        12, 3, ModelCost(9, 9, 4), None, (MeasuredSpeed("cpu", 1, 4, 2.0, not_sure, sure),), "why"
    ).sentences()
    assert "not distinguishable from equal speed" in words[1]
    assert words[1].count("not distinguishable") == 1


def test_every_family_of_the_tiny_models_is_either_shrunk_or_left():
    assert {*SHRINK, *LEFT, "bert-tokens"} == set(FAMILIES)
