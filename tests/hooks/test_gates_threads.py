"""Gates and threads: blocks that gate every thread, and passes that a block does not gate."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import pickle
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
import transformers
from support.expected_errors import raises
from support.saved_models import save_family
from support.tiny_models import tiny_batch, tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.core import Head, UngatedPassWarning
from headlab.evaluation import Evaluator
from headlab.hooks import Model, attention_of_heads, make_gateable
from headlab.masks import Mask
from headlab.models.checkpoint import Checkpoint

T = TypeVar("T")
# With separate and with shared layers, with both kinds of gates, and with several stacks.
FAMILIES = ("bert", "albert", "xlm", "gpt2", "t5")


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Model:
    return tiny_model(request.param)


@pytest.fixture
def bert() -> Model:
    return tiny_model("bert")


def half_closed(model: Model) -> np.ndarray:
    """Gates that switch every second head off."""
    gates = np.ones((model.grid.layers, model.grid.width))
    gates[:, ::2] = 0
    return gates


def run_pass(model: Model) -> torch.Tensor:
    """The output of one pass."""
    with torch.inference_mode():
        return model.module(**tiny_batch(model.module))[0].clone()


def baseline_and_gated_output(model: Model) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs without gates and under `half_closed`."""
    baseline = run_pass(model)
    with headlab.gated(model, half_closed(model)):
        gated_output = run_pass(model)
    assert not torch.equal(baseline, gated_output)
    return baseline, gated_output


def in_thread(function: Callable[[], T]) -> T:
    """What a function gives in a thread of its own; an error there is raised here."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def run_in_thread(model: Model) -> torch.Tensor:
    """The output of one pass in a thread of its own."""
    return in_thread(lambda: run_pass(model))


def ungated_passes(records: list[warnings.WarningMessage]) -> list[str]:
    """Texts of the warnings about ungated passes."""
    return [
        str(record.message) for record in records if issubclass(record.category, UngatedPassWarning)
    ]


def assert_all_equal(outputs: Iterable[torch.Tensor], want: torch.Tensor) -> None:
    for output in outputs:
        assert torch.equal(output, want)


def test_reported_08_a_block_gates_every_thread(model: Model) -> None:
    baseline, gated_output = baseline_and_gated_output(model)
    with headlab.gated(model, half_closed(model), threads=True):
        with ThreadPoolExecutor(3) as pool:
            outputs_of_pool = list(pool.map(lambda _: run_pass(model), range(12)))
        assert torch.equal(run_pass(model), gated_output)
    assert_all_equal(outputs_of_pool, gated_output)
    assert torch.equal(run_in_thread(model), baseline)
    assert torch.equal(run_pass(model), baseline)


def test_reported_08_a_mask_and_means_reach_every_thread(bert: Model) -> None:
    kept_heads = half_closed(bert).astype(bool).ravel()
    mask = Mask(bert.grid, kept_heads, bert.identity())
    means = torch.ones(
        bert.grid.layers,
        bert.grid.width,
        6,
        dtype=torch.float64,
    )
    with headlab.gated(bert, mask, ablation="mean", means=means):
        masked_output = run_pass(bert)
    with headlab.gated(bert, mask, ablation="mean", means=means, threads=True):
        assert torch.equal(run_in_thread(bert), masked_output)


def test_reported_08_a_row_of_gates_an_example_reaches_every_thread(bert: Model) -> None:
    rows = len(tiny_batch(bert.module)["input_ids"])
    gates = np.ones((rows, bert.grid.layers, bert.grid.width))
    gates[1::2] = half_closed(bert)
    with headlab.gated(bert, gates):
        output_by_row = run_pass(bert)
    with headlab.gated(bert, gates, threads=True):
        assert torch.equal(run_in_thread(bert), output_by_row)


def test_reported_08_a_pass_in_another_thread_warns_once_a_block(model: Model) -> None:
    baseline, _ = baseline_and_gated_output(model)
    with warnings.catch_warnings(record=True) as warning_records:
        warnings.simplefilter("always")
        for _ in range(2):
            with headlab.gated(model, half_closed(model)):
                outputs = [run_in_thread(model) for _ in range(3)]
                assert_all_equal(outputs, baseline)
        assert len(ungated_passes(warning_records)) == 2
        assert all("threads=True" in text for text in ungated_passes(warning_records))
        run_in_thread(model)
    assert len(ungated_passes(warning_records)) == 2


def test_reported_08_a_part_of_the_model_in_another_thread_warns_and_is_gated_too(
    bert: Model,
) -> None:
    inputs = tiny_batch(bert.module)

    def run_body() -> torch.Tensor:
        with torch.inference_mode():
            return bert.module.bert(**inputs).last_hidden_state.clone()

    with headlab.gated(bert, half_closed(bert)):
        gated_states = run_body()
        with pytest.warns(UngatedPassWarning):
            ungated_states = in_thread(run_body)
    assert not torch.equal(gated_states, ungated_states)
    with headlab.gated(bert, half_closed(bert), threads=True):
        assert torch.equal(in_thread(run_body), gated_states)


def test_reported_08_no_warning_without_an_open_block_of_this_model(bert: Model) -> None:
    other_model = tiny_model("bert")
    baseline = run_pass(other_model)
    with (
        headlab.gated(bert, half_closed(bert), threads=True),
        headlab.gated(bert, half_closed(bert)),
    ):
        assert torch.equal(run_in_thread(other_model), baseline)
    run_in_thread(bert)


def test_reported_08_two_users_of_one_model_never_see_each_others_gates(model: Model) -> None:
    _, gated_output = baseline_and_gated_output(model)
    opposite = 1 - half_closed(model)
    with headlab.gated(model, opposite):
        opposite_output = run_pass(model)

    def other_user() -> torch.Tensor:
        with headlab.gated(model, opposite):
            return run_pass(model)

    for threads in (False, True):
        with headlab.gated(model, half_closed(model), threads=threads):
            assert torch.equal(in_thread(other_user), opposite_output)
            assert torch.equal(run_pass(model), gated_output)


@pytest.mark.parametrize("outer_threads", [False, True])
def test_reported_08_nested_blocks_end_in_turn(bert: Model, outer_threads: bool) -> None:
    baseline, gated_output = baseline_and_gated_output(bert)
    opposite = 1 - half_closed(bert)
    with headlab.gated(bert, opposite):
        opposite_output = run_pass(bert)
    with headlab.gated(bert, half_closed(bert), threads=outer_threads):
        with headlab.gated(bert, opposite, threads=True):
            assert torch.equal(run_in_thread(bert), opposite_output)
            assert torch.equal(run_pass(bert), opposite_output)
        assert torch.equal(run_pass(bert), gated_output)
        if outer_threads:
            assert torch.equal(run_in_thread(bert), gated_output)
    assert torch.equal(run_in_thread(bert), baseline)


def test_reported_08_an_exception_ends_the_block_in_every_thread(bert: Model) -> None:
    baseline, _ = baseline_and_gated_output(bert)
    with pytest.raises(ZeroDivisionError), headlab.gated(bert, half_closed(bert), threads=True):
        _ = 1 / 0
    assert torch.equal(run_in_thread(bert), baseline)
    with raises("gate.shape_mismatch"), headlab.gated(bert, np.ones((1, 1)), threads=True):
        pass
    assert torch.equal(run_in_thread(bert), baseline)


def test_reported_08_a_pass_that_fails_leaves_its_thread_as_it_was(bert: Model) -> None:
    baseline, gated_output = baseline_and_gated_output(bert)

    def run_after_failure() -> torch.Tensor:
        with pytest.raises(Exception, match="index out of range"):
            bert.module(input_ids=torch.full((1, 4), 10**6))
        hidden_states = bert.module.bert(**tiny_batch(bert.module)).last_hidden_state
        assert not torch.isnan(hidden_states).any()
        return run_pass(bert)

    with headlab.gated(bert, half_closed(bert), threads=True):
        assert torch.equal(in_thread(run_after_failure), gated_output)
    assert torch.equal(in_thread(run_after_failure), baseline)


def test_reported_08_two_threads_cannot_both_gate_every_thread(bert: Model) -> None:
    _, gated_output = baseline_and_gated_output(bert)

    def run_after_refusal() -> torch.Tensor:
        with (
            raises("gate.threads_taken", "threads=True"),
            headlab.gated(bert, 1 - half_closed(bert), threads=True),
        ):
            pass
        return run_pass(bert)

    with headlab.gated(bert, half_closed(bert), threads=True):
        assert torch.equal(in_thread(run_after_refusal), gated_output)
        assert torch.equal(run_pass(bert), gated_output)
    with headlab.gated(bert, half_closed(bert), threads=True):
        pass


def test_reported_08_a_thread_that_outlives_the_block_is_gated_only_in_it(bert: Model) -> None:
    baseline, gated_output = baseline_and_gated_output(bert)
    with ThreadPoolExecutor(1) as pool:
        output_before = pool.submit(run_pass, bert).result()
        with headlab.gated(bert, half_closed(bert), threads=True):
            output_inside = pool.submit(run_pass, bert).result()
        output_after = pool.submit(run_pass, bert).result()
    assert torch.equal(output_before, baseline)
    assert torch.equal(output_inside, gated_output)
    assert torch.equal(output_after, baseline)


@pytest.mark.parametrize("begins_gated", [False, True])
def test_reported_08_a_pass_is_gated_from_its_beginning_to_its_end_or_not_at_all(
    model: Model, begins_gated: bool
) -> None:
    baseline, gated_output = baseline_and_gated_output(model)
    has_begun = threading.Event()
    may_go_on = threading.Event()

    def wait_in_other_threads(*_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            has_begun.set()
            assert may_go_on.wait(60)

    middle_projection = model.projections[len(model.projections) // 2]
    hook = middle_projection.register_forward_pre_hook(wait_in_other_threads)
    block = headlab.gated(model, half_closed(model), threads=True)
    with ThreadPoolExecutor(1) as pool:
        if begins_gated:
            block.__enter__()
        pass_in_pool = pool.submit(run_pass, model)
        assert has_begun.wait(60)
        if begins_gated:
            block.__exit__(None, None, None)
        else:
            block.__enter__()
        may_go_on.set()
        output = pass_in_pool.result()
    if not begins_gated:
        block.__exit__(None, None, None)
    hook.remove()
    assert torch.equal(output, gated_output if begins_gated else baseline)


def test_reported_08_generate_in_a_streamers_thread_is_gated() -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=97,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=1.0,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    module = transformers.LlamaForCausalLM(config)
    model = make_gateable(
        Checkpoint(
            name="tiny",
            revision="none",
            fingerprint="0",
            module=module,
            tokenizer=tiny_tokenizer(),
        )
    )
    ids = torch.tensor([[5, 9, 13, 21]])
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 12, "do_sample": False}

    def generate() -> str:
        (output_ids,) = module.generate(ids, **options)
        new_ids = output_ids[ids.shape[1] :]
        return model.tokenizer.decode(new_ids, skip_special_tokens=True)

    def generate_with_streamer() -> str:
        streamer = transformers.TextIteratorStreamer(
            model.tokenizer, skip_prompt=True, skip_special_tokens=True
        )
        thread = threading.Thread(
            target=module.generate, args=(ids,), kwargs={**options, "streamer": streamer}
        )
        thread.start()
        text = "".join(streamer)
        thread.join()
        return text

    with headlab.gated(model, half_closed(model)):
        gated_text = generate()
    assert gated_text != generate()
    with headlab.gated(model, half_closed(model), threads=True):
        assert generate_with_streamer().split() == gated_text.split()
    with (
        headlab.gated(model, half_closed(model)),
        warnings.catch_warnings(record=True) as warning_records,
    ):
        warnings.simplefilter("always")
        assert generate_with_streamer().split() == in_thread(generate).split()
    assert len(ungated_passes(warning_records)) == 1


def run_in_loop(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What a coroutine returns, in a thread of its own.

    In the thread of the tests, Playwright keeps a loop running.
    """
    return in_thread(lambda: asyncio.run(main()))


def test_reported_08_to_thread_stays_gated(model: Model) -> None:
    _, gated_output = baseline_and_gated_output(model)

    async def main() -> list[torch.Tensor]:
        with headlab.gated(model, half_closed(model)):
            return [await asyncio.to_thread(run_pass, model), run_pass(model)]

    assert_all_equal(run_in_loop(main), gated_output)


@pytest.mark.parametrize("threads", [False, True])
def test_reported_08_two_passes_at_once_under_one_block_count_their_own_layers(
    model: Model, threads: bool
) -> None:
    gates = np.ones_like(half_closed(model))
    gates[-1] = 0  # only the last layer: one layer mistaken for another would show
    with headlab.gated(model, gates):
        gated_output = run_pass(model)
    both_run = threading.Barrier(2, timeout=60)

    def wait_for_other_pass(*_: object) -> None:
        both_run.wait()

    hooks = [
        layer.register_forward_pre_hook(wait_for_other_pass) for layer in set(model.projections)
    ]

    async def main() -> list[torch.Tensor]:
        with headlab.gated(model, gates, threads=threads):
            passes = [asyncio.to_thread(run_pass, model) for _ in range(2)]
            return await asyncio.gather(*passes)

    outputs_at_once = run_in_loop(main)
    for hook in hooks:
        hook.remove()
    assert_all_equal(outputs_at_once, gated_output)


def test_reported_08_a_context_copied_in_a_block_is_gated_only_until_it_ends(model: Model) -> None:
    baseline, gated_output = baseline_and_gated_output(model)
    opposite = 1 - half_closed(model)
    with headlab.gated(model, opposite):
        opposite_output = run_pass(model)
        with headlab.gated(model, half_closed(model)):
            inner = contextvars.copy_context()
            assert torch.equal(inner.run(run_pass, model), gated_output)
        assert torch.equal(inner.run(run_pass, model), opposite_output)
        assert torch.equal(run_pass(model), opposite_output)
    assert torch.equal(inner.run(run_pass, model), baseline)


def test_reported_08_a_pass_in_a_copied_context_keeps_its_gates_to_its_end(model: Model) -> None:
    baseline, gated_output = baseline_and_gated_output(model)
    has_begun = threading.Event()
    may_go_on = threading.Event()

    def wait_once(*_: object) -> None:
        has_begun.set()
        assert may_go_on.wait(60)

    middle_projection = model.projections[len(model.projections) // 2]
    hook = middle_projection.register_forward_pre_hook(wait_once)
    with ThreadPoolExecutor(1) as pool:
        with headlab.gated(model, half_closed(model)):
            context = contextvars.copy_context()
            pass_in_pool = pool.submit(context.run, run_pass, model)
            assert has_begun.wait(60)
        may_go_on.set()
        assert torch.equal(pass_in_pool.result(), gated_output)
        later_pass = pool.submit(context.run, run_pass, model)
        assert torch.equal(later_pass.result(), baseline)
    hook.remove()


def test_reported_08_tasks_of_one_thread_are_users_of_their_own(bert: Model) -> None:
    baseline, gated_output = baseline_and_gated_output(bert)
    outputs = {}

    async def run_in_block(block_is_open: asyncio.Event, pass_is_done: asyncio.Event) -> None:
        with headlab.gated(bert, half_closed(bert)):
            block_is_open.set()
            await pass_is_done.wait()
            outputs["gated"] = run_pass(bert)

    async def run_outside(block_is_open: asyncio.Event, pass_is_done: asyncio.Event) -> None:
        await block_is_open.wait()
        outputs["not gated"] = run_pass(bert)  # a warning would be an error
        pass_is_done.set()

    async def main() -> None:
        events = asyncio.Event(), asyncio.Event()
        await asyncio.gather(run_in_block(*events), run_outside(*events))

    run_in_loop(main)
    assert torch.equal(outputs["gated"], gated_output)
    assert torch.equal(outputs["not gated"], baseline)


def passes_in_block(model: Model, gates: np.ndarray) -> Iterator[torch.Tensor]:
    """Two passes under gates, one at a time."""
    with headlab.gated(model, gates):
        yield run_pass(model)
        yield run_pass(model)


def test_reported_08_blocks_of_generators_may_end_in_any_order(bert: Model) -> None:
    baseline, gated_output = baseline_and_gated_output(bert)
    first_block = passes_in_block(bert, half_closed(bert))
    second_block = passes_in_block(bert, 1 - half_closed(bert))
    assert torch.equal(next(first_block), gated_output)
    opposite_output = next(second_block)
    first_block.close()
    assert torch.equal(next(second_block), opposite_output)
    second_block.close()
    assert torch.equal(run_pass(bert), baseline)


def test_reported_08_a_generator_that_ends_in_another_thread_leaves_no_gates(bert: Model) -> None:
    baseline, gated_output = baseline_and_gated_output(bert)
    block = passes_in_block(bert, half_closed(bert))
    assert torch.equal(next(block), gated_output)
    in_thread(block.close)
    assert torch.equal(run_pass(bert), baseline)
    assert torch.equal(run_in_thread(bert), baseline)


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("family", ["bert", "albert", "gpt2"])
def test_reported_08_headlabs_own_threads_neither_warn_nor_follow_anothers_gates(
    tmp_path: Path,
    family: str,
    threads: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = headlab.load(save_family(tmp_path / "m", family), device="cpu")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)  # batches side by side

    def predictions() -> list[list[int]]:
        evaluations = headlab.evaluate(model, tiny_task(), size=12)
        return [evaluation.predicted.tolist() for evaluation in evaluations.values()]

    baseline = predictions()
    with headlab.gated(model, half_closed(model), threads=threads):
        in_this_thread = predictions()
        in_another_thread = in_thread(predictions)
    assert in_this_thread == baseline
    assert in_another_thread == baseline


def test_reported_08_attention_weights_of_another_thread_are_its_own(bert: Model) -> None:
    inputs = tiny_batch(bert.module)
    head = Head("encoder", 1, 0)

    def weights() -> torch.Tensor:
        return attention_of_heads(bert, inputs, [head])[head]

    weights_without_block = weights()
    with headlab.gated(bert, half_closed(bert), threads=True):
        assert torch.equal(in_thread(weights), weights_without_block)


def test_reported_08_other_threads_are_not_warned_of_headlabs_own_gates(
    tmp_path: Path,
) -> None:
    bert = headlab.load(save_family(tmp_path / "m", "bert"), device="cpu")
    task = tiny_task()
    evaluator = Evaluator(bert, task, task.languages[0], "dev", 12)
    baseline = run_pass(bert)
    has_begun = False
    outputs: list[torch.Tensor] = []

    def run_another_pass_once(*_: object) -> None:
        nonlocal has_begun
        if not has_begun:
            has_begun = True
            outputs.append(run_in_thread(bert))

    hook = bert.projections[0].register_forward_pre_hook(run_another_pass_once)
    gates = half_closed(bert)[None].repeat(12, 0).astype(bool)
    evaluator.correct(gates, np.arange(12))
    hook.remove()
    (output,) = outputs
    assert torch.equal(output, baseline)


def test_reported_08_threads_is_true_or_false(bert: Model) -> None:
    with (
        raises("argument.wrong_type", "threads", 4),
        headlab.gated(bert, half_closed(bert), threads=4),
    ):
        pass


def test_reported_08_a_copied_model_has_blocks_of_its_own(bert: Model) -> None:
    baseline, _ = baseline_and_gated_output(bert)
    with headlab.gated(bert, half_closed(bert), threads=True):
        model_copy = copy.deepcopy(bert.module)
        owner = pickle.loads(pickle.dumps(bert.owner))  # noqa: S301 - our own bytes
    assert owner.blocks == ()
    with torch.inference_mode():
        assert torch.equal(model_copy(**tiny_batch(model_copy))[0], baseline)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "albert"])
def test_a_copied_model_runs_its_own_layers(family: str) -> None:
    model = tiny_model(family)
    baseline, _ = baseline_and_gated_output(model)
    model_copy = copy.deepcopy(model.module)
    with torch.no_grad():
        for name, weight in model_copy.named_parameters():
            if "layer" in name or ".h." in name:
                weight.zero_()
    with torch.inference_mode():
        assert not torch.allclose(model_copy(**tiny_batch(model_copy))[0], baseline)
        with headlab.gated(model, half_closed(model)):
            output_in_block = model_copy(**tiny_batch(model_copy))[0]
        assert torch.equal(model_copy(**tiny_batch(model_copy))[0], output_in_block)
    assert torch.equal(baseline_and_gated_output(model)[0], baseline)
