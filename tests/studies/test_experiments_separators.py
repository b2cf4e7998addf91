"""Heads that look at separators, against weights that transformers hands out sentence by sentence."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from support.planted_scores import plant
from support.tiny_models import tiny_model, tiny_module
from support.tiny_task import tiny_task, tiny_tokenizer
from test_inputs import PAIRS

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
    """[head, query, key] of each layer, stack by stack, from an untouched model that was asked for them."""
    module = tiny_module(family, torch.float64)
    if family != "deberta-v2":
        module.set_attn_implementation("eager")
    with torch.inference_mode():
        out = module(**inputs, output_attentions=True)
    names = (
        ("encoder_attentions", "decoder_attentions", "cross_attentions")
        if family == "marian"
        else ("attentions",)
    )
    return [layer[0].numpy() for name in names for layer in out[name]]


@pytest.mark.parametrize("tokens", IDS)
@pytest.mark.parametrize("family", TASKS)
def test_shares_equal_those_counted_sentence_by_sentence_without_padding(
    family: str, tokens: str
) -> None:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, TASKS[family], "xx", "dev", 6)
    found = measure_looks(evaluator, tokens)
    assert found.tokens.shape == (6, model.grid.size)
    assert evaluator.forwards == 6
    for row in range(6):
        inputs = evaluator.tensors(np.array([row]))
        source = inputs["input_ids"][0].tolist()
        target = inputs["decoder_input_ids"][0].tolist() if family == "marian" else source
        sides = {
            "encoder": (source, source),
            "decoder": (target, target),
            "cross": (target, source),
        }
        stacks = [stack.name for stack in model.grid.stacks for _ in range(stack.layers)]
        want = []
        for stack, layer in zip(stacks, weights(family, inputs), strict=True):
            queries, keys = sides[stack]
            real = [True] * len(keys)
            looking = [True] * len(queries)
            want += [reference.looks_at(head, looking, keys, real, IDS[tokens]) for head in layer]
        np.testing.assert_allclose(found.tokens[row], want, atol=1e-12)
    assert 0 < found.tokens.mean() < 1


def test_a_tie_is_not_a_look() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    with torch.no_grad():
        for name, parameter in model.module.named_parameters():
            if ".query." in name:
                parameter.zero_()  # every token then gives every token the same weight
    assert not measure_looks(Evaluator(model, tiny_task(), "xx", "dev", 4)).tokens.any()


def test_a_whole_sentence_needs_every_token() -> None:
    seen = SeparatorLooks(np.array([[1.0, 0.9], [0.5, 1.0]]), ("a", "b"))
    assert seen.is_whole_sentence.tolist() == [[True, False], [False, True]]


def test_batches_do_not_change_the_shares_and_ctrl_c_ends_them() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    whole = measure_looks(Evaluator(model, tiny_task(), "xx"))
    rows: list[int] = []
    cut = Evaluator(model, tiny_task(), "xx", batch_size=5)
    np.testing.assert_allclose(
        measure_looks(cut, on_batch=rows.append).tokens, whole.tokens, atol=1e-12
    )
    assert rows == [5, 10, 15, 20, 24]

    def press() -> None:
        raise KeyboardInterrupt

    cut.tick = press
    with pytest.raises(KeyboardInterrupt):
        measure_looks(cut)


def test_sentences_that_do_not_fit_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    from headlab.studies import separators

    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    want = measure_looks(Evaluator(model, tiny_task(), "xx", "dev", 9))
    shares = separators.shares_of

    def small(model: Model, batch: object, ids: torch.Tensor) -> object:
        if len(batch.rows) > 4:  # type: ignore[attr-defined] # a batch
            raise MemoryError
        return shares(model, batch, ids)  # type: ignore[arg-type] # the same batch

    monkeypatch.setattr(separators, "shares_of", small)
    np.testing.assert_allclose(
        measure_looks(Evaluator(model, tiny_task(), "xx", "dev", 9)).tokens, want.tokens, atol=1e-12
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Pieces]:
    """Of planted scores: heads 9 to 11 are the highest of both languages; 0 helps surely in xx and harms in yy."""
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    pieces = Pieces(model, tiny_task(), Store(tmp_path_factory.mktemp("store")), dev_size=10)
    plant(pieces, "xx", np.where(np.arange(12) == 0, 3.0, VALUES))
    plant(pieces, "yy", VALUES, (0, 1))
    expected = sum(ask.forwards for ask in cost(pieces, STUDIES["separators"].resolve({})))
    found = run_experiment("separators", pieces, options={"top": 3})
    assert found.example_forwards == expected == 20
    return found, pieces


def test_the_tables_hold_the_means_of_what_was_seen(report: tuple[Report, Pieces]) -> None:
    found, pieces = report
    heads = found.table("separators")
    kinds = found.table("separator-kinds")
    chosen = {"language-agnostic": [9, 10, 11], "language-specific": [0], "all": list(range(12))}
    for language in ("xx", "yy"):
        seen = measure_looks(Evaluator(pieces.model, tiny_task(), language, "dev", 10))
        mine = [row for row in heads.rows if row[0] == language]
        assert [row[1:4] for row in mine] == [tuple(head) for head in pieces.model.grid.heads]
        np.testing.assert_allclose([row[4] for row in mine], 100 * (seen.tokens == 1).mean(axis=0))
        np.testing.assert_allclose([row[7] for row in mine], 100 * seen.tokens.mean(axis=0))
        assert all(low <= share <= high for _, _, _, _, share, low, high, *_ in mine)  # type: ignore[operator]
        for kind, at in chosen.items():
            (row,) = [row for row in kinds.rows if row[:2] == (language, kind)]
            share = 100 * (seen.tokens[:, at] == 1).mean()
            assert row[2:4] == (len(at), pytest.approx(share))
            assert row[6] == pytest.approx(100 * seen.tokens[:, at].mean())
            if kind != "all":
                assert row[7] == pytest.approx(share - 100 * (seen.tokens == 1).mean())
    assert [row[:2] for row in kinds.rows[-3:]] == [("all languages", kind) for kind in KINDS]
    assert Report.from_json(found.to_json()) == found
    assert "`</s>`" in found.notes[0]


def test_a_second_look_costs_nothing_and_another_option_is_another_report(
    report: tuple[Report, Pieces],
) -> None:
    found, pieces = report
    again = Pieces(pieces.model, tiny_task(), pieces.store, dev_size=10)
    assert run_experiment("separators", again, options={"top": 3}) == found
    assert again.forwards == 0
    other = run_experiment("separators", again, options={"top": 3, "tokens": "special"})
    assert other.table("separators").column("tokens, %") != found.table("separators").column(
        "tokens, %"
    )


def test_heads_of_no_kind_leave_their_cells_empty(tmp_path: Path) -> None:
    pieces = Pieces(
        tiny_model("bert", tokenizer=tiny_tokenizer()),
        tiny_task().restricted(["xx"]),
        Store(tmp_path),
        dev_size=4,
    )
    plant(pieces, "xx", VALUES)
    kinds = run_experiment("separators", pieces).table("separator-kinds")
    assert [row[2] for row in kinds.rows] == [12, 0, 12]
    assert kinds.rows[1][3:] == (None,) * 8
    assert set(kinds.column("language")) == {"xx"}  # no row for all languages where there is one


def test_intervals_cover_the_truth_when_sentences_of_a_group_agree(
    rng: np.random.Generator,
) -> None:
    """60 groups of 3 sentences; a head looks with probability 0.3 in all of a group or in none, another with 0.6."""
    groups = tuple(str(i // 3) for i in range(180))
    truth = np.array([0.3, 0.6])
    runs = 30
    missed = np.zeros(2)
    apart = 0
    grid = HeadGrid((Stack("encoder", (2,)),))
    kinds = {"one": np.array([True, False]), "all": np.ones(2, bool)}
    for _ in range(runs):
        tokens = np.repeat((rng.random((60, 2)) < truth).astype(float), 3, axis=0)
        found = {"xx": SeparatorLooks(tokens, groups)}
        rows = head_records(found, grid, rng).rows
        low = np.array([row.low_percent for row in rows]) / 100
        high = np.array([row.high_percent for row in rows]) / 100
        missed += (truth < low) | (truth > high)
        first = kind_records(found, kinds, are_aligned=True, rng=rng).rows[0]
        assert first.low is not None
        assert first.high is not None
        apart += not first.low / 100 <= -0.15 <= first.high / 100  # 0.3 minus the mean of both
    assert (missed <= 6).all()  # 1.5 are expected; chance exceeds 6 less than once in 1,000
    assert apart <= 6


def test_groups_of_one_name_are_drawn_together_where_the_task_is_aligned(
    rng: np.random.Generator,
) -> None:
    tokens = np.repeat((rng.random((40, 1)) < 0.5).astype(float), 1, axis=0)
    one = SeparatorLooks(tokens, tuple(map(str, range(40))))
    kinds = {"all": np.ones(1, bool)}
    spans = {}
    for aligned in (True, False):
        records = kind_records({"xx": one, "yy": replace(one)}, kinds, are_aligned=aligned, rng=rng)
        row = records.rows[-1]
        assert row.low_percent is not None
        assert row.high_percent is not None
        spans[aligned] = row.high_percent - row.low_percent
    assert spans[True] > 1.2 * spans[False]  # twice the same sentence is not twice the evidence


def test_languages_that_are_not_aligned_are_resampled_each_for_itself_and_count_alike(
    rng: np.random.Generator,
) -> None:
    """One head looks in nearly all sentences of xx and in few of the yy, which are fewer."""
    found = {}
    kinds = {"one": np.array([True, False]), "all": np.ones(2, bool)}
    for language, groups, share in (("xx", 40, 0.95), ("yy", 20, 0.05)):
        tokens = np.repeat((rng.random((groups, 2)) < (share, 0.5)).astype(float), 2, axis=0)
        found[language] = SeparatorLooks(tokens, tuple(str(i // 2) for i in range(2 * groups)))
    wide = {}
    for aligned, names in ((False, False), (True, True)):
        each = {
            name: replace(seen, groups=tuple(f"{name if names else ''}{g}" for g in seen.groups))
            for name, seen in found.items()
        }
        records = kind_records(each, kinds, are_aligned=aligned, rng=np.random.default_rng(1))
        row = astuple(records.rows[-2])
        assert row[:2] == ("all languages", "one")
        wide[aligned] = row
    share, low, high, _, gain, below, above, _ = (float(cell) for cell in wide[False][3:])  # type: ignore[arg-type]
    shares = [seen.tokens[:, 0] for seen in found.values()]
    gains = [seen.tokens[:, 0] - seen.tokens.mean(axis=1) for seen in found.values()]
    assert share == pytest.approx(100 * np.mean([row.mean() for row in shares]))
    assert gain == pytest.approx(100 * np.mean([row.mean() for row in gains]))
    names = [list(seen.groups) for seen in found.values()]
    for rows, made_up, ends in (
        (shares, (1.0, 0.0), (low, high)),
        (gains, (1.0, -1.0), (below, above)),
    ):
        slow = reference.resampled_apart([list(row) for row in rows], names, 1500, 2, made_up)
        assert ends == pytest.approx(tuple(100 * np.quantile(slow, [0.025, 0.975])), abs=1.5)
    assert 1.3 * (high - low) < wide[True][5] - wide[True][4]  # type: ignore[operator] # those of one pool
