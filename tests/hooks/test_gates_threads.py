"""Gates and threads: blocks that gate every thread, and passes in other threads that a block does not gate."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import pickle
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
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
# separate and shared layers, both kinds of gates, several stacks
FAMILIES = (
    "bert",
    "albert",
    "xlm",
    "gpt2",
    "t5",
)


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Model:
    return tiny_model(request.param)


@pytest.fixture
def bert() -> Model:
    return tiny_model("bert")


def closed(model: Model) -> np.ndarray:
    """Every second head removed."""
    gates = np.ones((model.grid.layers, model.grid.width))
    gates[:, ::2] = 0
    return gates


def answer(model: Model) -> torch.Tensor:
    """The output of one pass."""
    with torch.inference_mode():
        return model.module(**tiny_batch(model.module))[0].clone()


def answers(model: Model) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs without gates and under `closed`."""
    untouched = answer(model)
    with headlab.gated(model, closed(model)):
        gated = answer(model)
    assert not torch.equal(untouched, gated)
    return untouched, gated


def in_thread(run: Callable[[], torch.Tensor]) -> torch.Tensor:
    """What a function gives in a thread of its own; an error there is one here."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


def ungated_passes(seen: list[warnings.WarningMessage]) -> list[str]:
    """Texts of the warnings about ungated passes."""
    return [
        str(warning.message) for warning in seen if issubclass(warning.category, UngatedPassWarning)
    ]


def test_reported_08_a_block_gates_every_thread(model: Model) -> None:
    untouched, gated = answers(model)
    with headlab.gated(model, closed(model), threads=True):
        with ThreadPoolExecutor(3) as pool:
            in_pool = list(pool.map(lambda _: answer(model), range(12)))
        assert torch.equal(answer(model), gated)
    assert all(torch.equal(found, gated) for found in in_pool)
    assert torch.equal(in_thread(lambda: answer(model)), untouched)
    assert torch.equal(answer(model), untouched)


def test_reported_08_a_mask_and_means_reach_every_thread(bert: Model) -> None:
    mask = Mask(bert.grid, closed(bert).astype(bool).ravel(), bert.identity())
    means = torch.ones(bert.grid.layers, bert.grid.width, 6, dtype=torch.float64)
    with headlab.gated(bert, mask, ablation="mean", means=means):
        expected = answer(bert)
    with headlab.gated(bert, mask, ablation="mean", means=means, threads=True):
        assert torch.equal(in_thread(lambda: answer(bert)), expected)


def test_reported_08_a_row_of_gates_an_example_reaches_every_thread(bert: Model) -> None:
    rows = len(tiny_batch(bert.module)["input_ids"])
    gates = np.stack(
        [closed(bert) if row % 2 else np.ones_like(closed(bert)) for row in range(rows)]
    )
    with headlab.gated(bert, gates):
        expected = answer(bert)
    with headlab.gated(bert, gates, threads=True):
        assert torch.equal(in_thread(lambda: answer(bert)), expected)


def test_reported_08_a_pass_in_another_thread_warns_once_a_block(model: Model) -> None:
    untouched, _ = answers(model)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            with headlab.gated(model, closed(model)):
                found = [in_thread(lambda: answer(model)) for _ in range(3)]
                assert all(torch.equal(output, untouched) for output in found)
        assert len(ungated_passes(seen)) == 2
        assert all("threads=True" in text for text in ungated_passes(seen))
        in_thread(lambda: answer(model))
    assert len(ungated_passes(seen)) == 2


def test_reported_08_a_part_of_the_model_in_another_thread_warns_and_is_gated_too(
    bert: Model,
) -> None:
    inputs = tiny_batch(bert.module)

    def body() -> torch.Tensor:
        with torch.inference_mode():
            return bert.module.bert(**inputs).last_hidden_state.clone()

    with headlab.gated(bert, closed(bert)):
        gated = body()
        with pytest.warns(UngatedPassWarning):
            untouched = in_thread(body)
    assert not torch.equal(gated, untouched)
    with headlab.gated(bert, closed(bert), threads=True):
        assert torch.equal(in_thread(body), gated)


def test_reported_08_no_warning_without_an_open_block_of_this_model(bert: Model) -> None:
    other = tiny_model("bert")
    untouched = answer(other)
    with headlab.gated(bert, closed(bert), threads=True), headlab.gated(bert, closed(bert)):
        assert torch.equal(in_thread(lambda: answer(other)), untouched)
    in_thread(lambda: answer(bert))


def test_reported_08_two_users_of_one_model_never_see_each_others_gates(model: Model) -> None:
    _, gated = answers(model)
    opposite = 1 - closed(model)
    with headlab.gated(model, opposite):
        expected = answer(model)

    def other_user() -> torch.Tensor:
        with headlab.gated(model, opposite):
            return answer(model)

    for threads in (False, True):
        with headlab.gated(model, closed(model), threads=threads):
            assert torch.equal(in_thread(other_user), expected)
            assert torch.equal(answer(model), gated)


@pytest.mark.parametrize("outer_threads", [False, True])
def test_reported_08_nested_blocks_end_in_turn(bert: Model, outer_threads: bool) -> None:
    untouched, gated = answers(bert)
    opposite = 1 - closed(bert)
    with headlab.gated(bert, opposite):
        expected = answer(bert)
    with headlab.gated(bert, closed(bert), threads=outer_threads):
        with headlab.gated(bert, opposite, threads=True):
            assert torch.equal(in_thread(lambda: answer(bert)), expected)
            assert torch.equal(answer(bert), expected)
        assert torch.equal(answer(bert), gated)
        if outer_threads:
            assert torch.equal(in_thread(lambda: answer(bert)), gated)
    assert torch.equal(in_thread(lambda: answer(bert)), untouched)


def test_reported_08_an_exception_ends_the_block_in_every_thread(bert: Model) -> None:
    untouched, _ = answers(bert)
    with pytest.raises(ZeroDivisionError), headlab.gated(bert, closed(bert), threads=True):
        _ = 1 / 0
    assert torch.equal(in_thread(lambda: answer(bert)), untouched)
    with raises("gate.shape_mismatch"), headlab.gated(bert, np.ones((1, 1)), threads=True):
        pass
    assert torch.equal(in_thread(lambda: answer(bert)), untouched)


def test_reported_08_a_pass_that_fails_leaves_its_thread_as_it_was(bert: Model) -> None:
    untouched, gated = answers(bert)

    def run() -> torch.Tensor:
        with pytest.raises(Exception, match="index out of range"):
            bert.module(input_ids=torch.full((1, 4), 10**6))
        first = bert.module.bert(**tiny_batch(bert.module)).last_hidden_state
        assert not torch.isnan(first).any()
        return answer(bert)

    with ThreadPoolExecutor(1) as pool, headlab.gated(bert, closed(bert), threads=True):
        assert torch.equal(pool.submit(run).result(), gated)
    assert torch.equal(in_thread(run), untouched)


def test_reported_08_two_threads_cannot_both_gate_every_thread(bert: Model) -> None:
    _, gated = answers(bert)

    def second() -> torch.Tensor:
        with (
            raises("gate.threads_taken", "threads=True"),
            headlab.gated(bert, 1 - closed(bert), threads=True),
        ):
            pass
        return answer(bert)

    with headlab.gated(bert, closed(bert), threads=True):
        assert torch.equal(in_thread(second), gated)
        assert torch.equal(answer(bert), gated)
    with headlab.gated(bert, closed(bert), threads=True):
        pass


def test_reported_08_a_thread_that_outlives_the_block_is_gated_only_in_it(bert: Model) -> None:
    untouched, gated = answers(bert)
    with ThreadPoolExecutor(1) as pool:
        before = pool.submit(lambda: answer(bert)).result()
        with headlab.gated(bert, closed(bert), threads=True):
            inside = pool.submit(lambda: answer(bert)).result()
        after = pool.submit(lambda: answer(bert)).result()
    assert torch.equal(before, untouched)
    assert torch.equal(inside, gated)
    assert torch.equal(after, untouched)


@pytest.mark.parametrize("begins_gated", [False, True])
def test_reported_08_a_pass_is_gated_from_its_beginning_to_its_end_or_not_at_all(
    model: Model, begins_gated: bool
) -> None:
    untouched, gated = answers(model)
    begun = threading.Event()
    go_on = threading.Event()

    def wait_once(*_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            assert go_on.wait(60)

    middle = model.projections[len(model.projections) // 2].register_forward_pre_hook(wait_once)
    block = headlab.gated(model, closed(model), threads=True)
    with ThreadPoolExecutor(1) as pool:
        if begins_gated:
            block.__enter__()
        running = pool.submit(lambda: answer(model))
        assert begun.wait(60)
        if begins_gated:
            block.__exit__(None, None, None)
        else:
            block.__enter__()
        go_on.set()
        found = running.result()
    if not begins_gated:
        block.__exit__(None, None, None)
    middle.remove()
    assert torch.equal(found, gated if begins_gated else untouched)


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
    model = make_gateable(Checkpoint("tiny", "none", "0", module, tiny_tokenizer()))
    ids = torch.tensor([[5, 9, 13, 21]])
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 12, "do_sample": False}

    def written() -> str:
        return model.tokenizer.decode(
            module.generate(ids, **options)[0, ids.shape[1] :], skip_special_tokens=True
        )

    def streamed() -> str:
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

    with headlab.gated(model, closed(model)):
        gated = written()
    assert gated != written()
    with headlab.gated(model, closed(model), threads=True):
        assert streamed().split() == gated.split()
    with headlab.gated(model, closed(model)), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert streamed().split() == written_elsewhere(written).split()
    assert len(ungated_passes(seen)) == 1


def written_elsewhere(written: Callable[[], str]) -> str:
    """What is written outside of this thread's blocks."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(written).result()


def run_in_loop(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What a coroutine returns, in a thread of its own: playwright keeps a loop running in that of the tests."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(main())).result()


def test_reported_08_to_thread_stays_gated(model: Model) -> None:
    _, gated = answers(model)

    async def main() -> list[torch.Tensor]:
        with headlab.gated(model, closed(model)):
            return [await asyncio.to_thread(answer, model), answer(model)]

    assert all(torch.equal(found, gated) for found in run_in_loop(main))


@pytest.mark.parametrize("threads", [False, True])
def test_reported_08_two_passes_at_once_under_one_block_count_their_own_layers(
    model: Model, threads: bool
) -> None:
    upper = np.ones_like(closed(model))
    upper[-1] = 0  # a layer taken for another would show
    with headlab.gated(model, upper):
        gated = answer(model)
    both_run = threading.Barrier(2, timeout=60)

    def wait_for_the_other(*_: object) -> None:
        both_run.wait()

    hooks = [
        layer.register_forward_pre_hook(wait_for_the_other) for layer in set(model.projections)
    ]

    async def main() -> list[torch.Tensor]:
        with headlab.gated(model, upper, threads=threads):
            return await asyncio.gather(*(asyncio.to_thread(answer, model) for _ in range(2)))

    outputs_at_once = run_in_loop(main)
    for hook in hooks:
        hook.remove()
    assert all(torch.equal(output, gated) for output in outputs_at_once)


def test_reported_08_a_context_copied_in_a_block_is_gated_only_until_it_ends(model: Model) -> None:
    untouched, gated = answers(model)
    opposite = 1 - closed(model)
    with headlab.gated(model, opposite):
        expected = answer(model)
        with headlab.gated(model, closed(model)):
            inner = contextvars.copy_context()
            assert torch.equal(inner.run(answer, model), gated)
        assert torch.equal(inner.run(answer, model), expected)
        assert torch.equal(answer(model), expected)
    assert torch.equal(inner.run(answer, model), untouched)


def test_reported_08_a_pass_in_a_copied_context_keeps_its_gates_to_its_end(model: Model) -> None:
    untouched, gated = answers(model)
    begun = threading.Event()
    go_on = threading.Event()

    def wait_once(*_: object) -> None:
        begun.set()
        assert go_on.wait(60)

    middle = model.projections[len(model.projections) // 2].register_forward_pre_hook(wait_once)
    with ThreadPoolExecutor(1) as pool:
        with headlab.gated(model, closed(model)):
            context = contextvars.copy_context()
            running = pool.submit(context.run, answer, model)
            assert begun.wait(60)
        go_on.set()
        assert torch.equal(running.result(), gated)
        assert torch.equal(pool.submit(context.run, answer, model).result(), untouched)
    middle.remove()


def test_reported_08_tasks_of_one_thread_are_users_of_their_own(bert: Model) -> None:
    untouched, gated = answers(bert)
    found = {}

    async def gate(opened: asyncio.Event, read: asyncio.Event) -> None:
        with headlab.gated(bert, closed(bert)):
            opened.set()
            await read.wait()
            found["gated"] = answer(bert)

    async def look(opened: asyncio.Event, read: asyncio.Event) -> None:
        await opened.wait()
        found["untouched"] = answer(bert)  # a warning would be an error
        read.set()

    async def main() -> None:
        opened = asyncio.Event()
        read = asyncio.Event()
        await asyncio.gather(gate(opened, read), look(opened, read))

    run_in_loop(main)
    assert torch.equal(found["gated"], gated)
    assert torch.equal(found["untouched"], untouched)


def outputs(model: Model, gates: np.ndarray) -> Iterator[torch.Tensor]:
    """Two passes under gates, one at a time."""
    with headlab.gated(model, gates):
        yield answer(model)
        yield answer(model)


def test_reported_08_blocks_of_generators_may_end_in_any_order(bert: Model) -> None:
    untouched, gated = answers(bert)
    first = outputs(bert, closed(bert))
    second = outputs(bert, 1 - closed(bert))
    assert torch.equal(next(first), gated)
    expected = next(second)
    first.close()
    assert torch.equal(next(second), expected)
    second.close()
    assert torch.equal(answer(bert), untouched)


def test_reported_08_a_generator_that_ends_in_another_thread_leaves_no_gates(bert: Model) -> None:
    untouched, gated = answers(bert)
    generator = outputs(bert, closed(bert))
    assert torch.equal(next(generator), gated)
    in_thread(lambda: generator.close() or torch.zeros(1))
    assert torch.equal(answer(bert), untouched)
    assert torch.equal(in_thread(lambda: answer(bert)), untouched)


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("family", ["bert", "albert", "gpt2"])
def test_reported_08_headlabs_own_threads_neither_warn_nor_follow_anothers_gates(
    tmp_path: Path, family: str, threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = headlab.load(save_family(tmp_path / "m", family), device="cpu")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)  # batches side by side
    expected = headlab.evaluate(model, tiny_task(), size=12)
    with headlab.gated(model, closed(model), threads=threads):
        here = headlab.evaluate(model, tiny_task(), size=12)
        with ThreadPoolExecutor(1) as pool:
            elsewhere = pool.submit(headlab.evaluate, model, tiny_task(), size=12).result()
    for found in (here, elsewhere):
        assert [row.predicted.tolist() for row in found.values()] == [
            row.predicted.tolist() for row in expected.values()
        ]


def test_reported_08_attention_weights_of_another_thread_are_its_own(bert: Model) -> None:
    inputs = tiny_batch(bert.module)
    head = Head("encoder", 1, 0)
    expected = attention_of_heads(bert, inputs, [head])[head]
    with headlab.gated(bert, closed(bert), threads=True):
        assert torch.equal(
            in_thread(lambda: attention_of_heads(bert, inputs, [head])[head]), expected
        )


def test_reported_08_headlabs_own_gates_are_no_block_that_others_are_warned_of(
    tmp_path: Path,
) -> None:
    bert = headlab.load(save_family(tmp_path / "m", "bert"), device="cpu")
    task = tiny_task()
    evaluator = Evaluator(bert, task, task.languages[0], "dev", 12)
    untouched = answer(bert)
    found: list[torch.Tensor] = []

    def look(*_: object) -> None:
        if not found:
            found.append(torch.empty(0))
            found.append(in_thread(lambda: answer(bert)))

    hook = bert.projections[0].register_forward_pre_hook(look)
    evaluator.correct(closed(bert)[None].repeat(12, 0).astype(bool), np.arange(12))
    hook.remove()
    assert torch.equal(found[1], untouched)


def test_reported_08_threads_is_true_or_false(bert: Model) -> None:
    with raises("argument.wrong_type", "threads", 4), headlab.gated(bert, closed(bert), threads=4):
        pass


def test_reported_08_a_copied_model_has_blocks_of_its_own(bert: Model) -> None:
    untouched, _ = answers(bert)
    with headlab.gated(bert, closed(bert), threads=True):
        copied = copy.deepcopy(bert.module)
        owner = pickle.loads(pickle.dumps(bert.owner))  # noqa: S301 - our own bytes
    assert owner.blocks == ()
    with torch.inference_mode():
        assert torch.equal(copied(**tiny_batch(copied))[0], untouched)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "albert"])
def test_a_copied_model_runs_its_own_layers(family: str) -> None:
    model = tiny_model(family)
    untouched, _ = answers(model)
    copied = copy.deepcopy(model.module)
    with torch.no_grad():
        for name, weight in copied.named_parameters():
            if "layer" in name or ".h." in name:
                weight.zero_()
    with torch.inference_mode():
        assert not torch.allclose(copied(**tiny_batch(copied))[0], untouched)
        with headlab.gated(model, closed(model)):
            alone = copied(**tiny_batch(copied))[0]
        assert torch.equal(copied(**tiny_batch(copied))[0], alone)
    assert torch.equal(answers(model)[0], untouched)
