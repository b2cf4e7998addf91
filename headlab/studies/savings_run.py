"""Measuring what a mask saves: counts, then timed passes of three models, or of four.

They are the untouched, the masked and the shrunk one, and that with a smaller vocabulary.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headlab.core import (
    HEADS,
    Floats,
    HeadlabError,
    Ints,
    Progress,
    ReportProgress,
    as_plain_object,
    shown_progress,
    timed_pass,
)
from headlab.evaluation import encode, pad, read_inputs
from headlab.hooks import ActiveGates, Model, as_gate_tensor, plain_inputs, with_players
from headlab.masks import Mask, full_mask
from headlab.models import input_device, software_versions
from headlab.models.allattention import RELATIVE, AllAttention, AllAttentionForCausalLM
from headlab.shrink import (
    ID_INPUTS,
    Shrunk,
    VocabularyCut,
    bytes_in,
    cut_embeddings,
    dtype_to_write,
    embedding_rows,
    has_embedding_rows,
    parameters_of,
    read_pieces,
    renumbered_batch,
    require_family,
    shrink_model,
    shrink_players,
    silence_model,
    tensors_by_token,
)
from headlab.studies.player_costs_run import player_costs
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
    ratio_of,
)
from headlab.tasks import Example, Task
from headlab.tasks import task as task_of

# Counting a model's parameters and multiply-accumulates, and each head's share of them, from its
# modules.

FUSED_ATTENTION = (
    "aten._scaled_dot_product_flash_attention_for_cpu"  # the CPU's; torch's table lacks it
)
PROBE_LENGTHS = (2, 4, 6)  # tokens: three points determine a polynomial of degree two
Tensors = Mapping[str, torch.Tensor]


def costs_of(model: Model) -> Costs:
    """A model's costs, and its players'. Runs three short made-up texts through it."""
    if model.player_set is not None:
        return player_costs(model, costs_of(with_players(model, HEADS)))
    parameters = parameters_of(model.module)
    macs = macs_polynomial(model.module)
    vocabulary = vocabulary_cost_of(model.module)
    try:
        return Costs(parameters, macs, layers_of(model), vocabulary=vocabulary)
    except HeadlabError as error:
        return Costs(parameters, macs, (), str(error), vocabulary)


def vocabulary_cost_of(module: PreTrainedModel) -> VocabularyCost | None:
    """What each piece of a model's vocabulary costs; None for a model without a row for each.

    It has a row of the embeddings and, where these do not serve as output layer too, a row of that
    and an entry of its bias. CANINE has none: it hashes characters.
    """
    if not has_embedding_rows(module):
        return None
    pieces = embedding_rows(module)
    parameters = sum(
        tensor.numel() // pieces
        for tensor in tensors_by_token(module, pieces)
        if isinstance(tensor, nn.Parameter)
    )
    output_layer = module.get_output_embeddings()
    has_output = isinstance(output_layer, nn.Linear) and len(output_layer.weight) == pieces
    return VocabularyCost(pieces, parameters, output_layer.in_features if has_output else 0)


def macs_of(module: nn.Module, inputs: Tensors) -> int:
    """Multiply-accumulates of the matrix products of one forward pass.

    Attention and padding are included.

    A causal model's attention is counted in full, as a CPU computes it.
    """
    counter = _MacCounter()
    with torch.no_grad(), counter:
        module(**inputs)
    return counter.flops // 2


class _MacCounter(TorchDispatchMode):
    """Sums torch's own formulas over all operations; torch's counter would hook every module."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.flops += int(formula(*args, **kwargs, out_val=result))
        elif str(func._overloadpacket) == FUSED_ATTENTION:
            # query times key, and weights times value
            self.flops += 4 * args[0].numel() * args[1].shape[2]
        return result


def macs_polynomial(module: PreTrainedModel) -> tuple[int, int, int]:
    """Multiply-accumulates of one text of n tokens, as coefficients of 1, n and n squared.

    The target of a sequence-to-sequence model has n tokens too.
    """
    step, *_ = PROBE_LENGTHS  # the first length, and the distance from one to the next
    first, second, third = (macs_of(module, made_up_inputs(module, n)) for n in PROBE_LENGTHS)
    square = (third - 2 * second + first) // (2 * step**2)
    linear = (second - first) // step - 3 * step * square
    constant = first - step * linear - step**2 * square
    return constant, linear, square


def made_up_inputs(module: PreTrainedModel, tokens: int) -> dict[str, torch.Tensor]:
    """One made-up text of `tokens` tokens, as keyword arguments of the model."""
    config = module.config
    vocabulary = int(getattr(config.get_text_config(), "vocab_size", 100))
    ids = (torch.arange(tokens, device=input_device(module)) * 7 + 5)[None] % vocabulary
    end = config.eos_token_id
    if config.is_encoder_decoder and isinstance(end, int):
        ids[:, -1] = end  # some classifiers read the state at the end of the sentence
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids.flip(1)
    return inputs


def layers_of(model: Model) -> tuple[LayerCost, ...]:
    """What the heads of each layer cost, by row of the gate array.

    Raises:
        HeadlabError: Heads cannot be removed from the weights of this family, layers share their
            weights, or query, key and value have neither one projection each nor one for all three.
    """
    if isinstance(model.module, AllAttentionForCausalLM):
        return _all_attention_costs(model.module)
    require_family(model)
    module_names = {module: name for name, module in model.module.named_modules()}
    head_counts = [head_count for stack in model.grid.stacks for head_count in stack.heads]
    if len(set(model.projections)) < len(model.projections):
        raise HeadlabError(
            f"the layers of {model.name} share their weights, so a head cannot be removed from "
            "one layer alone",
            code="costs.weights_shared",
        )
    layer_costs = []
    first_head = 0
    for projection, heads in zip(model.projections, head_counts, strict=True):
        name = module_names[projection]
        layer_costs.append(_layer_cost(model, name, projection, first_head, heads))
        first_head += heads
    return tuple(layer_costs)


def _layer_cost(
    model: Model, name: str, projection: nn.Module, first_head: int, heads: int
) -> LayerCost:
    """What the heads of one layer cost.

    Args:
        model: The model.
        name: Path of the output projection.
        projection: The output projection, which takes the heads' outputs.
        first_head: Flat index of the layer's first head.
        heads: Number of heads.
    """
    if not heads:
        return LayerCost(first_head, 0, 1, 0, 0, 0)
    width, output_width = projection_sizes(projection)
    head_size = width // heads
    input_projections = _input_projections(model.module, name, projection)
    input_widths = {projection_sizes(module)[1] for module in input_projections}
    narrow_widths = input_widths - {width, 3 * width}  # of keys and values that queries share
    group_count = narrow_widths.pop() // head_size if narrow_widths else heads
    has_even_groups = group_count and not heads % group_count and not width % heads
    if narrow_widths or not input_projections or not has_even_groups:
        raise HeadlabError(
            f"cannot determine what a head of {model.name} costs: the projections beside {name} "
            "are neither one each for query, key and value nor one for all three",
            code="costs.head_unknown",
        )
    group_size = heads // group_count
    parameters = 0
    weights = 0
    for module in input_projections:
        inputs, outputs = projection_sizes(module)
        rows = head_size
        if outputs >= width:
            rows = outputs // width * group_size * head_size
        weights += rows * inputs
        parameters += rows * (inputs + (module.bias is not None))
    output_weights = group_size * head_size * output_width  # the output projection's bias stays
    return LayerCost(
        first_head=first_head,
        heads=heads,
        group_size=group_size,
        parameters=parameters + output_weights,
        macs_token=weights + output_weights,
        macs_pair=2 * group_size * head_size,
    )


def _all_attention_costs(module: AllAttentionForCausalLM) -> tuple[LayerCost, ...]:
    """Costs in headlab's own family.

    Persistent vectors are removed with each head; distances and norm with the layer's last head.
    """
    config = module.config
    head_size = config.head_size
    is_relative = config.positions == RELATIVE
    head_weights = 4 * head_size * config.hidden_size + 2 * config.persistent * head_size
    macs_pair = (3 if is_relative else 2) * head_size
    rest = 0
    if is_relative:
        rest += config.max_position_embeddings * head_size
    if config.pre_norm:
        rest += 2 * config.hidden_size
    layer_costs = []
    first_head = 0
    for layer in module.model.layers:
        if isinstance(layer.attention, AllAttention):
            layer_cost = LayerCost(
                first_head=first_head,
                heads=layer.attention.heads,
                group_size=1,
                parameters=head_weights,
                macs_token=head_weights,
                macs_pair=macs_pair,
                rest=rest,
            )
            layer_costs.append(layer_cost)
            first_head += layer.attention.heads
    return tuple(layer_costs)


def _input_projections(
    module: nn.Module, name: str, projection: nn.Module
) -> list[nn.Linear | Conv1D]:
    """The projections to queries, keys and values beside an output projection.

    They are those of its nearest ancestor that has any.

    Args:
        module: The model.
        name: Path of the output projection.
        projection: The output projection.
    """
    width, _ = projection_sizes(projection)
    while name:
        name = name.rpartition(".")[0]
        input_projections = []
        for candidate in module.get_submodule(name).modules():
            if candidate is projection or not isinstance(candidate, nn.Linear | Conv1D):
                continue
            _, outputs = projection_sizes(candidate)
            if outputs in (width, 3 * width) or not width % outputs:
                input_projections.append(candidate)
        if input_projections:
            return input_projections
    return []


def projection_sizes(module: nn.Module) -> tuple[int, int]:
    """Input and output size of a projection. Raises HeadlabError for any other module."""
    if isinstance(module, Conv1D):
        return module.weight.shape[0], module.weight.shape[1]
    if isinstance(module, nn.Linear):
        return module.weight.shape[1], module.weight.shape[0]
    raise HeadlabError(
        f"{type(module).__name__} is not a projection that headlab can count",
        code="costs.projection_unknown",
    )


# How long models take, compared: all of them in every round, so that what slows the machine slows
# all of them.

Inputs = Sequence[Mapping[str, torch.Tensor]]
Pass = Callable[[], object]
ROUNDS = 15
MIN_ROUNDS = 6  # rounds that a 95 % interval of a median needs


def latency_ratio(
    before: nn.Module,
    after: nn.Module,
    inputs: Inputs,
    *,
    inputs_after: Inputs | None = None,
    repeats: int = ROUNDS,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    tick: Callable[[], None] = lambda: None,
) -> Ratio:
    """Time of `after` over that of `before` on the same batches.

    Below 1 means that `after` is faster.

    Args:
        before: A model.
        after: Another.
        inputs: Batches on the modules' device; a pass calls module(**batch) on each in turn.
        inputs_after: The same for `after`, where its tokens have other numbers; None where not.
        repeats: Rounds, 6 or more; each times both models, in an order drawn with `seed` and
            reversed in every other round.
        seed: Of the orders.
        clock: The time in seconds.
        tick: Called between passes; may raise to stop.

    Raises:
        HeadlabError: There are too few rounds, or no batch.
    """
    if not inputs:
        raise HeadlabError("there is no batch to time; give one or more", code="latency.no_batch")
    device = next(iter(inputs[0].values())).device
    inputs_of_passes = (inputs, inputs if inputs_after is None else inputs_after)
    passes = [
        lambda m=m, batches=batches: [m(**batch) for batch in batches]
        for m, batches in zip((before, after), inputs_of_passes, strict=True)
    ]
    (seconds,) = seconds_of_passes(
        [passes], device, rounds=repeats, seed=seed, clock=clock, tick=tick
    )
    return ratio_of(seconds[:, 0], seconds[:, 1])


def seconds_of_passes(
    groups: Sequence[Sequence[Pass]],
    device: torch.device,
    *,
    rounds: int,
    seed: int,
    clock: Callable[[], float] = time.perf_counter,
    tick: Callable[[], None] = lambda: None,
    on_round: Callable[[int], None] = lambda rounds_done: None,
) -> list[Floats]:
    """Seconds of every pass of each group in every round, one float [round, pass] per group.

    Every round runs all groups; the passes of one group, which are compared with each other, run
    consecutively. Each timed pass follows an untimed one of the same kind, so that none pays for
    the state another left behind.

    Args:
        groups: Passes that are compared with each other.
        device: That they run on.
        rounds: 6 or more.
        seed: Of the orders.
        clock: The time in seconds.
        tick: Called between passes; may raise to stop.
        on_round: Called before each round with the number of rounds done.

    Raises:
        HeadlabError: There are too few rounds.
    """
    if rounds < MIN_ROUNDS:
        raise HeadlabError(
            f"asked for {rounds} rounds; an interval of their median needs {MIN_ROUNDS} or more",
            code="latency.rounds_too_few",
        )
    seconds = [np.zeros((rounds, len(passes))) for passes in groups]
    orders_within_groups = [pass_orders(rounds, len(passes), seed) for passes in groups]
    for round_number, group_order in enumerate(pass_orders(rounds, len(groups), seed)):
        on_round(round_number)
        for group in group_order.tolist():
            for pass_index in orders_within_groups[group][round_number].tolist():
                tick()  # outside of inference mode: a model that is loaded in it has no gradients
                run_pass = groups[group][pass_index]
                with torch.inference_mode():
                    seconds[group][round_number, pass_index] = timed_pass(run_pass, device, clock)
    return seconds


def pass_orders(rounds: int, passes: int, seed: int) -> list[Ints]:
    """The order of passes in each round, int [pass].

    A random order, then its reverse, and so on.
    """
    rng = np.random.default_rng(seed)
    orders_by_round: list[Ints] = []
    while len(orders_by_round) < rounds:
        order = rng.permutation(passes)
        orders_by_round += [order, order[::-1]]
    return orders_by_round[:rounds]


# Batches of real examples to run a model on: of a task, or sentences of the embedded task for any
# text model.

SENTENCES_TASK = "intents"
POOL_SIZE = 512  # examples of each language that batches are drawn from
Batches = list[dict[str, torch.Tensor]]


def batches_of(
    model: Model,
    task: Task | None,
    *,
    rows: int,
    count: int,
    seed: int,
    sentences: Task | None = None,
) -> Batches:
    """Batches of dev examples, each in a randomly drawn language and padded to its longest example.

    Args:
        model: That they are for.
        task: Of the examples; None uses sentences as plain texts, whatever the model was made for.
        rows: Examples of each batch.
        count: Number of batches.
        seed: Of the draws.
        sentences: Whose texts the sentences are; None for the embedded task's.

    Raises:
        HeadlabError: The model does not fit the task.
    """
    rng = np.random.default_rng(seed)
    source = _example_task(model, task or sentences)
    batches = []
    for _ in range(count):
        language = str(rng.choice(source.languages))
        pool = source.examples(language, "dev", POOL_SIZE)
        examples = [pool[i] for i in rng.choice(len(pool), rows, replace=len(pool) < rows)]
        batches.append(_batch(model, task, examples, language))
    return batches


def different_batches(
    model: Model,
    task: Task | None,
    *,
    rows: int,
    size: int,
    seed: int,
    sentences: Task | None = None,
) -> Batches:
    """`size` distinct dev examples, or as many as there are, in batches of up to `rows`.

    Each batch is in a randomly drawn language, from its first `POOL_SIZE` examples. Other
    arguments and errors are as in `batches_of`.
    """
    rng = np.random.default_rng(seed)
    source = _example_task(model, task or sentences)
    languages = list(source.languages)
    pools: dict[str, list[Example]] = {}
    texts_met: set[Any] = set()
    batches: Batches = []
    remaining = size
    while languages and remaining:
        language = str(rng.choice(languages))
        if language not in pools:
            pool = source.examples(language, "dev", POOL_SIZE)
            pools[language] = [pool[i] for i in rng.permutation(len(pool))]
        examples = _pop_unmet(pools[language], min(rows, remaining), texts_met)
        if not pools[language]:
            languages.remove(language)
        if examples:
            batches.append(_batch(model, task, examples, language))
            remaining -= len(examples)
    return batches


def first_batches(
    model: Model, task: Task, *, rows: int, size: int
) -> tuple[Batches, dict[str, int]]:
    """The first dev examples of every language, equally many of each as far as there are.

    Args:
        model: That they are for.
        task: Of the examples.
        rows: Examples of a batch, at most.
        size: Examples in all; at least one of every language.

    Returns:
        The batches, and how many examples there are of each language.

    Raises:
        HeadlabError: The model does not fit the task.
    """
    size_of_language = max(1, size // len(task.languages))
    batches: Batches = []
    count_by_language: dict[str, int] = {}
    for language in task.languages:
        examples = list(task.examples(language, "dev", size_of_language))
        count_by_language[language] = len(examples)
        for start in range(0, len(examples), rows):
            batches.append(_batch(model, task, examples[start : start + rows], language))
    return batches, count_by_language


def _pop_unmet(pool: list[Example], count: int, texts_met: set[Any]) -> list[Example]:
    """Up to `count` examples popped off the end of a pool, skipping texts met before.

    Args:
        pool: Shortened by the examples, and by those skipped.
        count: At most so many.
        texts_met: The texts of the examples are added.
    """
    examples: list[Example] = []
    while pool and len(examples) < count:
        example = pool.pop()
        text = (example.text, example.pair, example.words, example.target, example.choices)
        if text not in texts_met:
            texts_met.add(text)
            examples.append(example)
    return examples


def _example_task(model: Model, task: Task | None) -> Task:
    """The task that examples are drawn from; the embedded one if none is given."""
    if task is None and model.tokenizer is None:
        raise HeadlabError(
            f"{model.name} has no tokenizer, so texts cannot be given to it; save a tokenizer "
            "into its folder",
            code="tokenizer.missing",
        )
    if task is None:
        return task_of(SENTENCES_TASK)
    return task


def _batch(
    model: Model, task: Task | None, examples: list[Example], language: str
) -> dict[str, torch.Tensor]:
    """Inputs of the model for some examples in one language."""
    all_rows = np.arange(len(examples))
    if task is not None:
        return plain_inputs(read_inputs(model, task, examples, language).tensors(all_rows))
    inputs = pad(model, encode(model, [example.text for example in examples]), all_rows)
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


BATCH_SIZES = (1, 8, 32)
ROWS_A_PASS = 32  # examples per timed pass: as many whole batches as fit, at least one
OnRound = Callable[[int, int, str], None]


def measure(
    untouched: Model,
    mask: Mask,
    *,
    task: Task | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    rounds: int = ROUNDS,
    examples: int = ROWS_A_PASS,
    seed: int = 0,
    cut: VocabularyCut | None = None,
    sentences: Task | None = None,
    tick: Callable[[], None] = lambda: None,
    on_round: OnRound | None = None,
    progress: bool | None = None,
) -> Savings:
    """Parameters, multiply-accumulates and time of a model untouched, masked and shrunk.

    If the heads cannot be removed from the weights, the record says why, and there is no shrunk
    model to time. With a cut the shrunk model is measured with its vocabulary cut, too.

    Args:
        untouched: The model with all heads on.
        mask: Of this model.
        task: Provides the examples; None uses the embedded task's sentences.
        batch_sizes: Examples of a batch, 1 or more each.
        rounds: Of passes of all models, 6 or more.
        examples: That a timed pass covers, as whole batches; one batch at least.
        seed: Of the examples and the orders of passes.
        cut: Which pieces of the vocabulary stay; None for all.
        sentences: Whose texts the sentences are; None for all of the embedded task's.
        tick: Called between passes; may raise to stop.
        on_round: Called with rounds done, rounds in all and a note.
        progress: Whether a bar shows the progress; None for one in a notebook and on a terminal,
            unless `on_round` is given.

    Raises:
        HeadlabError: The mask is another model's, a batch size is below 1, the task does not fit,
            or the model's vocabulary cannot be cut.
    """
    mask.check(untouched.grid, untouched.fingerprint)
    if not batch_sizes or min(batch_sizes) < 1:
        raise HeadlabError(
            f"batch sizes are {list(batch_sizes)}; give one or more, each 1 or more",
            code="worth.batch_sizes_invalid",
        )
    shrunk, refusal = _shrunk_or_refusal(untouched, mask)
    module = None if shrunk is None else shrunk.module
    cut_module = None if cut is None else _cut_module(untouched, module, cut)
    batches_by_size: dict[int, Batches] = {}
    for batch_size in dict.fromkeys(batch_sizes):
        count = max(1, examples // batch_size)
        batches_by_size[batch_size] = batches_of(
            untouched, task, rows=batch_size, count=count, seed=seed, sentences=sentences
        )
    tokens = tokens_of(batches_by_size[min(batches_by_size)])
    groups = []
    for batches in batches_by_size.values():
        passes = [*_gated_passes(untouched, mask, batches)]
        if module is not None:
            passes.append(partial(_run, module, batches))
        if cut_module is not None and cut is not None:
            passes.append(partial(_run, cut_module, _readable_batches(batches, cut)))
        groups.append(passes)
    with shown_progress("passes", progress, _step_callback(on_round)) as report:
        seconds = seconds_of_passes(
            groups,
            untouched.device,
            rounds=rounds,
            seed=seed,
            tick=tick,
            on_round=lambda done: report(Progress(done, rounds, f"round {done + 1}")),
        )
        report(Progress(rounds, rounds, "done"))
    device = _device_name(untouched.device)
    speeds = [
        _speed(device, batch_size, batches, seconds_at_size, has_shrunk=module is not None)
        for (batch_size, batches), seconds_at_size in zip(
            batches_by_size.items(), seconds, strict=True
        )
    ]
    timed_task = task or sentences
    spec = as_plain_object(
        {
            "model": untouched.spec_identity(),
            "mask": mask.digest,
            **({} if untouched.players.are_heads else {"players": str(untouched.players)}),
            "task": None if task is None else task.name,
            "languages": [] if timed_task is None else list(timed_task.languages),
            "sentences": SENTENCES_TASK if task is None else None,
            "batch_sizes": list(batches_by_size),
            "rounds": rounds,
            "examples_a_pass": examples,
            "seed": seed,
            "threads": torch.get_num_threads(),
            "versions": software_versions(),
        }
    )
    return Savings(
        heads=untouched.grid.size,
        removed_heads=len(mask.removed),
        baseline=_counted_cost(untouched.module, tokens),
        shrunk=None if module is None else _counted_cost(module, tokens),
        speeds=tuple(speeds),
        refusal=refusal,
        still_masked=0 if shrunk is None else len(shrunk.masked_heads),
        spec=spec,
        bytes_a_parameter=bytes_in(1, dtype_to_write(untouched)),
        vocabulary=_vocabulary_share(untouched, _example_task(untouched, timed_task)),
        cut=None
        if cut is None or cut_module is None
        else CutModel(
            languages=cut.languages,
            pieces=len(cut.kept_ids),
            vocabulary_parameters=_vocabulary_parameters(cut_module),
            cost=_counted_cost(cut_module, tokens),
        ),
    )


def _step_callback(on_round: OnRound | None) -> ReportProgress | None:
    """A callback for progress records that passes them on in parts."""
    if on_round is None:
        return None
    return lambda step: on_round(step.done, step.total, step.note)


def _vocabulary_parameters(module: PreTrainedModel) -> int:
    """Parameters of all pieces of a model's vocabulary."""
    cost = vocabulary_cost_of(module)
    return 0 if cost is None else cost.all_parameters


def _cut_module(
    model: Model, shrunk: PreTrainedModel | None, cut: VocabularyCut
) -> PreTrainedModel:
    """A model of its own with fewer pieces.

    Args:
        model: The untouched one.
        shrunk: Without the mask's heads or other players; None where they cannot be removed from
            the weights, and all stay.
        cut: Which pieces stay.

    Raises:
        HeadlabError: The model keeps weights by token in places that headlab does not know, or
            cannot be copied.
    """
    if shrunk is None:
        with_heads = with_players(model, HEADS)
        module = silence_model(with_heads, full_mask(with_heads.grid)).module
    else:
        module = copy.deepcopy(shrunk)
    cut_embeddings(module, cut)
    return module


def _vocabulary_share(model: Model, task: Task) -> VocabularyShare | None:
    """How much of a model is its vocabulary, and whether it can be cut to some languages of a task.

    None for a model without a row of embeddings for each token.

    Args:
        model: The model.
        task: With the languages that one can choose from.
    """
    cost = vocabulary_cost_of(model.module)
    if cost is None:
        return None
    can_be_cut = len(task.with_all_languages().languages) > 1 and _has_known_pieces(model)
    return VocabularyShare(cost.pieces, cost.all_parameters, can_be_cut)


def _has_known_pieces(model: Model) -> bool:
    """Whether a model's tokenizer is of a kind whose vocabulary can be cut."""
    try:
        read_pieces(model)
    except HeadlabError:
        return False
    return True


def _shrunk_or_refusal(model: Model, mask: Mask) -> tuple[Shrunk | None, str]:
    """The model without the mask's heads, or None and why there is none."""
    try:
        if model.player_set is not None:
            return shrink_players(model, mask), ""
        return shrink_model(model, mask), ""
    except HeadlabError as error:
        return None, str(error).rstrip(".")


def _counted_cost(module: PreTrainedModel, tokens: int) -> ModelCost:
    """What a model costs on one text.

    Args:
        module: The model, maybe shrunk.
        tokens: Length of the text.
    """
    inputs = made_up_inputs(module, tokens)
    return ModelCost(parameters_of(module), macs_of(module, inputs), tokens)


def _gated_passes(model: Model, mask: Mask, batches: Batches) -> tuple[Pass, Pass]:
    """Passes of the untouched and the masked model over the batches."""
    gates = as_gate_tensor(model, mask)

    def run_under(active: ActiveGates) -> None:
        with model.active(active):
            for batch in batches:
                model.module(**batch)

    def run_baseline() -> None:
        run_under(ActiveGates())

    def run_masked() -> None:
        run_under(ActiveGates(gates=gates))

    return run_baseline, run_masked


def _run(module: nn.Module, batches: Batches) -> None:
    """A pass of a model of its own over the batches."""
    for batch in batches:
        module(**batch)


def _readable_batches(batches: Batches, cut: VocabularyCut) -> Batches:
    """The batches for a model with fewer pieces.

    The first piece stands for those that are gone: a pass takes as long whichever it reads.
    """
    renumbered_batches: Batches = []
    for batch in batches:
        new_batch = renumbered_batch(batch, cut)
        for name in ID_INPUTS:
            if name in new_batch:
                new_batch[name] = new_batch[name].clamp(min=0)
        renumbered_batches.append(new_batch)
    return renumbered_batches


def _speed(
    device: str, rows: int, batches: Batches, seconds: Floats, *, has_shrunk: bool
) -> MeasuredSpeed:
    """The timings at one batch size.

    Args:
        device: Its name.
        rows: Batch size.
        batches: That each pass went over.
        seconds: float [round, pass]: of the baseline, the masked and, where there are such, the
            shrunk model and the one with fewer pieces.
        has_shrunk: Whether there is a shrunk model.
    """
    baseline, masked, *others = seconds.T
    ratios = [ratio_of(baseline, other) for other in others]
    shrunk_ratio = ratios.pop(0) if has_shrunk else None
    milliseconds = 1000 * baseline / len(batches)
    return MeasuredSpeed(
        device=device,
        rows=rows,
        tokens=tokens_of(batches),
        milliseconds=float(np.median(milliseconds)),
        masked_ratio=ratio_of(baseline, masked),
        shrunk_ratio=shrunk_ratio,
        milliseconds_interval=median_interval(milliseconds),
        cut_ratio=ratios.pop(0) if ratios else None,
    )


def _device_name(device: torch.device) -> str:
    """A device's name for display: the GPU's, or the device type with its number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{device.type} ({threads} thread{'s' * (threads != 1)})"
