"""Training a language model from scratch on a text.

Its steps, its evaluation, and the folder it is written to.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict, cast

import numpy as np
import torch
from torch import nn
from torch.nn import Parameter
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headlab.core import (
    Floats,
    HeadlabError,
    Ints,
    JsonLike,
    JsonObject,
    JsonRecord,
    content_key,
    read_json,
    timed_pass,
)
from headlab.models import building_alone, checkpoint_beside
from headlab.models.allattention import (
    AllAttentionConfig,
    AllAttentionForCausalLM,
    parameter_counts,
)
from headlab.training.lm_perplexity import (
    PerplexityRatio,
    passages,
    perplexity,
    perplexity_ratio,
    token_nats,
)
from headlab.training.lm_text import Corpus, Lines, data_hash, encode, make_tokenizer, step_windows
from headlab.training.options import TRANSFORMER, LmOptions, LmStep, Windows
from headlab.training.output import (
    LIBRARIES,
    TAIL,
    TrainingOutput,
    check_out,
    versions_of,
    whole_output,
    write_folder,
)
from headlab.training.steps import (
    State,
    StateSaver,
    Steps,
    Watch,
    fits_in_memory,
    own_randomness,
    retry_with_fewer_rows,
    torch_seed,
    trained_parameters,
)

# The training steps of a language model, from the current state to the last.

CHECKPOINT_STEPS = 50
SMALLER = "train a model of less width, fewer layers or a smaller vocabulary"


class LmSteps(Steps[LmStep]):
    """Training steps of a language model on windows of text.

    part: their name in progress records.
    """

    options: Windows
    part = "training"
    smaller = SMALLER

    def __init__(
        self, model: PreTrainedModel, corpus: Corpus, options: Windows, state: State
    ) -> None:
        super().__init__(model, options, state)
        self.model = model
        self.corpus = corpus

    def batch_at(self, step: int) -> Ints:
        """Starts of the step's windows."""
        return step_windows(self.corpus.predicted_tokens, self.options, step)

    def gradient(self, step: int, batch: Ints, rows: int) -> float:
        """Gradient of `objective`; see `Steps`."""
        total_loss = 0.0
        for start in range(0, len(batch), rows):
            starts = batch[start : start + rows]
            share = len(starts) / len(batch)
            positions = starts[:, None] + np.arange(self.options.block + 1)
            ids = torch.as_tensor(self.corpus.ids[positions], device=self.device)
            loss, penalty = self.objective(step, ids[:, :-1], ids[:, 1:])
            ((loss + penalty) * share).backward()
            total_loss += loss.item() * share
        return total_loss

    def objective(
        self, step: int, ids: torch.Tensor, follow: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | float]:
        """Mean loss of some windows, nats per token, and the penalty added to it."""
        return self.loss(ids, follow), 0.0

    def loss(self, ids: torch.Tensor, follow: torch.Tensor) -> torch.Tensor:
        """Mean nats of the next tokens, `follow`; both int [window, token]."""
        return cross_entropy(self.model(ids).logits.flatten(0, 1), follow.flatten())

    def parameters_to_clip(self) -> Sequence[Parameter]:
        """The model's weights."""
        return list(self.model.parameters())

    def step_record(self, step: int, rows: int, saved_steps: int) -> LmStep:
        """See `Steps`."""
        loss = self.state.losses[-1]
        seconds = self.state.seconds
        return LmStep(
            step + 1, self.options.steps, loss, seconds, saved_steps, rows, self.part, self.open()
        )

    def open(self) -> int | None:
        """Number of open gates, None if there are no gates."""
        return None


def optimizer_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """AdamW's groups: matrices with weight decay.

    Norms, biases and vectors of positions and heads without.
    """
    groups: tuple[list[Parameter], list[Parameter]] = ([], [])
    for name, p in trained_parameters(model).items():
        groups[not (name.endswith("weight") and p.dim() > 1)].append(p)
    return [
        {"params": part, "weight_decay": decay}
        for part, decay in zip(groups, (weight_decay, 0.0), strict=True)
    ]


def new_state(model: nn.Module, weight_decay: float) -> State:
    """All parameters in name order, and an AdamW over them.

    Its learning rates are set at each step.
    """
    return State(trained_parameters(model), AdamW(optimizer_groups(model, weight_decay), lr=1e-3))


# Evaluation on held-out text; sums by passage are stored so that other models can be paired with
# this one.

FILE = "perplexity.json"
MEASURED_SPLITS = ("valid", "test")
Sums = Mapping[str, Floats]  # by split, float [passage, 3]


class Judge:
    """Evaluates models on the held-out splits of a text. seconds: time taken so far."""

    def __init__(self, texts: Mapping[str, Corpus], block: int, watch: Watch[LmStep]) -> None:
        self.texts = texts
        self.block = block
        self.watch = watch
        self.seconds = 0.0

    def __call__(self, model: PreTrainedModel) -> dict[str, Floats]:
        """Sums over passages of each split: nats, words, tokens."""
        started_at = time.perf_counter()
        nats = {
            split: token_nats(model, self.texts[split], self.block, self.watch.tick)
            for split in MEASURED_SPLITS
        }
        self.seconds += time.perf_counter() - started_at
        return {
            split: passages(self.texts[split], split_nats) for split, split_nats in nats.items()
        }


def perplexities(sums: Sums) -> JsonObject:
    """Perplexities with their intervals by split, ready for JSON."""
    return {split: perplexity(part)._asdict() for split, part in sums.items()}


def sums_record(sums: Sums, data: str, block: int) -> JsonObject:
    """The contents of perplexity.json: the sums, and what they were computed on."""
    return {
        "data": data,
        "block": block,
        "columns": ["nats", "words", "tokens"],
        "passages": {split: part.tolist() for split, part in sums.items()},
    }


class StoredSums(TypedDict):
    """The contents of perplexity.json: text, window length, and sums.

    Sums are of the rows of each split.
    """

    data: str
    block: int
    passages: Mapping[str, list[list[float]]]


def read_sums(folder: Path, data: str, block: int) -> dict[str, Floats] | None:
    """Sums stored in a model's folder, else None.

    They must be of this text with this window length.
    """
    if not (folder / FILE).is_file():
        return None
    value = cast("StoredSums", read_json(folder / FILE))
    try:
        if (value["data"], value["block"]) != (data, block):
            return None
        sums = {
            split: np.array(value["passages"][split], dtype=np.float64) for split in MEASURED_SPLITS
        }
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise HeadlabError(
            f"{folder / FILE} is not what a training writes ({error}); delete it",
            code="lm.sums_unreadable",
        ) from error
    if not all(
        part.ndim == 2 and part.shape[1] == 3 and np.isfinite(part).all() for part in sums.values()
    ):
        raise HeadlabError(
            f"{folder / FILE} does not hold three numbers a passage; delete it",
            code="lm.sums_invalid",
        )
    return sums


def perplexity_ratios(sums_before: Sums, sums_after: Sums) -> dict[str, PerplexityRatio]:
    """Ratios of perplexities by split."""
    return {
        split: perplexity_ratio(sums_before[split], sums_after[split]) for split in MEASURED_SPLITS
    }


# Training a language model from scratch on a text, and the folder it is written to.


def train_lm(
    lines: Lines,
    out: Path,
    options: LmOptions | None = None,
    *,
    device: str = "cpu",
    watch: Watch[LmStep] | None = None,
) -> Path:
    """Train on the lines of "train", evaluate on "valid" and "test", and write a folder.

    Returns `out`, the folder.

    The folder is an ordinary transformers one with its tokenizer, which `headlab.load` reads, plus
    perplexity.json (sums by passage) and training.json.  An interrupted run resumes from the file
    beside `out` and ends with the same weights.  Deterministic for a given seed, thread count and
    processor.  Raises HeadlabError for unusable options or text.
    """
    options = options or LmOptions()
    watch = watch or Watch()
    options.check()
    check_out(out)
    data = data_hash(lines)
    tokenizer = make_tokenizer(lines["train"], options.tokenizer, options.vocabulary)
    texts = {split: encode(tokenizer, part) for split, part in lines.items()}
    keep = checkpoint_beside_folder(
        out, content_key({"options": options.record(), "data": data}), watch
    )
    place = torch.device(device)
    with own_randomness(place):
        torch.manual_seed(torch_seed(options.seed))
        model = new_model(config_of(options, tokenizer), place)
        state = new_state(model, options.weight_decay)
        LmSteps(model, texts["train"], options, state).run(keep, watch.progress, watch.tick)
    model.train(False)
    judge = Judge(texts, options.block, watch)
    sums = judge(model)
    record: dict[str, JsonLike] = {
        "options": options.record(),
        "data": {"sha256": data, "tokens": texts["train"].predicted_tokens},
    }
    write_lm(
        out,
        model,
        tokenizer,
        sums,
        record | training_facts(model, device, state, judge),
        data,
        options.block,
    )
    keep.path.unlink(missing_ok=True)
    return out


def config_of(options: LmOptions, tokenizer: PreTrainedTokenizerBase) -> AllAttentionConfig:
    """The model's configuration, from the options and the tokenizer."""
    ends = {
        name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")
    }
    # Where a text has <unk> or <|end|> as a word, as WikiText has, ids have gaps and exceed the
    # number of entries.
    vocabulary = max(tokenizer.get_vocab().values()) + 1
    return model_config_of(options, vocabulary, **ends)


def model_config_of(options: LmOptions, vocabulary: int, **ends: int) -> AllAttentionConfig:
    """The model's configuration, from the options and the vocabulary size."""
    plain = options.kind == TRANSFORMER
    return AllAttentionConfig(
        vocab_size=vocabulary,
        hidden_size=options.width,
        head_size=options.head_size or options.width // options.heads,
        heads_per_layer=[options.heads] * options.layers,
        persistent=0 if plain else options.persistent,
        feed_forward=options.persistent if plain else 0,
        positions=options.positions,
        max_position_embeddings=options.block,
        pre_norm=options.pre_norm,
        dropout=options.dropout,
        **ends,
    )


def new_model(config: AllAttentionConfig, device: torch.device) -> AllAttentionForCausalLM:
    """A new model, drawn from torch's generator.

    Raises HeadlabError if it does not fit in memory.
    """
    with building_alone(), fits_in_memory("the model does", SMALLER):
        model = AllAttentionForCausalLM(config)
        torch.nn.Module.to(model, device)
    return model


def seconds_a_window(config: AllAttentionConfig, options: Windows, device: str) -> float:
    """How long a window of a training step takes now, forward and back, on made-up tokens.

    Args:
        config: Sizes of the model, which is made for this alone.
        options: Of the training.
        device: Where it is trained.

    Returns:
        Seconds of one window of `options.block` tokens.

    Raises:
        HeadlabError: The model, or a step on a single window, does not fit in memory.
    """
    place = torch.device(device)
    with own_randomness(place):
        model = new_model(config, place)
        model.train(True)
        state = new_state(model, options.weight_decay)

        def time_step(rows: int) -> float:
            shape = (rows, options.block + 1)
            ids = torch.randint(config.vocab_size, shape, device=place)

            def step() -> None:
                logits = model(ids[:, :-1]).logits
                cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
                state.optimizer.step()

            return timed_pass(step, place) / rows

        return retry_with_fewer_rows(state, options.micro_batch or options.batch, time_step)


def checkpoint_beside_folder(out: Path, key: str, watch: Watch[LmStep]) -> StateSaver:
    """The checkpoint settings of a training; the file is beside `out`."""
    return watch.state_saver(checkpoint_beside(out, key), key, CHECKPOINT_STEPS)


def training_facts(
    model: AllAttentionForCausalLM,
    device: str,
    state: State | None,
    judge: Judge,
    earlier_seconds: float = 0.0,
) -> dict[str, JsonLike]:
    """What every language-model training records.

    before: seconds of training before those of the state.

    Args:
        state: The final one, None if there were no steps.
    """
    counts = parameter_counts(model.config)
    losses = state.losses if state is not None else []
    seconds = earlier_seconds + (state.seconds if state is not None else 0.0)
    took: JsonObject = {
        "seconds": round(seconds, 1),
        "judging": round(judge.seconds, 1),
        "device": device,
    }
    return {
        "loss": {"first": losses[0], "last": float(np.mean(losses[-TAIL:]))} if losses else {},
        "took": took
        | {
            "threads": torch.get_num_threads(),
            "rows_that_fitted": state.row_limit if state is not None else 0,
        },
        "parameters": {"whole": counts.total, "layers": counts.layers},
        "heads": list(model.config.heads_per_layer),
        "versions": versions_of(LIBRARIES),
    }


def write_lm(
    out: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sums: Sums,
    record: JsonRecord,
    data: str,
    block: int,
) -> None:
    """Write the folder atomically: model, tokenizer, sums by passage and how they were made."""
    output = whole_output(model, tokenizer)
    output = TrainingOutput(
        output.weights,
        output.weights_file,
        {**output.json_files, FILE: sums_record(sums, data, block)},
        tokenizer,
    )
    write_folder(out, output, {**record, "perplexity": perplexities(sums)})
