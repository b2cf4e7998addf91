"""Measuring what a mask saves: counts, then timed passes of the untouched, the masked and the shrunk model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headlab.core import Floats, HeadlabError, Ints, plain_object
from headlab.core.parallel import timed_pass
from headlab.evaluation import encode, pad, read
from headlab.hooks import Active, Model, as_gates, plain
from headlab.masks import Mask
from headlab.models import home, versions
from headlab.models.allattention import RELATIVE
from headlab.models.allattention.modelling import AllAttention, AllAttentionForCausalLM
from headlab.shrink import Shrunk, shrink_model
from headlab.shrink.model import parameters_of, require_family
from headlab.studies.savings import (
    Costs,
    LayerCost,
    Left,
    Ratio,
    Savings,
    Speed,
    median_interval,
    ratio_of,
)
from headlab.tasks import Example, Task
from headlab.tasks import task as task_of

# Counting a model's parameters and multiply-accumulates, and each head's share of them, from its modules.

FUSED = "aten._scaled_dot_product_flash_attention_for_cpu"  # the CPU's; torch's table lacks it
PROBES = (2, 4, 6)  # tokens: three points determine a polynomial of degree two
Tensors = Mapping[str, torch.Tensor]


def costs_of(model: Model) -> Costs:
    """A model's costs. Runs three short made-up texts through it."""
    parameters, macs = parameters_of(model.module), polynomial(model.module)
    try:
        return Costs(parameters, macs, layers_of(model))
    except HeadlabError as error:
        return Costs(parameters, macs, (), str(error))


def macs_of(module: nn.Module, inputs: Tensors) -> int:
    """Multiply-accumulates of the matrix products of one forward pass, attention and padding included.

    A causal model's attention is counted in full, as a CPU computes it.
    """
    counter = _Counter()
    with torch.no_grad(), counter:
        module(**inputs)
    return counter.flops // 2


class _Counter(TorchDispatchMode):
    """Sums torch's own formulas over all operations; torch's counter would hook every module."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.flops += int(formula(*args, **kwargs, out_val=found))
        elif str(func._overloadpacket) == FUSED:
            self.flops += (
                4 * args[0].numel() * args[1].shape[2]
            )  # query times key, and weights times value
        return found


def polynomial(module: PreTrainedModel) -> tuple[int, int, int]:
    """Multiply-accumulates of one text of n tokens, as coefficients of 1, n and n squared; a target has n too."""
    step, (a, b, c) = PROBES[0], (macs_of(module, made_up(module, n)) for n in PROBES)
    square = (c - 2 * b + a) // (2 * step**2)
    line = (b - a) // step - 3 * step * square
    return a - step * line - step**2 * square, line, square


def made_up(module: PreTrainedModel, tokens: int) -> dict[str, torch.Tensor]:
    """One made-up text of `tokens` tokens, as keyword arguments of the model."""
    config, vocabulary = (
        module.config,
        int(getattr(module.config.get_text_config(), "vocab_size", 100)),
    )
    ids = (torch.arange(tokens, device=home(module)) * 7 + 5)[None] % vocabulary
    end = config.eos_token_id
    if config.is_encoder_decoder and isinstance(end, int):
        ids[:, -1] = end  # some classifiers read the state at the end of the sentence
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return inputs | ({"decoder_input_ids": ids.flip(1)} if config.is_encoder_decoder else {})


def layers_of(model: Model) -> tuple[LayerCost, ...]:
    """What the heads of each layer cost, by row of the gate array.

    Raises HeadlabError if heads cannot be removed from the weights of this family, if layers share their weights, or
    if query, key and value have neither one projection each nor one for all three.
    """
    if isinstance(model.module, AllAttentionForCausalLM):
        return _all_attention(model.module)
    require_family(model)
    names = {module: name for name, module in model.module.named_modules()}
    heads = [n for stack in model.grid.stacks for n in stack.heads]
    if len(set(model.projections)) < len(model.projections):
        raise HeadlabError(
            f"the layers of {model.name} share their weights, so a head cannot be removed from one layer alone",
            code="costs.weights_shared",
        )
    out, first = [], 0
    for projection, count in zip(model.projections, heads, strict=True):
        out.append(_layer(model, names[projection], projection, first, count))
        first += count
    return tuple(out)


def _layer(model: Model, name: str, projection: nn.Module, first: int, heads: int) -> LayerCost:
    if not heads:
        return LayerCost(first, 0, 1, 0, 0, 0)
    wide, outside = sides(projection)
    size, beside = wide // heads, _beside(model.module, name, projection)
    narrow = {sides(module)[1] for module in beside} - {wide, 3 * wide}
    groups = narrow.pop() // size if narrow else heads
    if narrow or not beside or not groups or heads % groups or wide % heads:
        raise HeadlabError(
            f"cannot determine what a head of {model.name} costs: the projections beside {name} are neither one each "
            "for query, key and value nor one for all three",
            code="costs.head_unknown",
        )
    together, parameters, weights = heads // groups, 0, 0
    for module in beside:
        rows = size if (out := sides(module)[1]) < wide else out // wide * together * size
        inputs = sides(module)[0]
        weights += rows * inputs
        parameters += rows * (inputs + (module.bias is not None))
    own = together * size * outside  # the output projection's bias stays
    return LayerCost(first, heads, together, parameters + own, weights + own, 2 * together * size)


def _all_attention(module: AllAttentionForCausalLM) -> tuple[LayerCost, ...]:
    """Costs in headlab's own family: persistent vectors go with each head, distances and norm with the layer's last."""
    config, out, first = module.config, list[LayerCost](), 0
    size, persistent, relative = config.head_size, config.persistent, config.positions == RELATIVE
    own, pair = 4 * size * config.hidden_size + 2 * persistent * size, (3 if relative else 2) * size
    for layer in module.model.layers:
        if isinstance(layer.attention, AllAttention):
            rest = config.max_position_embeddings * size if relative else 0
            rest += 2 * config.hidden_size if config.pre_norm else 0
            out.append(LayerCost(first, layer.attention.heads, 1, own, own, pair, rest))
            first += layer.attention.heads
    return tuple(out)


def _beside(module: nn.Module, name: str, projection: nn.Module) -> list[nn.Linear | Conv1D]:
    """The projections to queries, keys and values beside an output projection, from its nearest ancestor with any."""
    wide = sides(projection)[0]
    while name:
        name = name.rpartition(".")[0]
        found = [
            m
            for m in module.get_submodule(name).modules()
            if isinstance(m, nn.Linear | Conv1D) and m is not projection
        ]
        fitting = [m for m in found if sides(m)[1] in (wide, 3 * wide) or not wide % sides(m)[1]]
        if fitting:
            return fitting
    return []


def sides(module: nn.Module) -> tuple[int, int]:
    """Input and output size of a projection. Raises HeadlabError for any other module."""
    if isinstance(module, Conv1D):
        return module.weight.shape[0], module.weight.shape[1]
    if isinstance(module, nn.Linear):
        return module.weight.shape[1], module.weight.shape[0]
    raise HeadlabError(
        f"{type(module).__name__} is not a projection that headlab can count",
        code="costs.projection_unknown",
    )


# How long models take, compared: all of them in every round, so that what slows the machine slows all of them.

Inputs = Sequence[Mapping[str, torch.Tensor]]
Pass = Callable[[], object]
ROUNDS = 15
LEAST = 6  # rounds that a 95 % interval of a median needs


def latency_ratio(
    before: nn.Module, after: nn.Module, inputs: Inputs, *, repeats: int = ROUNDS, seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratio:  # fmt: skip
    """Time of `after` over that of `before` on the same batches; below 1 means that `after` is faster.

    inputs: batches on the modules' device; a pass calls module(**batch) on each in turn.  repeats: rounds, 6 or
    more; each times both models, in an order drawn with `seed` and reversed in every other round.  Raises
    HeadlabError for fewer rounds or no batch.
    """
    if not inputs:
        raise HeadlabError("there is no batch to time; give one or more", code="latency.no_batch")
    device = next(iter(inputs[0].values())).device
    passes = [lambda m=m: [m(**batch) for batch in inputs] for m in (before, after)]
    (seconds,) = timed([passes], device, rounds=repeats, seed=seed, clock=clock)
    return ratio_of(seconds[:, 0], seconds[:, 1])


def timed(
    groups: Sequence[Sequence[Pass]], device: torch.device, *, rounds: int, seed: int,
    clock: Callable[[], float] = time.perf_counter, tick: Callable[[], None] = lambda: None,
    told: Callable[[int], None] = lambda turn: None,
) -> list[Floats]:  # fmt: skip
    """Seconds of every pass of each group in every round, one float [round, pass] per group.

    Every round runs all groups; the passes of one group, which are compared with each other, run consecutively.
    Each timed pass follows an untimed one of the same kind, so that none pays for the state another left behind.
    tick: called between passes; may raise to stop.  told: called before each round with the number of rounds done.
    Raises HeadlabError for too few rounds.
    """
    if rounds < LEAST:
        raise HeadlabError(
            f"asked for {rounds} rounds; an interval of their median needs {LEAST} or more",
            code="latency.rounds_too_few",
        )
    seconds = [np.zeros((rounds, len(passes))) for passes in groups]
    within = [orders(rounds, len(passes), seed) for passes in groups]
    with torch.inference_mode():
        for turn, order in enumerate(orders(rounds, len(groups), seed)):
            told(turn)
            for group in order.tolist():
                for number in within[group][turn].tolist():
                    tick()
                    seconds[group][turn, number] = timed_pass(groups[group][number], device, clock)
    return seconds


def orders(rounds: int, passes: int, seed: int) -> list[Ints]:
    """The order of passes in each round, int [pass]: a random order, then its reverse, and so on."""
    rng, out = np.random.default_rng(seed), list[Ints]()
    while len(out) < rounds:
        drawn = rng.permutation(passes)
        out += [drawn, drawn[::-1]]
    return out[:rounds]


# Batches of real examples to run a model on: of a task, or sentences of the embedded task for any text model.

SENTENCES = "intents"
POOL = 512  # examples of each language that batches are drawn from
Batches = list[dict[str, torch.Tensor]]


def batches_of(model: Model, task: Task | None, *, rows: int, count: int, seed: int) -> Batches:
    """`count` batches of `rows` dev examples, each in a randomly drawn language and padded to its longest example.

    task: None uses the embedded task's sentences as plain texts, whatever the model was made for.  Raises
    HeadlabError if the model does not fit the task.
    """
    rng, source = np.random.default_rng(seed), _source(model, task)
    batches = []
    for _ in range(count):
        language = str(rng.choice(source.languages))
        pool = source.examples(language, "dev", POOL)
        drawn = [pool[i] for i in rng.choice(len(pool), rows, replace=len(pool) < rows)]
        batches.append(_batch(model, task, drawn, language))
    return batches


def different_batches(
    model: Model, task: Task | None, *, rows: int, size: int, seed: int
) -> Batches:
    """`size` distinct dev examples, or as many as there are, in batches of up to `rows`.

    Each batch is in a randomly drawn language, from its first `POOL` examples.  task, errors: as in `batches_of`.
    """
    rng, source = np.random.default_rng(seed), _source(model, task)
    languages, pools, met = list(source.languages), dict[str, list[Example]](), set[Any]()
    batches, left = list[dict[str, torch.Tensor]](), size
    while languages and left:
        language = str(rng.choice(languages))
        if language not in pools:
            pool = source.examples(language, "dev", POOL)
            pools[language] = [pool[i] for i in rng.permutation(len(pool))]
        drawn = _unmet(pools[language], min(rows, left), met)
        if not pools[language]:
            languages.remove(language)
        if drawn:
            batches.append(_batch(model, task, drawn, language))
            left -= len(drawn)
    return batches


def _unmet(pool: list[Example], count: int, met: set[Any]) -> list[Example]:
    """Up to `count` examples popped off the end of a pool, skipping texts met before; updates `met`."""
    drawn: list[Example] = []
    while pool and len(drawn) < count:
        example = pool.pop()
        said = (example.text, example.pair, example.words, example.target, example.choices)
        if said not in met:
            met.add(said)
            drawn.append(example)
    return drawn


def _source(model: Model, task: Task | None) -> Task:
    if task is None and model.tokenizer is None:
        raise HeadlabError(
            f"{model.name} has no tokenizer, so texts cannot be given to it; save a tokenizer into its folder",
            code="tokenizer.missing",
        )
    return task_of(SENTENCES) if task is None else task


def _batch(
    model: Model, task: Task | None, drawn: list[Example], language: str
) -> dict[str, torch.Tensor]:
    whole = np.arange(len(drawn))
    if task is not None:
        return plain(read(model, task, drawn, language).tensors(whole))
    inputs = pad(model, encode(model, [example.text for example in drawn]), whole)
    if not model.module.config.is_encoder_decoder:
        return inputs
    # a sequence-to-sequence model also gets them as its target, for one pass over a given target
    return inputs | {
        "decoder_input_ids": inputs["input_ids"],
        "decoder_attention_mask": inputs["attention_mask"],
    }


def tokens_of(batches: Sequence[dict[str, torch.Tensor]]) -> int:
    """Tokens per row, padding included: the median over batches."""
    return int(np.median([batch["input_ids"].shape[1] for batch in batches]))


# Measuring what a mask saves: counts, then timed passes of the untouched, the masked and the shrunk model.

BATCH_SIZES = (1, 8, 32)
ROWS = 32  # examples per timed pass: as many whole batches as fit, at least one
OnRound = Callable[[int, int, str], None]


def measure(
    untouched: Model,
    mask: Mask,
    *,
    task: Task | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    rounds: int = ROUNDS,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
    told: OnRound = lambda done, total, note: None,
) -> Savings:
    """Parameters and multiply-accumulates of a model untouched, masked and shrunk, and how long each takes.

    task: provides the examples; None uses the embedded task's sentences.  rounds: of passes of all three models, 6
    or more.  tick: called between passes; may raise to stop.  told: called with rounds done, rounds in all and a
    note.  If the heads cannot be removed from the weights, the record says why, and there is no shrunk model to
    time.  Raises HeadlabError for another model's mask, a batch size below 1 or a task that does not fit.
    """
    mask.check(untouched.grid, untouched.fingerprint)
    if not batch_sizes or min(batch_sizes) < 1:
        raise HeadlabError(
            f"batch sizes are {list(batch_sizes)}; give one or more, each 1 or more",
            code="worth.batch_sizes_invalid",
        )
    shrunk, refused = _shrunk(untouched, mask)
    module = None if shrunk is None else shrunk.module
    samples = {
        n: batches_of(untouched, task, rows=n, count=max(1, ROWS // n), seed=seed)
        for n in dict.fromkeys(batch_sizes)
    }
    tokens = tokens_of(samples[min(samples)])
    seconds = timed(
        [_passes(untouched, mask, module, batches) for batches in samples.values()], untouched.device, rounds=rounds,
        seed=seed, tick=tick, told=lambda turn: told(turn, rounds, f"round {turn + 1}"),
    )  # fmt: skip
    told(rounds, rounds, "done")
    device = _device(untouched.device)
    speeds = tuple(
        _speed(device, *sample, each) for sample, each in zip(samples.items(), seconds, strict=True)
    )
    spec = plain_object({
        "model": untouched.recorded(), "mask": mask.digest, "task": None if task is None else task.name,
        "languages": [] if task is None else list(task.languages),
        "sentences": SENTENCES if task is None else None, "batch_sizes": list(samples), "rounds": rounds,
        "seed": seed, "threads": torch.get_num_threads(), "versions": versions(),
    })  # fmt: skip
    whole = _counted(untouched.module, untouched, tokens)
    left = None if module is None else _counted(module, untouched, tokens)
    still = 0 if shrunk is None else len(shrunk.masked)
    return Savings(
        untouched.grid.size, len(mask.removed), whole, left, speeds, refused, still, spec
    )


def _shrunk(model: Model, mask: Mask) -> tuple[Shrunk | None, str]:
    """The model without the mask's heads, or None and why there is none."""
    try:
        return shrink_model(model, mask), ""
    except HeadlabError as error:
        return None, str(error).rstrip(".")


def _counted(module: nn.Module, model: Model, tokens: int) -> Left:
    return Left(parameters_of(module), macs_of(module, made_up(model.module, tokens)), tokens)


def _passes(model: Model, mask: Mask, shrunk: nn.Module | None, batches: Batches) -> Sequence[Pass]:
    """Passes of the untouched, the masked and, if there is one, the shrunk model over the batches."""
    gates = as_gates(model, mask)

    def run_under(active: Active) -> None:
        with model.active(active):
            for batch in batches:
                model.module(**batch)

    def untouched() -> None:
        run_under(Active())

    def masked() -> None:
        run_under(Active(gates=gates))

    def without() -> None:
        assert shrunk is not None
        for batch in batches:
            shrunk(**batch)

    return [untouched, masked] + ([] if shrunk is None else [without])


def _speed(device: str, rows: int, batches: Batches, seconds: Floats) -> Speed:
    """The timings at one batch size. seconds: float [round, pass]."""
    ratios = [ratio_of(seconds[:, 0], seconds[:, at]) for at in range(1, seconds.shape[1])]
    each = 1000 * seconds[:, 0] / len(batches)
    between = median_interval(each)
    shrunk = ratios[1] if len(ratios) > 1 else None
    return Speed(
        device, rows, tokens_of(batches), float(np.median(each)), ratios[0], shrunk, between
    )


def _device(device: torch.device) -> str:
    """A device's name for display: the GPU's, or the device type with its number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{device.type} ({threads} thread{'s' * (threads != 1)})"
