"""Gates on a language model's heads by Shim et al. (2021), and what is left when closed ones are gone."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.synthetic_text import GATES, TINY, attached, corpus, text, tiny_lm, write_text
from test_lm import Stop, stopping, weights

import headlab
from headlab.cli.main import FAILED, OK, main
from headlab.core import Report, read_json, write_json
from headlab.hooks import gated
from headlab.reproduce import shim
from headlab.training import LmGateOptions
from headlab.training.lm_prune import AllClosed, LmGateSteps, prune_lm
from headlab.training.lm_train import train_lm


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model."""
    return train_lm(text(), tmp_path_factory.mktemp("lm") / "start", replace(TINY, steps=30))


def gate_steps(**options: Any) -> LmGateSteps:
    return LmGateSteps(attached(tiny_lm()), corpus(200), replace(GATES, **options))


def test_each_technique_can_be_switched_off() -> None:
    on = LmGateOptions(weight=0.4, steps=10)
    off = replace(on, warm_up=False, open_start=False, scale=False)
    assert [round(on.weight_at(step), 3) for step in (0, 1, 4, 5, 9)] == [0.08, 0.16, 0.4, 0.4, 0.4]
    assert {off.weight_at(step) for step in range(10)} == {0.4}
    first = torch.tensor([on.initial_log_alpha, off.initial_log_alpha], dtype=torch.float64)
    opened = on.concrete.open(first)
    assert float(opened[0]) == pytest.approx(0.95)
    assert off.initial_log_alpha == 0.0
    middle = on.concrete.sample(first, torch.full((2,), 0.5, dtype=torch.float64))
    assert middle[1] == pytest.approx(0.5)


def test_scaled_gates_of_a_layer_add_up_to_its_heads() -> None:
    gates = torch.rand(11, generator=torch.manual_seed(0))
    scaled = gate_steps().by_layer(gates)
    plain = gate_steps(scale=False).by_layer(gates)
    torch.testing.assert_close(scaled.sum(dim=1), torch.tensor([4.0, 3.0, 4.0]))
    torch.testing.assert_close(plain[1, :3], gates[4:7])
    assert gate_steps().by_layer(torch.zeros(11)).sum() == 0


def test_the_objective_is_the_loss_under_drawn_gates_and_the_expected_number_of_open_ones() -> None:
    steps = gate_steps(weight=0.5, warm_up=False)
    steps.model.train(False)
    ids = torch.as_tensor(steps.corpus.ids[:9])[None]
    loss, penalty = steps.objective(3, ids[:, :-1], ids[:, 1:])
    assert float(torch.as_tensor(penalty).detach()) == pytest.approx(0.5 * 11 * 0.95, rel=1e-5)
    uniform = torch.as_tensor(np.random.default_rng((0, 1, 3)).random(11, np.float32))
    gates = steps.by_layer(steps.options.concrete.sample(steps.log_alpha.detach(), uniform))
    with gated(steps.attached, gates), torch.no_grad():
        wanted = steps.loss(ids[:, :-1], ids[:, 1:])
    torch.testing.assert_close(loss.detach(), wanted)
    torch.as_tensor(penalty).backward()
    grad = steps.log_alpha.grad
    assert grad is not None
    # the slope of a logistic curve
    torch.testing.assert_close(grad, torch.full((11,), 0.5 * 0.95 * 0.05))


def test_gates_close_where_the_penalty_is_all_that_counts_and_keep_their_rate() -> None:
    steps = gate_steps(weight=5.0, warm_up=False, steps=8, gate_rate=0.9)
    before = steps.open()
    for step in range(8):
        steps.step(step, steps.batch_at(step))
        assert steps.state.optimizer.param_groups[0]["lr"] == 0.9
    assert before == 11
    assert steps.open() == 0
    assert steps.state.optimizer.param_groups[1]["lr"] == pytest.approx(GATES.model_rate / 8)


def test_pruning_writes_a_smaller_model_and_what_it_cost(start: Path, tmp_path: Path) -> None:
    gates = prune_lm(
        start, text(), tmp_path / "pruned", replace(GATES, weight=0.03, steps=16, warm_up=False)
    )
    kept = int(gates.kept.sum())
    assert 0 < kept < 6
    model = headlab.load(str(tmp_path / "pruned"), device="cpu")
    assert model.grid.size == kept
    record = read_json(tmp_path / "pruned" / "training.json")
    assert record["gates"]["heads"] == [kept, 6]
    assert sum(map(sum, record["gates"]["kept"])) == kept == sum(record["heads"])
    before = read_json(start / "training.json")
    assert record["parameters"]["layers"] < before["parameters"]["layers"]
    told = record["perplexities"]
    ratio = record["ratios"]["tuned"]["test"]
    assert told["before"]["test"] == before["perplexity"]["test"]
    assert ratio["value"] == pytest.approx(
        told["tuned"]["test"]["word"] / told["before"]["test"]["word"]
    )
    assert ratio["low"] <= ratio["value"] <= ratio["high"]
    assert [p.name for p in tmp_path.iterdir()] == ["pruned"]
    assert gates.steps[-1] == 16
    assert gates.log_alpha.shape == (17, 6)


def test_removed_heads_answer_as_the_gated_model_did_before_fine_tuning(
    start: Path, tmp_path: Path
) -> None:
    """Without steps of fine-tuning what is written is the trained model with closed gates, its outputs scaled."""
    options = replace(GATES, weight=0.03, steps=16, warm_up=False, tune_steps=0, model_rate=1e-12)
    gates = prune_lm(start, text(), tmp_path / "pruned", options)
    whole, smaller = (
        headlab.load(str(folder), device="cpu") for folder in (start, tmp_path / "pruned")
    )
    per_layer = gates.grid.gates(gates.kept.astype(np.float32))
    scaled = per_layer * (3 / np.maximum(per_layer.sum(axis=1, keepdims=True), 1))
    ids = torch.arange(8)[None] + 2
    with torch.no_grad(), gated(whole, scaled):
        wanted = whole.module(ids).logits
    with torch.no_grad():
        torch.testing.assert_close(smaller.module(ids).logits, wanted, atol=1e-5, rtol=0)


@pytest.mark.usefixtures("one_lane")
@pytest.mark.parametrize(("part", "after"), [("gates", 3), ("fine-tuning", 2)])
def test_a_pruning_that_was_stopped_ends_with_the_same_weights(
    start: Path, tmp_path: Path, part: str, after: int
) -> None:
    whole = prune_lm(start, text(), tmp_path / "whole", GATES)
    with pytest.raises(Stop):
        prune_lm(start, text(), tmp_path / "parts", GATES, watch=stopping(after, part))
    parts = prune_lm(start, text(), tmp_path / "parts", GATES)
    np.testing.assert_array_equal(whole.log_alpha, parts.log_alpha)
    np.testing.assert_array_equal(whole.loss, parts.loss)
    ours = weights(tmp_path / "parts")
    assert all(
        torch.equal(tensor, ours[name]) for name, tensor in weights(tmp_path / "whole").items()
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["parts", "whole"]


def test_the_gates_kept_are_copies_and_the_first_are_those_before_any_step(
    start: Path, tmp_path: Path
) -> None:
    options = replace(GATES, steps=12, history=3, weight=0.5, warm_up=False)
    assert options.times == (0, 4, 8, 12)
    with pytest.raises(Stop):  # before the second time: what is kept must be written all the same
        prune_lm(start, text(), tmp_path / "parts", options, watch=stopping(2, "gates"))
    steps = gate_steps(steps=12, history=3, weight=0.5, warm_up=False)
    for step in range(5):
        steps.step(step, steps.batch_at(step))
        steps.after_step(step + 1)
    kept = steps.state.extra_tensors["history"]
    assert kept.shape == (2, 11)
    assert (kept[0] == options.initial_log_alpha).all()
    assert (kept[1] != options.initial_log_alpha).all()
    assert not torch.equal(kept[1], steps.log_alpha.detach())


@pytest.mark.parametrize(
    ("place", "code"),
    [(".", "output.is_model"), ("inside", "output.is_model"), ("..", "output.not_replaceable")],
)
def test_the_model_that_is_pruned_is_never_replaced(
    start: Path, tmp_path: Path, place: str, code: str
) -> None:
    model = tmp_path / "models" / "lm"
    shutil.copytree(start, model)
    out = model / place
    before = weights(model)
    with raises(code):
        prune_lm(model, text(), out, GATES)
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(model).items())


def test_a_penalty_that_closes_every_gate_is_told_and_another_model_refused(
    start: Path, tmp_path: Path
) -> None:
    with raises("gate.all_closed", kind=AllClosed):
        prune_lm(
            start,
            text(),
            tmp_path / "out",
            replace(GATES, weight=9.0, gate_rate=0.9, warm_up=False),
        )
    with raises("option.invalid", "low", 0.1, "a number between"):
        prune_lm(start, text(), tmp_path / "out", replace(GATES, low=0.1))
    with raises("option.invalid", "start", 1):
        prune_lm(start, text(), tmp_path / "out", replace(GATES, start=1.0))


def test_the_command_prunes_and_tells_the_ratio(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_text(tmp_path / "data")
    out = tmp_path / "out"
    command = [
        "train",
        "lm-prune",
        str(start),
        "--data",
        str(data),
        "--out",
        str(out),
        "--device",
        "cpu",
    ]
    assert (
        main(
            [
                *command,
                "--weight=0",
                "--steps=2",
                "--tune-steps=1",
                "--batch=4",
                "--no-scale",
                "--json",
            ]
        )
        == OK
    )
    told = json.loads(capsys.readouterr().out)
    assert told["training"]["pruned"]["scale"] is False
    assert told["training"]["gates"]["heads"] == [6, 6]
    with_rates = [
        "--steps=2",
        "--tune-steps=1",
        "--batch=4",
        "--model-rate=0.001",
        "-o",
        "history=1",
        "-o",
        "start=0.9",
    ]
    assert main([*command, *with_rates, "--json"]) == OK
    pruned = json.loads(capsys.readouterr().out)["training"]["pruned"]
    assert [pruned[name] for name in ("history", "start", "tune_rate", "block")] == [
        1,
        0.9,
        0.001,
        TINY.block,
    ]
    assert main([*command, *with_rates]) == OK
    assert re.search(
        r"test: × [\d.]+ \[.*\] the unpruned model's, which was not trained on$",
        capsys.readouterr().out,
        re.MULTILINE,
    )
    assert main([*command, "-o", "block=4"]) == FAILED
    assert "the model's own training" in capsys.readouterr().err
    assert main(["train", "lm-prune", str(data), "--data", str(data)]) == FAILED
    assert "train a model first" in capsys.readouterr().err


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> shim.ShimPlan:
    """A tiny plan in the smallest one's place."""
    gates = replace(GATES, tune_steps=1, warm_up=False, gate_rate=0.9)
    made = shim.ShimPlan(300, 100, replace(TINY, steps=3), gates, (0.0, 9.0), 0.0, 2)
    monkeypatch.setattr(shim, "SMOKE", made)
    return made


def test_the_reproduction_makes_every_model_once_and_its_tables(
    tmp_path: Path,
    plan: shim.ShimPlan,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_text(tmp_path / "data" / "wikitext2")
    command = [
        "reproduce",
        "shim",
        "--smoke",
        "--data",
        str(tmp_path / "data"),
        "--cache",
        str(tmp_path / "cache"),
    ]
    assert main([*command, "--device", "cpu", "--json", "--out", str(tmp_path / "out")]) == OK
    told = json.loads(capsys.readouterr().out)
    assert told["command"] == "headlab reproduce shim --data DIR --smoke --device cpu"
    report = Report.from_json(told)
    models = report.table("shim-models")
    assert models.column("model") == [
        "all-attention",
        "all-attention, trained on",
        "pruned, λ = 0",
        "transformer",
        "transformer as large as λ = 0",
    ]
    assert models.column("× trained on")[1] == 1
    assert models.column("speed, ×")[0] == 1
    equal = report.table("shim-equal")
    assert equal.column("λ") == ["none", "0"]
    assert equal.column("× the transformer's")[1] == pytest.approx(
        equal.column("perplexity")[1] / equal.column("transformer: perplexity")[1]
    )
    assert any("pruned, λ = 9: every gate closed" in note for note in report.notes)
    assert any("not at hand" in note for note in report.notes)
    assert any(
        note.startswith("× after removal alone: against all-attention, before")
        for note in models.notes
    )
    assert len(report.table("shim-techniques").rows) == 5
    assert report.table("shim-parameters").column("all-attention, %") == [100]
    records = [read_json(path) for path in (tmp_path / "cache").glob("adapters/*/training.json")]
    assert report.seconds == pytest.approx(
        sum(r["took"]["seconds"] + r["took"]["judging"] for r in records), abs=0.06
    )
    # the start; trained on and two ordinary ones; four that are pruned, as the plan has no warm-up to leave out
    assert report.example_forwards == 4 * (3 + 3 * 9 + 4 * 6)
    assert len(records) == 1 + 3 + 4
    assert report.spec["plan"]["gates"]["gate_rate"] == 0.9
    assert report.spec["threads"] == torch.get_num_threads()
    monkeypatch.setattr(shim, "train_lm", None)  # nothing is trained again
    assert main([*command, "--device", "cpu"]) == OK
    assert (tmp_path / "out" / "shim-models.csv").is_file()
    found = shim.MadeModels(
        plan, "another text", {"all-attention": next((tmp_path / "cache" / "adapters").iterdir())}
    )
    with raises("reproduce.other_text"):
        found.sums("all-attention")


@pytest.mark.parametrize("weight", ["inf", "2e9"])
def test_a_penalty_that_nothing_can_be_pruned_with_is_refused_before_anything_is_trained(
    tmp_path: Path, plan: shim.ShimPlan, capsys: pytest.CaptureFixture[str], weight: str
) -> None:
    write_text(tmp_path / "data" / "wikitext2")
    command = [
        "reproduce",
        "shim",
        "--smoke",
        "--data",
        str(tmp_path / "data"),
        "--cache",
        str(tmp_path / "cache"),
    ]
    assert main([*command, "--weight", "0.1", "--weight", weight]) == FAILED
    assert "weight is" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()


def test_a_record_in_the_cache_that_is_not_what_is_written_now_is_told(
    start: Path, plan: shim.ShimPlan
) -> None:
    whole: Any = read_json(start / "training.json")
    found = shim.MadeModels(plan, "data", {"all-attention": start})
    assert found.record("all-attention") == whole
    spoiled: list[Any] = [{}, [], {**whole, "took": 3}, {**whole, "heads": []}, {**whole, "parameters": {"whole": 1}},
                          {**whole, "pruned": whole["options"]}, {**whole, "perplexity": {"test": {"word": "x"}}},
                          {**whole, "options": [1]}, {**whole, "took": {"seconds": 10**400, "judging": 1}}]  # fmt: skip
    try:
        for value in spoiled:
            write_json(start / "training.json", value)
            with raises("reproduce.folder_other_version", start):
                found.record("all-attention")
    finally:
        write_json(start / "training.json", whole)


def test_a_cached_model_is_named_by_the_version_that_wrote_it(
    plan: shim.ShimPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = shim.ShimWork(plan, text(), tmp_path, device="cpu", seed=0, show=lambda *_: None)
    before = work.place_of("x")
    monkeypatch.setattr(shim, "VERSION", shim.VERSION + 1)
    assert work.place_of("x") != before


@pytest.mark.parametrize("chosen", [shim.REAL, shim.SMOKE])
@pytest.mark.parametrize("share", [0.1, 0.35, 0.8, 1.0])
def test_an_ordinary_transformer_is_made_as_large_as_what_is_left(
    chosen: shim.ShimPlan, share: float
) -> None:
    model = chosen.model
    heads = [max(1, round(model.heads * share))] * (model.layers - 1) + [
        0 if share < 1 else model.heads
    ]
    wanted = shim.layer_parameters(model, heads)
    options = shim.as_large(chosen, wanted)
    options.check()
    assert options.steps == chosen.as_long
    assert options.heads <= model.heads
    assert shim.layer_parameters(options) == pytest.approx(wanted, rel=0.015)
    if share == 1:
        assert (options.heads, options.layers) == (model.heads, model.layers)
