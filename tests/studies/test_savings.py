"""What a mask saves.

Counts are compared with models that really shrank; times are ratios whose intervals cover.
"""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.expected_errors import raises
from support.synthetic_text import tiny_lm
from support.tiny_models import FAMILIES, SMALL_OPTIONS, tiny_batch, tiny_model, tiny_module
from support.tiny_task import tiny_task, tiny_tokenizer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    CanineConfig,
    CanineModel,
    GPT2Config,
    GPT2LMHeadModel,
)

from headlab.cli.run import main
from headlab.hooks import gated, make_gateable
from headlab.masks import Mask, full_mask
from headlab.models.checkpoint import Checkpoint
from headlab.shrink import shrink_model
from headlab.shrink.model import parameters_of
from headlab.shrink.smaller_vocabulary import cut_embeddings
from headlab.shrink.vocabulary_cut import VocabularyCut
from headlab.studies.savings import (
    Costs,
    CutModel,
    LayerCost,
    MeasuredSpeed,
    ModelCost,
    Ratio,
    Savings,
    VocabularyCost,
    VocabularyShare,
    median_interval,
    no_speed,
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
    vocabulary_cost_of,
)

SHRINKABLE_FAMILIES = [
    "bert",
    "xlm-roberta",
    "electra",
    "distilbert",
    "modernbert",
    "marian",
    "mbart",
    "t5",
    "gpt2",
    "llama",
]
GPT2_OPTIONS = {"vocab_size": 97, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 32}
OTHER_FAMILIES = ["albert", "deberta-v2", "bloom", "xlm"]


def uneven_mask(grid, seed=0, empty_first_layer=True):
    """A mask without some heads of most layers and, by default, without any of the first."""
    kept = np.random.default_rng(seed).random(grid.size) < 0.5
    if empty_first_layer:
        kept[: grid.stacks[0].heads[0]] = False
    return Mask(grid, kept)


@pytest.mark.parametrize("family", SHRINKABLE_FAMILIES)
def test_predicted_costs_are_those_of_the_shrunk_model(family):
    model = tiny_model(family)
    costs = costs_of(model)
    assert costs.baseline().parameters == parameters_of(model.module)
    mask = uneven_mask(model.grid)
    shrunk = shrink_model(model, mask)
    shrunk_cost = costs.shrunk(mask.kept, 13)
    assert shrunk_cost.parameters == parameters_of(shrunk.module)
    inputs = made_up_inputs(model.module, 13)
    assert shrunk_cost.macs == macs_of(shrunk.module, inputs)
    assert costs.baseline(13).macs == macs_of(model.module, inputs)
    assert shrunk_cost.macs < costs.baseline(13).macs


@pytest.mark.parametrize(
    "shape", [{}, {"positions": "learned", "persistent": 0, "feed_forward": 8, "pre_norm": False}]
)
def test_predicted_costs_of_all_attention_models_count_persistent_vectors(shape):
    model = make_gateable(Checkpoint("lm", "test", "lm", tiny_lm(**shape), None))
    mask = uneven_mask(model.grid)
    shrunk_cost = costs_of(model).shrunk(mask.kept, 6)
    shrunk = shrink_model(model, mask).module
    assert shrunk_cost.parameters == parameters_of(shrunk)
    assert shrunk_cost.macs == macs_of(shrunk, made_up_inputs(model.module, 6))


WITH_OUTPUT_LAYER = {
    "bert for masked words": lambda: BertForMaskedLM(BertConfig(**SMALL_OPTIONS)),
    "gpt2, tied": lambda: GPT2LMHeadModel(GPT2Config(**GPT2_OPTIONS)),
    "gpt2, untied": lambda: GPT2LMHeadModel(GPT2Config(**GPT2_OPTIONS, tie_word_embeddings=False)),
}


@pytest.mark.parametrize("name", [*FAMILIES, *WITH_OUTPUT_LAYER])
def test_predicted_costs_with_fewer_pieces_are_those_of_the_model_without_them(name):
    if name in FAMILIES:
        model = tiny_model(name)
    else:
        module = WITH_OUTPUT_LAYER[name]().eval()
        model = make_gateable(Checkpoint(name, "test", name, module, None))
    costs = costs_of(model)
    pieces = costs.vocabulary.pieces
    kept_ids = np.unique([*range(6), *range(6, pieces, 3), pieces - 1])  # with special tokens
    cut_costs = costs.cut_to(len(kept_ids))
    shapes = [tuple(parameter.shape) for parameter in model.module.parameters()]
    assert cut_costs.parameters == reference.parameters_with_pieces(shapes, pieces, len(kept_ids))
    cut_embeddings(model.module, VocabularyCut(("de",), {}, kept_ids, pieces))
    assert cut_costs.parameters == parameters_of(model.module)
    assert cut_costs.baseline(13).macs == macs_of(model.module, made_up_inputs(model.module, 13))
    assert cut_costs == costs_of(model)


def test_costs_without_those_of_a_vocabulary_are_read_and_cannot_be_cut():
    costs = Costs(1000, (5, 10, 1), (), "", VocabularyCost(20, 30, 2))
    assert Costs.from_json(json.loads(json.dumps(costs.to_json()))) == costs
    assert costs.cut_to(15) == Costs(850, (5, 0, 1), (), "", VocabularyCost(15, 30, 2))
    older_record = costs.to_json()
    del older_record["vocabulary"]
    older_costs = Costs.from_json(older_record)
    assert older_costs.vocabulary is None
    with raises("costs.vocabulary_unknown"):
        older_costs.cut_to(15)


@pytest.mark.parametrize("tokens", [1, 6, 17])
def test_multiply_accumulates_are_those_of_the_products_one_by_one(tokens):
    model = tiny_model("bert")
    expected = reference.encoder_macs([4, 4, 4], 6, 24, 32, 5, 24, tokens)
    assert costs_of(model).baseline(tokens).macs == expected
    kept = np.ones(12, bool)
    kept[[0, 1, 2, 3, 9]] = False
    expected = reference.encoder_macs([0, 4, 3], 6, 24, 32, 5, 24, tokens)
    assert costs_of(model).shrunk(kept, tokens).macs == expected


@pytest.mark.parametrize("family", OTHER_FAMILIES)
def test_a_family_whose_heads_cannot_be_removed_says_so_and_is_counted_as_it_is(family):
    model = tiny_model(family)
    costs = costs_of(model)
    assert costs.parameters == parameters_of(model.module)
    assert not costs.layers
    with raises("costs.heads_not_removable", model.name):
        costs.shrunk(np.ones(model.grid.size, bool))


def test_a_masked_model_computes_as_much_as_the_baseline():
    model = tiny_model("bert")
    inputs = tiny_batch(model.module)
    with gated(model, uneven_mask(model.grid)):
        masked = macs_of(model.module, inputs)
    assert masked == macs_of(model.module, inputs)


def test_grouped_queries_save_nothing_until_their_whole_group_is_off():
    costs = costs_of(tiny_model("llama"))
    kept = np.ones(12, bool)
    kept[0] = False
    assert costs.shrunk(kept) == costs.baseline()
    kept[1] = False
    assert costs.shrunk(kept).parameters == costs.parameters - costs.layers[0].parameters
    assert costs.layers[0].group_size == 2
    assert costs.are_even


def test_costs_survive_their_json_and_say_what_saves_what():
    grouped_layer = LayerCost(0, 4, 2, 100, 3, 1, 7)
    plain_layer = LayerCost(4, 2, 1, 80, 3, 1)
    costs = Costs(1000, (5, 10, 1), (grouped_layer, plain_layer), "")
    costs_from_json = Costs.from_json(json.loads(json.dumps(costs.to_json())))
    assert costs_from_json == costs
    assert not costs.are_even
    shrunk_cost = costs_from_json.shrunk(np.array([False, False, False, False, True, False]), 2)
    expected_parameters = 1000 - 200 - 7 - 80
    expected_macs = (5 + 20 + 4) - 2 * (6 + 4) - (6 + 4) + 1 - 1
    assert shrunk_cost == ModelCost(expected_parameters, expected_macs, 2)
    shares = saved_shares(ModelCost(10, 10, 1), ModelCost(5, 8, 1))
    assert shares == {"parameters": 0.5, "macs": pytest.approx(0.2)}


FIELDS_OF_COSTS = st.sampled_from(["parameters", "macs", "layers", "note"])
JSON_VALUES = st.recursive(
    st.none() | st.integers(-3, 9) | st.text(max_size=4),
    lambda values: st.lists(values) | st.dictionaries(FIELDS_OF_COSTS, values),
    max_leaves=12,
)


@given(JSON_VALUES)
@settings(max_examples=150, deadline=None)
def test_json_that_holds_no_costs_is_refused_in_a_sentence(value):
    with raises("costs.malformed"):
        Costs.from_json(value)


def test_the_interval_of_a_median_has_the_ranks_that_counting_gives():
    for n in (6, 9, 15, 40):
        rank = reference.median_rank(n, 0.95)
        low, high = median_interval(np.arange(1.0, n + 1), 0.95)
        assert low == rank
        assert high == n + 1 - rank
    with raises("ratio.values_too_few"):
        median_interval(np.arange(5.0), 0.95)


def test_the_interval_of_a_median_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered_count = 0
    for _ in range(2000):
        low, high = median_interval(rng.lognormal(0.3, 1.0, 15))
        covered_count += low <= np.exp(0.3) <= high
    assert covered_count / 2000 >= 0.94


class SlowModule(torch.nn.Module):
    """A module whose passes take about so many seconds by the clock that it moves."""

    def __init__(self, clock, seconds):
        super().__init__()
        self.clock = clock
        self.seconds = seconds
        self.rng = np.random.default_rng(int(seconds))

    def forward(self, x):
        seconds = self.seconds * self.rng.uniform(0.9, 1.1)
        self.clock.append(self.clock[-1] + seconds)
        return x


def test_the_ratio_of_two_models_is_after_over_before_and_below_one_is_faster():
    clock = [0.0]
    slow_module = SlowModule(clock, 2.0)
    fast_module = SlowModule(clock, 1.0)
    inputs = [{"x": torch.zeros(1)}, {"x": torch.zeros(1)}]
    timing = {"repeats": 20, "seed": 3, "clock": lambda: clock[-1]}
    ratio = latency_ratio(slow_module, fast_module, inputs, **timing)
    assert ratio.low <= ratio.ratio <= ratio.high < 1
    assert ratio.is_clear
    assert ratio.ratio == pytest.approx(0.5, abs=0.1)
    assert ratio.rounds == 20
    equal_ratio = latency_ratio(slow_module, SlowModule(clock, 2.0), inputs, **timing)
    assert equal_ratio.low <= 1 <= equal_ratio.high
    assert not equal_ratio.is_clear


def test_too_few_rounds_and_no_batch_are_refused():
    module = torch.nn.Identity()
    with raises("latency.rounds_too_few", 6):
        latency_ratio(module, module, [{"input": torch.zeros(1)}], repeats=5, seed=0)
    with raises("latency.no_batch"):
        latency_ratio(module, module, [], repeats=9, seed=0)


def test_all_models_run_once_in_every_round_and_none_has_a_position_of_its_own():
    orders = np.array(pass_orders(40, 3, seed=1))
    assert (np.sort(orders, axis=1) == [0, 1, 2]).all()
    assert (orders[::2] == orders[1::2, ::-1]).all()
    positions_of_first_model = np.nonzero(orders == 0)[1]
    assert np.mean(positions_of_first_model) == 1
    assert np.array(pass_orders(5, 3, seed=1)).tolist() == orders[:5].tolist()


def test_every_timed_pass_follows_one_of_the_same_model():
    passes = []
    seconds_of_passes(
        [[lambda: passes.append("a"), lambda: passes.append("b")]],
        torch.device("cpu"),
        rounds=6,
        seed=0,
    )
    assert len(passes) == 24
    assert passes[::2] == passes[1::2]


def test_all_batch_sizes_run_once_in_every_round_and_the_models_of_one_follow_one_another():
    passes = []
    rounds = []
    batch_sizes = (1, 8, 32)
    models = ("a", "b")

    def pass_of(batch_size, model):
        return lambda: passes.append((batch_size, model))

    groups = [[pass_of(size, model) for model in models] for size in batch_sizes]
    seconds = seconds_of_passes(
        groups, torch.device("cpu"), rounds=8, seed=2, on_round=rounds.append
    )
    assert [group_seconds.shape for group_seconds in seconds] == [(8, 2)] * 3
    assert rounds == list(range(8))
    timed_passes = passes[::2]  # every pass is there twice
    assert len(passes) == 2 * 8 * 6
    orders_of_sizes = set()
    for first_pass in range(0, len(timed_passes), 6):
        round_passes = timed_passes[first_pass : first_pass + 6]
        assert sorted(round_passes) == sorted(product(batch_sizes, models))
        sizes = [size for size, _ in round_passes]
        assert sizes[::2] == sizes[1::2]
        orders_of_sizes.add(tuple(sizes))
    assert len(orders_of_sizes) > 1


def test_a_machine_that_slows_down_slows_all_batch_sizes_alike():
    clock = [0.0]

    def slowing_pass():  # each pass takes longer than the one before, whatever it does
        clock.append(clock[-1] + 1 + clock[-1] / 50)

    first_seconds, second_seconds = seconds_of_passes(
        [[slowing_pass], [slowing_pass]],
        torch.device("cpu"),
        rounds=12,
        seed=0,
        clock=lambda: clock[-1],
    )
    assert np.median(first_seconds) == pytest.approx(np.median(second_seconds), rel=0.2)


def attached_model(family, tokenizer=True):
    module = tiny_module(family, torch.float32)
    checkpoint_tokenizer = tiny_tokenizer() if tokenizer else None
    checkpoint = Checkpoint(family, "test", family, module, checkpoint_tokenizer)
    return make_gateable(checkpoint)


def test_measuring_gives_all_three_models_and_says_that_a_mask_alone_saves_nothing():
    model = attached_model("bert")
    mask = uneven_mask(model.grid)
    progress = []

    def note_progress(done_rounds, total, note):
        progress.append(done_rounds)

    savings = measure(
        model,
        mask,
        task=tiny_task(),
        batch_sizes=(8, 16),
        rounds=6,
        on_round=note_progress,
    )
    assert savings.removed_heads == len(mask.removed)
    assert savings.baseline.parameters == parameters_of(model.module)
    assert savings.shrunk == costs_of(model).shrunk(mask.kept, savings.baseline.tokens)
    assert [speed.rows for speed in savings.speeds] == [8, 16]
    assert progress == list(range(7))
    for speed in savings.speeds:
        low, high = speed.milliseconds_interval
        assert low <= speed.milliseconds <= high
        assert speed.masked_ratio.ratio > 0
        assert speed.shrunk_ratio is not None
        assert speed.throughput() > 0
    languages = ", ".join(tiny_task().languages)
    timing = f"Timed: bert on examples of tiny in {languages}; 6 rounds, seed 0."
    assert timing in savings.sentences()
    assert savings.sentences()[0] == no_speed(("head", "heads"))
    assert Savings.from_json(json.loads(json.dumps(savings.to_json()))) == savings
    size_table, speed_table = savings.report().tables
    assert [row[0] for row in size_table.rows] == ["untouched", "masked", "shrunk"]
    untouched, masked, shrunk = size_table.column("parameters")
    assert untouched == masked > shrunk
    assert len(speed_table.rows) == 6
    lows_of_untouched = speed_table.column("ms low")[::3]
    assert all(low > 0 for low in lows_of_untouched)
    assert speed_table.column("ms low")[1::3] == [None, None]
    assert speed_table.column("ms low")[2::3] == [None, None]


def test_what_was_measured_before_times_had_an_interval_is_read():
    ratio = Ratio(0.9, 0.8, 1.0, 0.95, 6)
    speed = MeasuredSpeed("cpu", 1, 4, 2.0, ratio, None)
    savings_json = Savings(12, 3, ModelCost(9, 9, 4), None, (speed,), "why").to_json()
    del savings_json["speed"][0]["milliseconds_interval"]
    assert Savings.from_json(savings_json).speeds[0].milliseconds_interval is None
    savings_json["speed"][0]["milliseconds_interval"] = [1.0]
    with raises("worth.malformed"):
        Savings.from_json(savings_json)


def test_what_was_measured_before_vocabularies_could_be_cut_is_read():
    ratio = Ratio(0.9, 0.8, 1.0, 0.95, 6)
    speed = MeasuredSpeed("cpu", 1, 4, 2.0, ratio, None, None, ratio)
    cut = CutModel(("de", "th"), 5, 50, ModelCost(700, 9, 4))
    vocabulary = VocabularyShare(20, 200, can_be_cut=True)
    savings = Savings(12, 3, ModelCost(900, 9, 4), None, (speed,), "why", 0, {}, 4, vocabulary, cut)
    record = savings.to_json()
    assert Savings.from_json(json.loads(json.dumps(record))) == savings
    for name in ("bytes", "bytes_a_parameter", "vocabulary"):
        del record[name]
    del record["speed"][0]["cut"], record["parameters"]["cut"], record["macs"]["cut"]
    older_savings = Savings.from_json(record)
    assert older_savings.vocabulary is older_savings.cut is None
    assert older_savings.speeds[0].cut_ratio is None
    size_table, _ = older_savings.report().tables
    assert size_table.column("bytes") == size_table.column("vocabulary") == [None, None]


@pytest.mark.parametrize(
    ("share", "can_be_cut", "is_named"), [(25, True, True), (24, True, False), (80, False, False)]
)
def test_a_sentence_names_a_large_vocabulary_that_can_be_cut(share, can_be_cut, is_named):
    vocabulary = VocabularyShare(10, share, can_be_cut)
    baseline, shrunk = ModelCost(100, 9, 4), ModelCost(90, 8, 4)
    small, folder = (
        " ".join(Savings(12, 3, baseline, cost, (), vocabulary=vocabulary).sentences())
        for cost in (shrunk, None)
    )
    assert (f"The vocabulary is {share}% of the model ({share} of 100 parameters)" in small) == (
        is_named
    )
    assert ("--languages de,th --as small` cuts it" in small) == is_named
    assert ("--languages de,th --vocabulary cut --as folder` cuts it" in folder) == is_named


@pytest.mark.parametrize("family", ["deberta-v2", "albert"])
def test_where_heads_cannot_be_removed_the_vocabulary_is_cut_all_the_same(family):
    model = attached_model(family)
    pieces = costs_of(model).vocabulary.pieces
    cut = VocabularyCut(("xx",), {}, np.arange(0, pieces, 2), pieces)
    measured = {"task": tiny_task(), "batch_sizes": (16,), "rounds": 6}
    savings = measure(model, uneven_mask(model.grid), cut=cut, **measured)
    assert savings.shrunk is savings.speeds[0].shrunk_ratio is None
    assert savings.speeds[0].cut_ratio.rounds == savings.speeds[0].masked_ratio.rounds
    assert savings.cut.cost.parameters == costs_of(model).cut_to(len(cut.kept_ids)).parameters
    assert savings.report().tables[0].rows[-1][0] == "masked, vocabulary cut"
    assert "Its heads stay, and with a vocabulary of xx" in " ".join(savings.sentences())
    assert costs_of(model).vocabulary.pieces == pieces  # the model itself stays as it was


@pytest.mark.parametrize(
    "arguments",
    [["--languages", "nosuchlang"], ["--data", "."], ["--languages", "de", "--data", "."]],
)
def test_examples_of_a_task_that_is_not_named_are_refused_not_ignored(tmp_path, capsys, arguments):
    assert main(["worth", "--mask", str(tmp_path / "mask.json"), *arguments]) == 2
    error = capsys.readouterr().err
    flags = [argument for argument in arguments if argument.startswith("--")]
    assert all(flag in error for flag in flags)
    assert "--task intents" in error


def test_a_model_that_cannot_shrink_is_measured_masked_and_the_reason_is_given():
    model = attached_model("deberta-v2")
    mask = uneven_mask(model.grid)
    savings = measure(model, mask, task=tiny_task(), batch_sizes=(16,), rounds=6)
    assert savings.shrunk is None
    assert savings.speeds[0].shrunk_ratio is None
    assert "cannot be removed" in " ".join(savings.sentences())
    assert "cannot shrink" in savings.refusal
    assert Savings.from_json(savings.to_json()) == savings


def test_heads_that_must_stay_masked_are_counted(monkeypatch):
    model = attached_model("llama")
    kept = np.ones(12, bool)
    kept[[0, 1, 4]] = False
    savings = measure(model, Mask(model.grid, kept), task=tiny_task(), batch_sizes=(16,), rounds=6)
    assert savings.still_masked == 1
    assert "stay masked: 1" in " ".join(savings.sentences())


def test_without_a_task_plain_sentences_give_the_lengths_and_marian_gets_a_target():
    model = attached_model("marian")
    savings = measure(model, full_mask(model.grid), batch_sizes=(16,), rounds=6)
    assert savings.speeds[0].rows == 16
    assert savings.shrunk == savings.baseline
    timing = "marian on sentences of intents in all its languages, as plain texts; 6 rounds"
    assert timing in savings.sentences()[-2]


def test_what_cannot_be_measured_is_refused():
    model = attached_model("bert", tokenizer=False)
    with raises("tokenizer.missing"):
        measure(model, full_mask(model.grid), rounds=6)
    with raises("worth.batch_sizes_invalid"):
        measure(model, full_mask(model.grid), batch_sizes=(0,))
    with raises("mask.other_grid"):
        measure(model, full_mask(tiny_model("gpt2").grid))


def test_a_sentence_says_when_a_ratio_may_be_one():
    seconds = np.full(8, 2.0)
    sure_ratio = ratio_of(seconds, seconds / 2)
    unsure_ratio = Ratio(0.99, 0.9, 1.1, 0.95, 8)
    speed = MeasuredSpeed("cpu", 1, 4, 2.0, unsure_ratio, sure_ratio)
    sentences = Savings(12, 3, ModelCost(9, 9, 4), None, (speed,), "why").sentences()
    assert "not distinguishable from equal speed" in sentences[1]
    assert sentences[1].count("not distinguishable") == 1


def test_every_family_of_the_tiny_models_either_can_be_shrunk_or_cannot():
    assert {*SHRINKABLE_FAMILIES, *OTHER_FAMILIES, "bert-tokens"} == set(FAMILIES)


def test_a_model_that_hashes_characters_has_no_vocabulary_to_cost_anything():
    config = CanineConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_hash_buckets=32,
    )
    assert vocabulary_cost_of(CanineModel(config)) is None
