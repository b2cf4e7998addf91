"""What would help: torch.compile, CUDA graphs and more, each switched on for the measurement only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from headlab.core import parallel
from headlab.evaluation import Evaluator, token_budget
from headlab.hooks import ActiveGates, as_gate_tensor
from headlab.methods import method, model_game
from headlab.methods.model_game import ModelGame
from headlab.methods.sampling import plan_of
from headlab.methods.tmab import estimate

from .fast import Cycle, full_passes
from .record import Record
from .setting import Setting, random_gates, timed_call

DTYPE = "bfloat16"
# Rows and tokens of the passes that are captured as CUDA graphs: a click's first batch, and larger ones.
BUCKETS = ((4, 32), (16, 32), (64, 64), (256, 64))


def run(setting: Setting, record: Record) -> None:
    """A model of XLM-R base's size as it is, and with one thing changed at a time."""
    evaluator = setting.random_encoder(DTYPE)
    cycle = Cycle.of_seed_0(evaluator)
    record.measure("as it is", lambda: seconds_of(setting, evaluator, cycle))
    record.measure(
        "a quarter of the tokens a batch",
        lambda: seconds_of(setting, evaluator, cycle, parts=4),
    )
    record.measure("the same in two lanes", lambda: with_two_lanes(setting, evaluator, cycle))
    record.measure("draws a round", lambda: seconds_by_round_size(setting))
    record.measure("CUDA graphs of full passes", lambda: graphs(setting, evaluator))
    record.measure("torch.compile of each layer", lambda: compiled_layer_figures(setting, cycle))
    record.measure("torch.compile of full passes", lambda: compiled_pass_figures(setting))


def seconds_of(
    setting: Setting,
    evaluator: Evaluator,
    cycle: Cycle,
    parts: int = 1,
) -> dict[str, float]:
    """Seconds of a screened cycle, and of full passes over all examples.

    Args:
        setting: The device.
        evaluator: The model and its examples.
        cycle: What is played.
        parts: A batch has this fraction of the tokens that suit the device.
    """
    tokens = token_budget(evaluator.model) // parts
    cycle.play(evaluator, "screened", tokens)

    def play() -> object:
        return cycle.play(evaluator, "screened", tokens)

    repeats = [timed_call(setting.device, play)[0] for _ in range(3)]
    passes = full_passes(setting, evaluator)
    return {"screened cycle, s": median(repeats), "full passes, s": passes["seconds"]}


def with_two_lanes(setting: Setting, evaluator: Evaluator, cycle: Cycle) -> dict[str, float]:
    """The same with two batches at once in threads, so that the card need not wait for Python."""

    @contextmanager
    def lanes(_device: torch.device) -> Iterator[int]:
        yield 2

    with patch.object(parallel, "one_thread", lanes):
        return seconds_of(setting, evaluator, cycle, parts=4)


def seconds_by_round_size(setting: Setting) -> dict[str, float]:
    """Seconds of the first two cycles of the embedded model's scores, by the draws of a round."""
    evaluator = setting.main.evaluator(setting.device, "float32", setting.sizes.speed_examples)
    draws = 2 * len(evaluator.examples)
    settings = {
        "samples": draws,
        "target": 0.01,
        "stop": "width",
    }
    plan = plan_of(method("shapley").resolve(settings))
    seconds = {}
    for size in (64, 128, 256, 512):
        with patch.dict(model_game.ROUND, {torch.device(setting.device).type: size}):
            snapshots = partial(estimate, ModelGame(evaluator), plan, seed=0)
            run_through = partial(exhaust, snapshots)
            seconds[str(size)], _ = timed_call(setting.device, run_through)
    return seconds


def exhaust(snapshots: Callable[[], Iterator[object]]) -> None:
    """Take all snapshots of a run."""
    for _ in snapshots():
        pass


def compiled_layer_figures(setting: Setting, cycle: Cycle) -> dict[str, Any]:
    """The layers compiled one by one, for shapes that vary, with the seconds that compiling took."""
    evaluator = setting.random_encoder(DTYPE)
    for layer in evaluator.model.module.base_model.encoder.layer:
        layer.intermediate.forward = compile_for(setting, layer.intermediate.forward)
        layer.output.forward = compile_for(setting, layer.output.forward)
    seconds, _ = timed_call(setting.device, lambda: cycle.play(evaluator, "screened"))
    return seconds_of(setting, evaluator, cycle) | {"first cycle, s": seconds}


def compiled_pass_figures(setting: Setting) -> dict[str, Any]:
    """The whole model compiled, for full passes alone."""
    evaluator = setting.random_encoder(DTYPE)
    module = evaluator.model.module
    module.forward = compile_for(setting, module.forward)
    seconds, _ = timed_call(setting.device, lambda: full_passes(setting, evaluator))
    return full_passes(setting, evaluator) | {"compiling and three runs, s": seconds}


def compile_for(setting: Setting, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function for varying shapes; on a processor only trace it, as compiling takes minutes."""
    return torch.compile(forward, dynamic=True, backend="inductor" if setting.on_card else "eager")


def graphs(setting: Setting, evaluator: Evaluator) -> dict[str, Any]:
    """Milliseconds of a gated pass for some shapes: launched kernel by kernel, and as a CUDA graph."""
    if not setting.on_card:
        return {"not here": "only a GPU has CUDA graphs"}
    return {
        f"{rows} × {tokens}": graph_figures(setting, evaluator, rows, tokens)
        for rows, tokens in BUCKETS
    }


def graph_figures(
    setting: Setting,
    evaluator: Evaluator,
    rows: int,
    tokens: int,
) -> dict[str, Any]:
    """One shape: the same pass with gates, launched and replayed, and whether the outputs are equal."""
    model = evaluator.model
    generator = torch.Generator(setting.device).manual_seed(0)
    ids = torch.randint(
        5,
        1000,
        (rows, tokens),
        device=setting.device,
        generator=generator,
    )
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    gates = as_gate_tensor(model, random_gates(model, rows))

    def gated_pass() -> torch.Tensor:
        with torch.inference_mode(), model.active(ActiveGates(gates=gates)):
            logits: torch.Tensor = model.module(**inputs).logits
        return logits

    launched_ms = milliseconds(setting, gated_pass)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            gated_pass()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured_logits = gated_pass()
    replayed_ms = milliseconds(setting, graph.replay)
    difference = float((captured_logits - gated_pass()).abs().max())
    return {
        "launched, ms": launched_ms,
        "replayed, ms": replayed_ms,
        "largest difference": difference,
    }


def milliseconds(setting: Setting, call: Callable[[], object]) -> float:
    """Median milliseconds of a call."""
    call()
    seconds = [timed_call(setting.device, call)[0] for _ in range(20)]
    return 1000 * float(np.median(seconds))
