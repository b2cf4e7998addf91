"""Heads that look at separators, against weights that transformers gives sentence by sentence."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from support.group_labels import equal_groups
from support.planted_scores import plant_scores
from support.several_answers import PAIRS
from support.tiny_models import tiny_model, tiny_module
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.core import HeadGrid, Report, Stack
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.results import Store
from headlab.studies.run import Pieces, run_experiment
from headlab.studies.separators import (
    KINDS,
    SeparatorLooks,
    cost,
    head_records,
    kind_records,
    measure_looks,
)
from headlab.studies.table import STUDIES
from headlab.tasks import Task

TASKS: dict[str, Task] = {
    "bert": tiny_task(),
    "deberta-v2": tiny_task(),
    "gpt2": tiny_task(),
    "marian": PAIRS,
}
IDS = {"separator": {2}, "special": {0, 1, 2}}
VALUES = np.arange(12) - 5.5


def weights(family: str, inputs: dict[str, torch.Tensor]) -> list[np.ndarray]:
    """Weights [head, query, key] of each layer, stack by stack, as transformers gives them."""
    module = tiny_module(family, torch.float64)
    if family != "deberta-v2":
        module.set_attn_implementation("eager")
    with torch.inference_mode():
        output = module(**inputs, output_attentions=True)
    fields = ["attentions"]
    if family == "marian":
        fields = ["encoder_attentions", "decoder_attentions", "cross_attentions"]
    layers = []
    for attentions in fields:
        for layer in output[attentions]:
            layers.append(layer[0].numpy())
    return layers


@pytest.mark.parametrize("tokens", IDS)
@pytest.mark.parametrize("family", TASKS)
def test_shares_equal_those_counted_sentence_by_sentence_without_padding(
    family: str, tokens: str
) -> None:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    evaluator = Evaluator(
        model,
        TASKS[family],
        "xx",
        "dev",
        6,
    )
    looks = measure_looks(evaluator, tokens)
    assert looks.tokens.shape == (6, model.grid.size)
    assert evaluator.forwards == 6
    for row in range(6):
        inputs = evaluator.tensors(np.array([row]))
        source = inputs["input_ids"][0].tolist()
        target = source
        if family == "marian":
            target = inputs["decoder_input_ids"][0].tolist()
        sides = {
            "encoder": (source, source),
            "decoder": (target, target),
            "cross": (target, source),
        }
        stacks = []
        for stack in model.grid.stacks:
            stacks += [stack.name] * stack.layers
        expected_shares = []
        layers = weights(family, inputs)
        for stack, layer in zip(stacks, layers, strict=True):
            queries, keys = sides[stack]
            is_token = [True] * len(keys)
            is_query = [True] * len(queries)
            for head_weights in layer:
                share = reference.looks_at(
                    head_weights,
                    is_query,
                    keys,
                    is_token,
                    IDS[tokens],
                )
                expected_shares.append(share)
        np.testing.assert_allclose(looks.tokens[row], expected_shares, atol=1e-12)
    assert 0 < looks.tokens.mean() < 1


def test_a_tie_is_not_a_look() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    with torch.no_grad():
        for name, parameter in model.module.named_parameters():
            if ".query." in name:
                parameter.zero_()  # every token then gives every token the same weight
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 4)
    looks = measure_looks(evaluator)
    assert not looks.tokens.any()


def test_a_whole_sentence_needs_every_token() -> None:
    first_shares = [1.0, 0.9]
    second_shares = [0.5, 1.0]
    tokens = np.array([first_shares, second_shares])
    looks = SeparatorLooks(tokens, ("a", "b"))
    is_whole_sentence = looks.is_whole_sentence
    assert is_whole_sentence.tolist() == [[True, False], [False, True]]


def test_batches_do_not_change_the_shares_and_ctrl_c_ends_them() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx")
    looks_of_one_batch = measure_looks(evaluator)
    rows_done: list[int] = []
    batched_evaluator = Evaluator(model, tiny_task(), "xx", batch_size=5)
    batched_looks = measure_looks(batched_evaluator, on_batch=rows_done.append)
    np.testing.assert_allclose(
        batched_looks.tokens,
        looks_of_one_batch.tokens,
        atol=1e-12,
    )
    assert rows_done == [5, 10, 15, 20, 24]

    def press_ctrl_c() -> None:
        raise KeyboardInterrupt

    batched_evaluator.tick = press_ctrl_c
    with pytest.raises(KeyboardInterrupt):
        measure_looks(batched_evaluator)


def test_batches_that_do_not_fit_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    from headlab.studies import separators

    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 9)
    expected = measure_looks(evaluator)
    shares = separators.shares_of

    def shares_of_few_rows(model: Model, batch: object, ids: torch.Tensor) -> object:
        if len(batch.rows) > 4:  # type: ignore[attr-defined] # a batch
            raise MemoryError
        return shares(model, batch, ids)  # type: ignore[arg-type] # the same batch

    monkeypatch.setattr(separators, "shares_of", shares_of_few_rows)
    evaluator = Evaluator(model, tiny_task(), "xx", "dev", 9)
    looks = measure_looks(evaluator)
    np.testing.assert_allclose(looks.tokens, expected.tokens, atol=1e-12)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Pieces]:
    """The report of planted scores, and its pieces.

    Heads 9 to 11 are the highest of both languages; head 0 helps in xx and harms in yy, both with
    an interval that excludes 0.
    """
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    store = Store(tmp_path_factory.mktemp("store"))
    pieces = Pieces(model, tiny_task(), store, dev_size=10)
    is_first_head = np.arange(12) == 0
    plant_scores(pieces, "xx", np.where(is_first_head, 3.0, VALUES))
    plant_scores(pieces, "yy", VALUES, (0, 1))
    options = STUDIES["separators"].resolve({})
    asks = cost(pieces, options)
    expected_forwards = sum(ask.forwards for ask in asks)
    report_of_three = run_experiment("separators", pieces, options={"top": 3})
    assert report_of_three.example_forwards == expected_forwards == 20
    return report_of_three, pieces


def test_the_tables_hold_the_means_of_the_looks(report: tuple[Report, Pieces]) -> None:
    separators_report, pieces = report
    heads = separators_report.table("separators")
    kinds = separators_report.table("separator-kinds")
    heads_by_kind = {
        "language-agnostic": [9, 10, 11],
        "language-specific": [0],
        "all": list(range(12)),
    }
    for language in ("xx", "yy"):
        evaluator = Evaluator(pieces.model, tiny_task(), language, "dev", 10)
        looks = measure_looks(evaluator)
        language_rows = [row for row in heads.rows if row[0] == language]
        listed_heads = [row[1:4] for row in language_rows]
        expected_heads = [tuple(head) for head in pieces.model.grid.heads]
        assert listed_heads == expected_heads
        is_whole_sentence = looks.tokens == 1
        whole_shares = [row[4] for row in language_rows]
        token_shares = [row[7] for row in language_rows]
        mean_whole_shares = is_whole_sentence.mean(axis=0)
        mean_token_shares = looks.tokens.mean(axis=0)
        np.testing.assert_allclose(whole_shares, 100 * mean_whole_shares)
        np.testing.assert_allclose(token_shares, 100 * mean_token_shares)
        for row in language_rows:
            share, low, high = row[4:7]
            assert low <= share <= high  # type: ignore[operator]
        for kind, head_indices in heads_by_kind.items():
            key = (language, kind)
            (row,) = [row for row in kinds.rows if row[:2] == key]
            is_whole_in_kind = is_whole_sentence[:, head_indices]
            share = 100 * is_whole_in_kind.mean()
            assert row[2] == len(head_indices)
            assert row[3] == pytest.approx(share)
            tokens_of_kind = looks.tokens[:, head_indices]
            token_share = 100 * tokens_of_kind.mean()
            assert row[6] == pytest.approx(token_share)
            if kind != "all":
                share_of_all = 100 * is_whole_sentence.mean()
                gain = share - share_of_all
                assert row[7] == pytest.approx(gain)
    last_rows = kinds.rows[-3:]
    assert [row[0] for row in last_rows] == ["all languages"] * 3
    assert [row[1] for row in last_rows] == list(KINDS)
    assert Report.from_json(separators_report.to_json()) == separators_report
    assert "`</s>`" in separators_report.notes[0]


def test_a_second_look_costs_nothing_and_another_option_is_another_report(
    report: tuple[Report, Pieces],
) -> None:
    separators_report, pieces = report
    pieces_anew = Pieces(
        pieces.model,
        tiny_task(),
        pieces.store,
        dev_size=10,
    )
    report_anew = run_experiment("separators", pieces_anew, options={"top": 3})
    assert report_anew == separators_report
    assert pieces_anew.forwards == 0
    report_of_special_tokens = run_experiment(
        "separators", pieces_anew, options={"top": 3, "tokens": "special"}
    )
    separator_shares = separators_report.table("separators").column("tokens, %")
    special_shares = report_of_special_tokens.table("separators").column("tokens, %")
    assert special_shares != separator_shares


def test_heads_of_no_kind_leave_their_cells_empty(tmp_path: Path) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    task = tiny_task().with_languages(["xx"])
    pieces = Pieces(model, task, Store(tmp_path), dev_size=4)
    plant_scores(pieces, "xx", VALUES)
    kinds = run_experiment("separators", pieces).table("separator-kinds")
    head_counts = [row[2] for row in kinds.rows]
    assert head_counts == [12, 0, 12]
    cells = kinds.rows[1][3:]
    assert cells == (None,) * 8
    assert set(kinds.column("language")) == {"xx"}  # no row for all languages where there is one


def test_intervals_cover_the_truth_when_sentences_of_a_group_agree(
    rng: np.random.Generator,
) -> None:
    """Two heads look in all of a group's 3 sentences, one with probability 0.3, one with 0.6.

    Otherwise they look in none of the group. There are 60 groups.
    """
    groups = equal_groups(180, 3)
    true_shares = np.array([0.3, 0.6])
    runs = 30
    missed_counts = np.zeros(2)
    missed_differences = 0
    stack = Stack("encoder", (2,))
    grid = HeadGrid((stack,))
    kinds = {
        "one": np.array([True, False]),
        "all": np.ones(2, bool),
    }
    for _ in range(runs):
        is_looking = rng.random((60, 2)) < true_shares
        shares_of_groups = is_looking.astype(float)
        tokens = np.repeat(shares_of_groups, 3, axis=0)
        looks = {"xx": SeparatorLooks(tokens, groups)}
        rows = head_records(looks, grid, rng).rows
        low_percents = [row.low_percent for row in rows]
        high_percents = [row.high_percent for row in rows]
        low = np.array(low_percents) / 100
        high = np.array(high_percents) / 100
        missed_counts += (true_shares < low) | (true_shares > high)
        records = kind_records(looks, kinds, are_aligned=True, rng=rng)
        record = records.rows[0]
        assert record.low is not None
        assert record.high is not None
        low_difference = record.low / 100
        high_difference = record.high / 100
        # The true difference is 0.3 minus the mean of both.
        missed_differences += not low_difference <= -0.15 <= high_difference
    assert (missed_counts <= 6).all()  # 1.5 are expected; chance exceeds 6 less than once in 1,000
    assert missed_differences <= 6


def test_groups_of_one_name_are_drawn_together_where_the_task_is_aligned(
    rng: np.random.Generator,
) -> None:
    is_looking = rng.random((40, 1)) < 0.5
    tokens = is_looking.astype(float)
    looks = SeparatorLooks(tokens, equal_groups(40))
    kinds = {"all": np.ones(1, bool)}
    widths = {}
    for are_aligned in (True, False):
        looks_by_language = {"xx": looks, "yy": replace(looks)}
        records = kind_records(
            looks_by_language,
            kinds,
            are_aligned=are_aligned,
            rng=rng,
        )
        row = records.rows[-1]
        assert row.low_percent is not None
        assert row.high_percent is not None
        widths[are_aligned] = row.high_percent - row.low_percent
    assert widths[True] > 1.2 * widths[False]  # twice the same sentence is not twice the evidence


def test_languages_that_are_not_aligned_are_resampled_one_by_one_and_count_alike(
    rng: np.random.Generator,
) -> None:
    """One head looks in nearly all sentences of xx and in few of the yy, which are fewer."""
    looks_by_language = {}
    kinds = {
        "one": np.array([True, False]),
        "all": np.ones(2, bool),
    }
    cases = (("xx", 40, 0.95), ("yy", 20, 0.05))
    for language, group_count, share in cases:
        is_looking = rng.random((group_count, 2)) < (share, 0.5)
        shares_of_groups = is_looking.astype(float)
        tokens = np.repeat(shares_of_groups, 2, axis=0)
        groups = equal_groups(2 * group_count, 2)
        looks_by_language[language] = SeparatorLooks(tokens, groups)
    looks_in_one_pool = {}
    for language, looks in looks_by_language.items():
        own_groups = tuple(f"{language}{group}" for group in looks.groups)
        looks_in_one_pool[language] = replace(looks, groups=own_groups)

    def cells_of_first_head(
        looks: dict[str, SeparatorLooks],
        are_aligned: bool,
    ) -> list[float]:
        generator = np.random.default_rng(1)
        records = kind_records(looks, kinds, are_aligned=are_aligned, rng=generator)
        row = records.rows[-2]
        language, kind, _, *cells = astuple(row)
        assert language == "all languages"
        assert kind == "one"
        return [float(cell) for cell in cells]

    cells = cells_of_first_head(looks_by_language, False)
    share, low, high, _, gain, gain_low, gain_high, _ = cells
    shares = []
    gains = []
    for looks in looks_by_language.values():
        share_of_first = looks.tokens[:, 0]
        shares.append(share_of_first)
        gains.append(share_of_first - looks.tokens.mean(axis=1))
    mean_shares = [language_shares.mean() for language_shares in shares]
    mean_gains = [language_gains.mean() for language_gains in gains]
    assert share == pytest.approx(100 * np.mean(mean_shares))
    assert gain == pytest.approx(100 * np.mean(mean_gains))
    group_lists = []
    for looks in looks_by_language.values():
        group_lists.append(list(looks.groups))
    for values, pseudo_values, interval in (
        (shares, (1.0, 0.0), (low, high)),
        (gains, (1.0, -1.0), (gain_low, gain_high)),
    ):
        value_lists = [list(language_values) for language_values in values]
        resampled = reference.resampled_apart(
            value_lists,
            group_lists,
            1500,
            2,
            pseudo_values,
        )
        quantiles = np.quantile(resampled, [0.025, 0.975])
        expected_interval = tuple(100 * quantiles)
        assert interval == pytest.approx(expected_interval, abs=1.5)
    cells_in_one_pool = cells_of_first_head(looks_in_one_pool, True)
    _, pool_low, pool_high, *_ = cells_in_one_pool
    width = high - low
    pool_width = pool_high - pool_low
    assert 1.3 * width < pool_width
