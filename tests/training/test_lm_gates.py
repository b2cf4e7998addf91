"""Gates on a language model's heads by Shim et al. (2021), and the model without closed heads."""

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
from support.synthetic_text import (
    GATE_OPTIONS,
    TINY_OPTIONS,
    gateable_model,
    made_splits,
    random_corpus,
    tiny_lm,
    write_splits,
)
from support.training_runs import Stop, assert_same_weights, stop_after

import headlab
from headlab.cli.run import FAILED, OK, main
from headlab.core import Report, read_json, write_json
from headlab.hooks import gated
from headlab.reproduce import shim
from headlab.training import LmGateOptions
from headlab.training.lm_prune import AllClosed, LmGateSteps, prune_lm
from headlab.training.lm_train import train_lm


@pytest.fixture(scope="module")
def trained_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model."""
    return train_lm(
        made_splits(), tmp_path_factory.mktemp("lm") / "start", replace(TINY_OPTIONS, steps=30)
    )


def gate_steps(**options: Any) -> LmGateSteps:
    return LmGateSteps(
        gateable_model(tiny_lm()), random_corpus(200), replace(GATE_OPTIONS, **options)
    )


def test_each_technique_can_be_switched_off() -> None:
    with_techniques = LmGateOptions(weight=0.4, steps=10)
    without_techniques = replace(with_techniques, warm_up=False, open_start=False, scale=False)
    weights = [round(with_techniques.weight_at(step), 3) for step in (0, 1, 4, 5, 9)]
    assert weights == [0.08, 0.16, 0.4, 0.4, 0.4]
    assert {without_techniques.weight_at(step) for step in range(10)} == {0.4}
    concrete = with_techniques.concrete
    open_start = torch.tensor(with_techniques.initial_log_alpha, dtype=torch.float64)
    assert float(concrete.probability_open(open_start)) == pytest.approx(0.95)
    assert without_techniques.initial_log_alpha == 0.0
    even_start = torch.tensor([without_techniques.initial_log_alpha], dtype=torch.float64)
    median = concrete.sample(even_start, torch.full((1,), 0.5, dtype=torch.float64))
    assert median[0] == pytest.approx(0.5)


def test_scaled_gates_of_a_layer_add_up_to_its_heads() -> None:
    gates = torch.rand(11, generator=torch.manual_seed(0))
    scaled_gates = gate_steps().by_layer(gates)
    plain_gates = gate_steps(scale=False).by_layer(gates)
    torch.testing.assert_close(scaled_gates.sum(dim=1), torch.tensor([4.0, 3.0, 4.0]))
    torch.testing.assert_close(plain_gates[1, :3], gates[4:7])
    assert gate_steps().by_layer(torch.zeros(11)).sum() == 0


def test_the_objective_is_the_loss_under_drawn_gates_and_the_expected_number_of_open_ones() -> None:
    steps = gate_steps(weight=0.5, warm_up=False)
    steps.model.train(False)
    ids = torch.as_tensor(steps.corpus.ids[:9])[None]
    inputs = ids[:, :-1]
    labels = ids[:, 1:]
    loss, penalty = steps.objective(3, inputs, labels)
    penalty = torch.as_tensor(penalty)
    assert float(penalty.detach()) == pytest.approx(0.5 * 11 * 0.95, rel=1e-5)
    rng = np.random.default_rng((0, 1, 3))
    uniforms = torch.as_tensor(rng.random(11, np.float32))
    sample = steps.options.concrete.sample(steps.log_alpha.detach(), uniforms)
    with gated(steps.attached, steps.by_layer(sample)), torch.no_grad():
        want = steps.loss(inputs, labels)
    torch.testing.assert_close(loss.detach(), want)
    penalty.backward()
    gradient = steps.log_alpha.grad
    assert gradient is not None
    slope_of_logistic_curve = 0.95 * 0.05
    torch.testing.assert_close(gradient, torch.full((11,), 0.5 * slope_of_logistic_curve))


def test_gates_close_where_the_penalty_is_all_that_counts_and_keep_their_rate() -> None:
    steps = gate_steps(weight=5.0, warm_up=False, steps=8, gate_rate=0.9)
    assert steps.open() == 11
    for step in range(8):
        steps.step(step, steps.batch_at(step))
        assert steps.state.optimizer.param_groups[0]["lr"] == 0.9
    assert steps.open() == 0
    rate_of_model = steps.state.optimizer.param_groups[1]["lr"]
    assert rate_of_model == pytest.approx(GATE_OPTIONS.model_rate / 8)


def test_pruning_writes_a_smaller_model_and_what_it_cost(
    trained_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "pruned"
    options = replace(GATE_OPTIONS, weight=0.03, steps=16, warm_up=False)
    gates = prune_lm(trained_folder, made_splits(), folder, options)
    kept_heads = int(gates.kept.sum())
    assert 0 < kept_heads < 6
    model = headlab.load(str(folder), device="cpu")
    assert model.grid.size == kept_heads
    record = read_json(folder / "training.json")
    assert record["gates"]["heads"] == [kept_heads, 6]
    assert sum(map(sum, record["gates"]["kept"])) == kept_heads
    assert sum(record["heads"]) == kept_heads
    start_record = read_json(trained_folder / "training.json")
    assert record["parameters"]["layers"] < start_record["parameters"]["layers"]
    perplexity_before = record["perplexities"]["before"]["test"]
    perplexity_after = record["perplexities"]["tuned"]["test"]
    ratio = record["ratios"]["tuned"]["test"]
    assert perplexity_before == start_record["perplexity"]["test"]
    assert ratio["value"] == pytest.approx(perplexity_after["word"] / perplexity_before["word"])
    assert ratio["low"] <= ratio["value"] <= ratio["high"]
    assert [path.name for path in tmp_path.iterdir()] == ["pruned"]
    assert gates.steps[-1] == 16
    assert gates.log_alpha.shape == (17, 6)


def test_removed_heads_answer_as_the_gated_model_did_before_fine_tuning(
    trained_folder: Path, tmp_path: Path
) -> None:
    """Without fine-tuning, it is the trained model with closed gates and scaled outputs."""
    options = replace(
        GATE_OPTIONS, weight=0.03, steps=16, warm_up=False, tune_steps=0, model_rate=1e-12
    )
    gates = prune_lm(trained_folder, made_splits(), tmp_path / "pruned", options)
    full_model = headlab.load(str(trained_folder), device="cpu")
    pruned_model = headlab.load(str(tmp_path / "pruned"), device="cpu")
    gates_by_layer = gates.grid.gates(gates.kept.astype(np.float32))
    kept_by_layer = gates_by_layer.sum(axis=1, keepdims=True)
    scaled_gates = gates_by_layer * (3 / np.maximum(kept_by_layer, 1))
    ids = torch.arange(8)[None] + 2
    with torch.no_grad(), gated(full_model, scaled_gates):
        want = full_model.module(ids).logits
    with torch.no_grad():
        torch.testing.assert_close(
            pruned_model.module(ids).logits,
            want,
            atol=1e-5,
            rtol=0,
        )


@pytest.mark.usefixtures("one_lane")
@pytest.mark.parametrize(
    ("part", "last_step"),
    [("gates", 3), ("fine-tuning", 2)],
)
def test_a_pruning_that_was_stopped_ends_with_the_same_weights(
    trained_folder: Path,
    tmp_path: Path,
    part: str,
    last_step: int,
) -> None:
    uninterrupted_gates = prune_lm(trained_folder, made_splits(), tmp_path / "whole", GATE_OPTIONS)
    watch = stop_after(last_step, part)
    with pytest.raises(Stop):
        prune_lm(trained_folder, made_splits(), tmp_path / "parts", GATE_OPTIONS, watch=watch)
    resumed_gates = prune_lm(trained_folder, made_splits(), tmp_path / "parts", GATE_OPTIONS)
    np.testing.assert_array_equal(resumed_gates.log_alpha, uninterrupted_gates.log_alpha)
    np.testing.assert_array_equal(resumed_gates.loss, uninterrupted_gates.loss)
    assert_same_weights(tmp_path / "parts", tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "whole"]


def test_gates_in_the_history_are_copies_and_the_first_are_those_before_any_step(
    trained_folder: Path, tmp_path: Path
) -> None:
    options = replace(GATE_OPTIONS, steps=12, history=3, weight=0.5, warm_up=False)
    assert options.times == (0, 4, 8, 12)
    # This stops before the second entry of the history; the first must be saved all the same.
    with pytest.raises(Stop):
        prune_lm(
            trained_folder,
            made_splits(),
            tmp_path / "parts",
            options,
            watch=stop_after(2, "gates"),
        )
    steps = gate_steps(steps=12, history=3, weight=0.5, warm_up=False)
    for step in range(5):
        steps.step(step, steps.batch_at(step))
        steps.after_step(step + 1)
    history = steps.state.extra_tensors["history"]
    assert history.shape == (2, 11)
    assert (history[0] == options.initial_log_alpha).all()
    assert (history[1] != options.initial_log_alpha).all()
    assert not torch.equal(history[1], steps.log_alpha.detach())


@pytest.mark.parametrize(
    ("path_from_model", "code"),
    [(".", "output.is_model"), ("inside", "output.is_model"), ("..", "output.not_replaceable")],
)
def test_the_model_that_is_pruned_is_never_replaced(
    trained_folder: Path,
    tmp_path: Path,
    path_from_model: str,
    code: str,
) -> None:
    folder = tmp_path / "models" / "lm"
    shutil.copytree(trained_folder, folder)
    with raises(code):
        prune_lm(folder, made_splits(), folder / path_from_model, GATE_OPTIONS)
    assert_same_weights(folder, trained_folder)


def test_a_penalty_that_closes_every_gate_is_reported_and_unusable_options_are_refused(
    trained_folder: Path, tmp_path: Path
) -> None:
    options = replace(GATE_OPTIONS, weight=9.0, gate_rate=0.9, warm_up=False)
    with raises("gate.all_closed", kind=AllClosed):
        prune_lm(trained_folder, made_splits(), tmp_path / "out", options)
    with raises("option.invalid", "low", 0.1, "a number between"):
        prune_lm(
            trained_folder,
            made_splits(),
            tmp_path / "out",
            replace(GATE_OPTIONS, low=0.1),
        )
    with raises("option.invalid", "start", 1):
        prune_lm(
            trained_folder,
            made_splits(),
            tmp_path / "out",
            replace(GATE_OPTIONS, start=1.0),
        )


def test_the_command_prunes_and_prints_the_ratio(
    trained_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = write_splits(tmp_path / "data")
    command = ["train", "lm-prune", str(trained_folder), "--data", str(data)]
    command += ["--out", str(tmp_path / "out"), "--device", "cpu"]
    sizes = ["--steps=2", "--tune-steps=1", "--batch=4"]
    assert main([*command, *sizes, "--weight=0", "--no-scale", "--json"]) == OK
    record = json.loads(capsys.readouterr().out)["training"]
    assert record["pruned"]["scale"] is False
    assert record["gates"]["heads"] == [6, 6]
    settings = ["--model-rate=0.001", "-o", "history=1", "-o", "start=0.9"]
    assert main([*command, *sizes, *settings, "--json"]) == OK
    options = json.loads(capsys.readouterr().out)["training"]["pruned"]
    assert options["history"] == 1
    assert options["start"] == 0.9
    assert options["tune_rate"] == 0.001
    assert options["block"] == TINY_OPTIONS.block
    assert main([*command, *sizes, *settings]) == OK
    report = capsys.readouterr().out
    ratio_line = r"test: × [\d.]+ \[.*\] the unpruned model's, which was not trained on$"
    assert re.search(ratio_line, report, re.MULTILINE)
    assert main([*command, "-o", "block=4"]) == FAILED
    assert "the model's own training" in capsys.readouterr().err
    assert main(["train", "lm-prune", str(data), "--data", str(data)]) == FAILED
    assert "train a model first" in capsys.readouterr().err


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> shim.ShimPlan:
    """A tiny plan in the smallest one's place."""
    gates = replace(GATE_OPTIONS, tune_steps=1, warm_up=False, gate_rate=0.9)
    tiny_plan = shim.ShimPlan(
        words=300,
        held_words=100,
        model=replace(TINY_OPTIONS, steps=3),
        gates=gates,
        weights=(0.0, 9.0),
        ablated=0.0,
        rounds=2,
    )
    monkeypatch.setattr(shim, "SMOKE", tiny_plan)
    return tiny_plan


def reproduction_command(folder: Path) -> list[str]:
    """The reproduction of a text that is written into the folder."""
    write_splits(folder / "data" / "wikitext2")
    command = ["reproduce", "shim", "--smoke", "--data", str(folder / "data")]
    return [*command, "--cache", str(folder / "cache")]


def test_the_reproduction_makes_every_model_once_and_its_tables(
    tmp_path: Path,
    plan: shim.ShimPlan,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = reproduction_command(tmp_path)
    assert main([*command, "--device", "cpu", "--json", "--out", str(tmp_path / "out")]) == OK
    report_json = json.loads(capsys.readouterr().out)
    assert report_json["command"] == "headlab reproduce shim --data DIR --smoke --device cpu"
    report = Report.from_json(report_json)
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
    comparison = report.table("shim-equal")
    assert comparison.column("λ") == ["none", "0"]
    perplexity = comparison.column("perplexity")[1]
    transformer_perplexity = comparison.column("transformer: perplexity")[1]
    ratio = comparison.column("× the transformer's")[1]
    assert ratio == pytest.approx(perplexity / transformer_perplexity)
    assert any("pruned, λ = 9: every gate closed" in note for note in report.notes)
    assert any("not at hand" in note for note in report.notes)
    beginning = "× after removal alone: against all-attention, before"
    assert any(note.startswith(beginning) for note in models.notes)
    assert len(report.table("shim-techniques").rows) == 5
    assert report.table("shim-parameters").column("all-attention, %") == [100]
    records = [read_json(path) for path in (tmp_path / "cache").glob("adapters/*/training.json")]
    seconds = 0.0
    for record in records:
        seconds += record["took"]["seconds"] + record["took"]["judging"]
    assert report.seconds == pytest.approx(seconds, abs=0.06)
    # Steps of the start, of the model trained on and two ordinary ones, and of four that are
    # pruned: not five, as the plan has no warm-up to leave out.
    assert report.example_forwards == 4 * (3 + 3 * 9 + 4 * 6)
    assert len(records) == 1 + 3 + 4
    assert report.spec["plan"]["gates"]["gate_rate"] == 0.9
    assert report.spec["threads"] == torch.get_num_threads()
    monkeypatch.setattr(shim, "train_lm", None)  # nothing is trained again
    assert main([*command, "--device", "cpu"]) == OK
    assert (tmp_path / "out" / "shim-models.csv").is_file()
    folder = next((tmp_path / "cache" / "adapters").iterdir())
    made_models = shim.MadeModels(plan, "another text", {"all-attention": folder})
    with raises("reproduce.other_text"):
        made_models.sums("all-attention")


@pytest.mark.parametrize("weight", ["inf", "2e9"])
def test_a_penalty_that_nothing_can_be_pruned_with_is_refused_before_anything_is_trained(
    tmp_path: Path,
    plan: shim.ShimPlan,
    capsys: pytest.CaptureFixture[str],
    weight: str,
) -> None:
    command = reproduction_command(tmp_path)
    assert main([*command, "--weight", "0.1", "--weight", weight]) == FAILED
    assert "weight is" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()


def test_a_record_in_the_cache_of_another_form_is_refused(
    trained_folder: Path, plan: shim.ShimPlan
) -> None:
    record: Any = read_json(trained_folder / "training.json")
    made_models = shim.MadeModels(plan, "data", {"all-attention": trained_folder})
    assert made_models.record("all-attention") == record
    spoiled_records: list[Any] = [
        {},
        [],
        {**record, "took": 3},
        {**record, "heads": []},
        {**record, "parameters": {"whole": 1}},
        {**record, "pruned": record["options"]},
        {**record, "perplexity": {"test": {"word": "x"}}},
        {**record, "options": [1]},
        {**record, "took": {"seconds": 10**400, "judging": 1}},
    ]
    try:
        for spoiled_record in spoiled_records:
            write_json(trained_folder / "training.json", spoiled_record)
            with raises("reproduce.folder_other_version", trained_folder):
                made_models.record("all-attention")
    finally:
        write_json(trained_folder / "training.json", record)


def test_a_cached_model_is_named_by_the_version_that_wrote_it(
    plan: shim.ShimPlan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = shim.ShimWork(
        plan,
        made_splits(),
        tmp_path,
        device="cpu",
        seed=0,
        show=lambda *_: None,
    )
    folder_of_this_version = work.place_of("x")
    monkeypatch.setattr(shim, "VERSION", shim.VERSION + 1)
    assert work.place_of("x") != folder_of_this_version


@pytest.mark.parametrize("real_plan", [shim.REAL, shim.SMOKE])
@pytest.mark.parametrize("share", [0.1, 0.35, 0.8, 1.0])
def test_an_ordinary_transformer_is_made_as_large_as_a_pruned_model(
    real_plan: shim.ShimPlan, share: float
) -> None:
    model = real_plan.model
    heads_of_last_layer = 0 if share < 1 else model.heads
    heads_of_other_layers = max(1, round(model.heads * share))
    heads_by_layer = [heads_of_other_layers] * (model.layers - 1) + [heads_of_last_layer]
    parameters = shim.layer_parameters(model, heads_by_layer)
    options = shim.as_large(real_plan, parameters)
    options.check()
    assert options.steps == real_plan.as_long
    assert options.heads <= model.heads
    assert shim.layer_parameters(options) == pytest.approx(parameters, rel=0.015)
    if share == 1:
        assert options.heads == model.heads
        assert options.layers == model.layers
