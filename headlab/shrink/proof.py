"""The proof that a smaller model has the masked model's outputs, and its model card."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

import numpy as np
import torch
from torch import nn

from headlab.core import HeadlabError, JsonRecord, do_nothing, percent_text, size_text
from headlab.hooks import ActiveGates, Model, gated_in_this_thread, plain_inputs
from headlab.masks import Mask, RecordedAccuracy
from headlab.models.allattention import MODEL_TYPE
from headlab.models.shrunk_classes import is_shrunk
from headlab.shrink.model import Shrunk
from headlab.shrink.smaller_vocabulary import kept_columns, renumbered_batch
from headlab.shrink.vocabulary_cut import VocabularyCut, VocabularyRecord

# The proof that a smaller model has the masked model's outputs: both run on the same real inputs.

Inputs = Sequence[Mapping[str, torch.Tensor]]
# Largest difference due to rounding (float sums in another order), relative to 1 + largest logit.
TOLERANCE = {
    "float64": 1e-9,
    "float32": 1e-4,
    "bfloat16": 5e-2,
    "float16": 1e-2,
    "q8_0": 1e-1,
}
USUAL_SHARE = 0.99
"""Of the answers: how many of a rounded model's must be as near to the original's as they should."""
HASH_DIGITS = 16  # hex digits of the inputs' sha256


class ProofNumbers(TypedDict):
    """A `Proof` in proof.json."""

    max_logit_difference: float
    usual_difference: float
    tolerance: float
    max_logit: float
    mask_changes: float
    other_answers: int
    equal_answers: float
    examples: int
    inputs: str
    is_rounded: bool
    holds: bool


class WeightSizes(TypedDict):
    """Dtype and size in bytes of the weights, of the original and of the smaller model."""

    dtype_before: str
    dtype_after: str
    bytes_before: int
    bytes_after: int


class ExportRecord(TypedDict):
    """An ONNX file in proof.json: its name, and how far its logits are from the masked model's."""

    file: str
    max_logit_difference: float
    tolerance: float
    inputs: list[str]
    versions: Mapping[str, str]


class MeansOf(TypedDict):
    """Which examples heads' mean outputs were taken on.

    Attributes:
        task: Its name.
        split: Of the examples.
        examples: How many of each language.
    """

    task: str
    split: str
    examples: Mapping[str, int]


class PlayersRecord(TypedDict):
    """What a mask of other players than heads removed, in proof.json.

    Attributes:
        switched: Kinds of players, as --players names them.
        before: Number of players.
        removed: [stack, layer, number] of the players that the mask closes.
        neurons_before: Neurons of the original's feed-forward parts; 0 where they are no players
            and were not counted.
        neurons_removed: How many of them are gone, or silenced in the form "folder".
        layers_before: Layers of the original.
        layers_removed: How many of them are left out.
    """

    switched: str
    before: int
    removed: list[list[str | int]]
    neurons_before: int
    neurons_removed: int
    layers_before: int
    layers_removed: int


class ProofRecord(ProofNumbers, WeightSizes):
    """The contents of proof.json without the ONNX file's part and the list of files.

    Attributes:
        format: "headlab-proof".
        version: of the format.
        form: "small", "folder" or "gguf".
        command: that writes the same again, with file names in place of paths; None where it was
            written by other code.
        random_input: the comparison on the same examples with every word replaced by random tokens.
        means_of: which examples the heads' means were taken on; None under zero ablation.
        cut_alone: the comparison before the weights were rounded; None if they were not.
        compared_on: what the examples are: task, languages, and so on.
        computed_in: dtype of the comparison.
        device: type of the device of the comparison.
        parameters_before: number of parameters of the original.
        parameters_after: number of parameters of the smaller model.
        heads_before: number of heads of the original.
        heads_removed: number of heads whose weights are removed.
        heads_masked: [stack, layer, head] of the removed heads whose weights stay.
        model: identity of the original.
        mask: sha256 of the mask.
        fingerprint: of the smaller model.
        versions: of the software.
    """

    format: str
    version: int
    form: str
    command: list[str] | None
    random_input: ProofNumbers
    means_of: MeansOf | None
    cut_alone: ProofNumbers | None
    compared_on: JsonRecord
    computed_in: str
    device: str
    parameters_before: int
    parameters_after: int
    heads_before: int
    heads_removed: int
    heads_masked: list[list[str | int]]
    model: JsonRecord
    mask: str
    fingerprint: str
    versions: Mapping[str, str]


class WrittenRecord(ProofRecord, total=False):
    """The contents of proof.json without the list of files.

    Attributes:
        onnx: The ONNX file, if one was written.
        vocabulary: Which pieces stay, if the vocabulary was cut.
        players: What went, if the mask is of other players than heads.
    """

    onnx: ExportRecord
    vocabulary: VocabularyRecord
    players: PlayersRecord


def players_record(model: Model, shrunk: Shrunk) -> PlayersRecord | None:
    """What a mask of other players than heads removed; None for a mask of heads.

    Args:
        model: The original, with these players.
        shrunk: The model without them.
    """
    before, after = shrunk.before, shrunk.after
    if model.player_set is None or before is None or after is None:
        return None
    return {
        "switched": str(model.players),
        "before": model.grid.size,
        "removed": [list(player) for player in shrunk.mask.removed],
        "neurons_before": before.neurons,
        "neurons_removed": before.neurons - after.neurons,
        "layers_before": before.layers,
        "layers_removed": before.layers - after.layers,
    }


def removed_words(record: PlayersRecord, heads_before: int, heads_removed: int) -> str:
    """What is gone as words: "6 of 144 heads, 1,536 of 18,432 neurons and 1 of 12 layers".

    Args:
        record: What went.
        heads_before: Heads of the original.
        heads_removed: How many of them are gone.
    """
    counts = (
        (heads_removed, heads_before, "heads"),
        (record["neurons_removed"], record["neurons_before"], "neurons"),
        (record["layers_removed"], record["layers_before"], "layers"),
    )
    parts = [f"{gone:,} of {before:,} {noun}" for gone, before, noun in counts if gone]
    if not parts:
        return "nothing"
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


@dataclass(frozen=True)
class Proof:
    """Result of the comparison.

    Attributes:
        max_logit_difference: Largest difference between masked and shrunk, over all logits of real
            tokens.
        usual_difference: What the largest difference of an answer's logits is at most, for
            `USUAL_SHARE` of the answers.
        tolerance: Largest difference that counts as rounding.
        max_logit: Largest logit of the masked model.
        mask_changes: Largest difference between untouched and masked, which shows that the mask has
            an effect on these inputs.
        other_answers: Rows or tokens with a different largest logit.
        equal_answers: Share of rows or tokens with the same one.
        examples: Distinct rows compared.
        inputs: SHA-256 of their token ids, shortened.
        is_rounded: Whether the smaller model's weights were rounded.
    """

    max_logit_difference: float
    usual_difference: float
    tolerance: float
    max_logit: float
    mask_changes: float
    other_answers: int
    equal_answers: float
    examples: int
    inputs: str
    is_rounded: bool

    @property
    def holds(self) -> bool:
        """Whether the smaller model's outputs are the masked model's, up to rounding.

        Of rounded weights it is the usual difference that counts: where a model hardly knows the
        text, it may magnify any rounding.
        """
        if self.is_rounded and math.isfinite(self.max_logit_difference):
            return self.usual_difference <= self.tolerance < math.inf
        return self.max_logit_difference <= self.tolerance < math.inf

    def record(self) -> ProofNumbers:
        """The record, ready for JSON."""
        return cast("ProofNumbers", asdict(self) | {"holds": self.holds})

    def check(self, compared_name: str) -> None:
        """Raise HeadlabError unless the proof holds.

        Args:
            compared_name: Name of what was compared.
        """
        if not math.isfinite(self.tolerance + self.mask_changes):
            raise HeadlabError(
                f"{compared_name} cannot be compared: the original itself gives NaN or inf on "
                "these examples, so nothing was written; use --dtype float32, and if that does "
                "not help, other weights: these are broken",
                code="shrink.original_not_finite",
            )
        if not self.holds:
            raise HeadlabError(
                f"{compared_name} differs from the masked model by up to "
                f"{self.max_logit_difference:.3g} in its logits, more than the "
                f"{self.tolerance:.3g} that rounding explains, so nothing was written; please "
                "report this",
                code="shrink.model_differs",
            )


def check_rounding(proof: Proof, random_proof: Proof, dtype: str, advice: str) -> None:
    """Raise HeadlabError if rounding the weights changed too much.

    On random input a model may magnify any rounding, so that there its logits only have to be
    numbers.

    Args:
        proof: On examples, with the rounded weights.
        random_proof: On random input.
        dtype: They were rounded to.
        advice: What to do.
    """
    is_finite = math.isfinite(random_proof.max_logit_difference)
    if proof.holds and is_finite:
        return
    where = " on random input" if proof.holds else ""
    difference = random_proof.max_logit_difference
    if not proof.holds:
        is_number = math.isfinite(proof.max_logit_difference)
        difference = proof.usual_difference if is_number else proof.max_logit_difference
    raise HeadlabError(
        f"rounding the weights to {dtype} changes the logits{where} by {difference:.3g}, more than "
        f"the {proof.tolerance:.3g} allowed for rounding, so nothing was written; {advice}",
        code="shrink.rounding_too_large",
    )


def prove(
    model: Model,
    mask: Mask,
    module: nn.Module,
    inputs: Inputs,
    *,
    means: torch.Tensor | None = None,
    dtype: str | None = None,
    is_rounded: bool = False,
    cut: VocabularyCut | None = None,
    tick: Callable[[], None] = do_nothing,
) -> Proof:
    """Compare a model under a mask with a module that should have the same outputs.

    Both are given the same batches of model inputs.

    Raises HeadlabError if there is no batch.

    Args:
        means: What removed heads give, [layer, head, head_dim]; None for zero.
        dtype: Dtype of the module's weights; None: the model's.
        is_rounded: Whether that dtype changed them.
        cut: Which pieces the module's vocabulary has; None where it has all. No batch may contain
            other pieces.
        tick: Called between batches; may raise to stop.
    """

    def logits_of_other(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        with torch.inference_mode():
            return logits_of(module, batch)

    return compare(
        model,
        mask,
        logits_of_other,
        inputs,
        means=means,
        dtype=dtype,
        is_rounded=is_rounded,
        cut=cut,
        tick=tick,
    )


def compare(
    model: Model,
    mask: Mask,
    logits_of_other: Callable[[Mapping[str, torch.Tensor]], torch.Tensor],
    inputs: Inputs,
    *,
    means: torch.Tensor | None = None,
    dtype: str | None = None,
    is_rounded: bool = False,
    cut: VocabularyCut | None = None,
    tick: Callable[[], None] = do_nothing,
) -> Proof:
    """The same as `prove`, with a function from a batch to logits."""
    if not inputs:
        raise HeadlabError(
            "there is no example to compare the models on; give one or more",
            code="shrink.no_examples",
        )
    ablation = "zero" if means is None else "mean"
    max_logit = mask_changes = max_difference = 0.0
    answers = other_answers = 0
    differences: list[torch.Tensor] = []
    digest = hashlib.sha256()
    distinct_rows = set[bytes]()
    for batch in map(plain_inputs, inputs):
        tick()
        with torch.inference_mode():
            with model.active(ActiveGates()):
                baseline_logits = logits_of(model.module, batch)
            with gated_in_this_thread(model, mask, ablation=ablation, means=means):
                masked_logits = logits_of(model.module, batch)
        other_batch = dict(batch)
        if cut is not None:
            baseline_logits = kept_columns(baseline_logits, cut)
            masked_logits = kept_columns(masked_logits, cut)
            other_batch = renumbered_batch(batch, cut)
        is_real = real_tokens(batch, masked_logits)
        other_logits = logits_of_other(other_batch).to(masked_logits.device)[is_real].double()
        masked_logits = masked_logits[is_real].double()
        difference = other_logits - masked_logits
        max_difference = _larger(max_difference, difference)
        differences.append(difference.abs().amax(-1).flatten().cpu())
        mask_changes = _larger(mask_changes, baseline_logits[is_real].double() - masked_logits)
        max_logit = _larger(max_logit, masked_logits)
        is_other = other_logits.argmax(-1) != masked_logits.argmax(-1)
        answers += is_other.numel()
        other_answers += int(is_other.sum())
        digest.update(batch["input_ids"].cpu().numpy().tobytes())
        distinct_rows |= rows_without_padding(batch)
    tolerance = TOLERANCE[dtype or model.dtype] * (1 + max_logit)
    return Proof(
        max_logit_difference=max_difference,
        usual_difference=float(
            np.quantile(torch.cat(differences).numpy(), USUAL_SHARE, method="higher")
        ),
        tolerance=tolerance,
        max_logit=max_logit,
        mask_changes=mask_changes,
        other_answers=other_answers,
        equal_answers=1 - other_answers / max(answers, 1),
        examples=len(distinct_rows),
        inputs=digest.hexdigest()[:HASH_DIGITS],
        is_rounded=is_rounded,
    )


def random_inputs(
    model: Model, inputs: Inputs, seed: int, cut: VocabularyCut | None = None
) -> list[dict[str, torch.Tensor]]:
    """The same batches with every token drawn at random, but for special tokens and padding.

    Args:
        model: Has the vocabulary.
        inputs: Batches of real examples.
        seed: Of the draws.
        cut: Which pieces are drawn from; None for all.
    """
    special_ids = torch.tensor(_special_ids(model), dtype=torch.long)
    config = model.module.config.get_text_config()
    source_size = int(getattr(config, "vocab_size", 100))
    target_size = int(getattr(config, "decoder_vocab_size", None) or source_size)
    vocabulary_sizes = {"input_ids": source_size, "decoder_input_ids": target_size}
    generator = torch.Generator().manual_seed(seed)
    batches: list[dict[str, torch.Tensor]] = []
    for batch in map(plain_inputs, inputs):
        random_batch = dict(batch)
        for name, vocabulary_size in vocabulary_sizes.items():
            if name not in batch:
                continue
            token_ids = batch[name].cpu()
            all_ids = (
                torch.arange(vocabulary_size) if cut is None else torch.from_numpy(cut.kept_ids)
            )
            ordinary_ids = all_ids[~torch.isin(all_ids, special_ids)]
            drawn = torch.randint(len(ordinary_ids), token_ids.shape, generator=generator)
            is_special = torch.isin(token_ids, special_ids)
            random_ids = torch.where(is_special, token_ids, ordinary_ids[drawn])
            random_batch[name] = random_ids.to(batch[name].device)
        batches.append(random_batch)
    return batches


def _special_ids(model: Model) -> list[int]:
    """Ids that stay where they are, as models read an answer at them or refuse a text without.

    They are those of the tokenizer, and those that the configuration names.
    """
    config = model.module.config
    named_ids = [
        getattr(config, name, None)
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    ]
    tokenizer_ids = [] if model.tokenizer is None else list(model.tokenizer.all_special_ids)
    return sorted({*tokenizer_ids, *(id_ for id_ in named_ids if isinstance(id_, int))})


def logits_of(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """A model's logits, or the hidden states of one without a head."""
    return first_tensor(module(**batch))


def first_tensor(output: Mapping[str, object]) -> torch.Tensor:
    """The first tensor of two dimensions or more in a model's output, which skips a loss."""
    return next(
        value for value in output.values() if isinstance(value, torch.Tensor) and value.dim() >= 2
    )


def real_tokens(batch: Mapping[str, torch.Tensor], logits: torch.Tensor) -> torch.Tensor:
    """bool, which rows of logits [row, label] or tokens of [row, token, label] are not padding."""
    shape = logits.shape[:-1]
    mask = batch.get("decoder_attention_mask" if "decoder_input_ids" in batch else "attention_mask")
    if mask is None or mask.shape != shape:
        return torch.ones(shape, dtype=torch.bool, device=logits.device)
    return mask.bool()


def rows_without_padding(batch: Mapping[str, torch.Tensor]) -> set[bytes]:
    """The distinct rows of a batch, without padding."""
    ids = batch["input_ids"].cpu()
    mask = batch.get("attention_mask")
    are_tokens = torch.ones_like(ids).bool()
    if mask is not None:
        are_tokens = mask.cpu().bool()
    return {row[is_token].numpy().tobytes() for row, is_token in zip(ids, are_tokens, strict=True)}


def _larger(so_far: float, values: torch.Tensor) -> float:
    """The larger of a number and the largest absolute value; infinite where there is a NaN."""
    largest = values.abs().max() if values.numel() else torch.zeros(())
    return max(so_far, float(largest.nan_to_num(torch.inf)))


# The model card of a shrunk model: before and after, side by side.

FRONT_MATTER = """---
library_name: {library}
tags:
- headlab
- attention-head-pruning
---
"""
LOADS_WITH_HEADLAB = """It loads with headlab, which knows its class:

```python
import headlab

module = headlab.load_shrunk("FOLDER")  # the transformers model
model = headlab.load("FOLDER")  # the same with its heads known, for headlab evaluate and the rest
```

`from headlab.shrink import make_known; make_known()` lets transformers' `AutoModel` classes read it. Without headlab
they refuse it, by its model type; a class called by its name (`BertModel.from_pretrained` and the like) refuses it
as well, whatever its family: `config.json` has strings where such a class expects numbers."""
READ_BY_OTHERS = """It is an ordinary model of its family, of the original's class and shapes: `AutoModel…from_pretrained`,
pipelines and whatever else reads the original read it, without headlab. It is as large and as slow as the original;
`headlab export --as small` takes the heads out."""
READ_BY_OTHERS_CUT = """It is an ordinary model of its family, of the original's class: `AutoModel…from_pretrained`, pipelines and
whatever else reads the original read it, without headlab."""
READ_BY_LLAMA_CPP = """llama.cpp and what is built on it read `model.gguf`, tokenizer included, without headlab:
`llama-server -m model.gguf`."""
LOADS_WITHOUT_HEADLAB = """It is an ordinary model of its family: transformers loads it without headlab, and so does
`headlab.load_shrunk("FOLDER")`."""


class Speed(NamedTuple):
    """Time of the smaller model divided by that of the untouched one.

    Attributes:
        ratio: Median of the ratios of their times.
        low: Lower bound of its interval.
        high: Upper bound of its interval.
        conditions: Device and sizes of batches.
    """

    ratio: float
    low: float
    high: float
    conditions: str


def short_name(model: Model) -> str:
    """The model's name without a local path."""
    if model.checkpoint.revision == "folder":
        return Path(model.name).name
    return model.name


def model_card(model: Model, shrunk: Shrunk, record: ProofRecord, speed: Speed | None) -> str:
    """The text of README.md.

    Args:
        record: The contents of proof.json.
    """
    name = escape_markdown(short_name(model))
    title = _title_of_removed(model, shrunk)
    command = "headlab shrink" if shrunk.form == "small" else f"headlab export --as {shrunk.form}"
    masked_count = len(shrunk.masked_heads)
    if shrunk.form == "folder":
        masked_count = 0  # that weights stay is what this form is
    if shrunk.cut is not None:
        languages = escape_markdown(", ".join(shrunk.cut.languages))
        title = f"vocabulary of {languages}" + (f", {title}" if shrunk.mask.removed else "")
        command = f"headlab export --as {shrunk.form}"
    parts = [
        FRONT_MATTER.format(library="gguf" if shrunk.form == "gguf" else "transformers"),
        f"# {name}, {title}\n",
        f"Made with `{command}` from {name} (fingerprint `{model.fingerprint[:16]}`), without "
        f"fine-tuning. {_change_of_weights(shrunk, record)}; {_rounding_clause(record)}. The "
        "licence of the original model holds for this one.\n",
        "\n".join(_before_after_table(model, shrunk, record, speed)) + "\n",
        _comparison(shrunk, record, masked_count),
        _vocabulary_text(shrunk),
        "\n".join(_accuracies(shrunk)),
        f"## How to load it\n\n{_how_to_load(shrunk)}\n",
        "`mask.json` is the mask, `proof.json` the comparison in full.\n",
    ]
    return "\n".join(part for part in parts if part)


def _title_of_removed(model: Model, shrunk: Shrunk) -> str:
    """What is gone, or silenced, as a title."""
    record = players_record(model, shrunk)
    is_silenced = shrunk.form == "folder"
    done = "silenced" if is_silenced else "removed"
    heads = len(shrunk.masked_heads) if is_silenced else shrunk.removed_count
    if record is not None:
        return f"{removed_words(record, model.head_grid.size, heads)} {done}"
    return f"{heads} of {model.head_grid.size} attention heads {done}"


def _change_of_weights(shrunk: Shrunk, record: ProofRecord) -> str:
    """What was done to the weights, without a full stop."""
    change = _change_of_heads(shrunk, record)
    if shrunk.cut is None:
        return change
    return f"{change}; the embeddings of the pieces that are gone are removed"


def _change_of_heads(shrunk: Shrunk, record: ProofRecord) -> str:
    """What was done to the weights of the removed heads, without a full stop."""
    if not shrunk.mask.removed:
        return "All attention heads stay"
    if not shrunk.mask.grid.has_only_heads:
        return _change_of_players(shrunk)
    if shrunk.form != "folder":
        return (
            "Query, key and value rows and output columns of the removed heads are removed from "
            "the weights"
        )
    silenced = "The columns of the output projection that belong to the removed heads are zero"
    if shrunk.means is None:
        return silenced
    means_of = record["means_of"]
    if means_of is None:
        return f"{silenced}, and their mean output is in its bias"
    counts = [f"{code} {count}" for code, count in means_of["examples"].items()]
    return (
        f"{silenced}, and their mean output is in its bias, as taken on dev examples of task "
        f"{escape_markdown(means_of['task'])} ({escape_markdown(', '.join(counts))})"
    )


def _change_of_players(shrunk: Shrunk) -> str:
    """What was done to the weights of the removed players, without a full stop."""
    if shrunk.form == "folder":
        return (
            "The columns of the output and down projections that belong to the removed heads and "
            "neurons are zero"
        )
    return (
        "Query, key and value rows and output columns of the removed heads, rows and columns of "
        "the removed neurons, and layers that were skipped are removed from the weights"
    )


def _vocabulary_text(shrunk: Shrunk) -> str:
    """What became of the vocabulary; empty where it is the original's."""
    if shrunk.vocabulary is None:
        return ""
    record = shrunk.vocabulary.record()
    lines = [
        "## Vocabulary\n",
        f"{record['pieces_after']:,} of {record['pieces_before']:,} pieces stay. A text whose pieces "
        "all stay is split as before, and the comparison above is on such texts alone. Of texts "
        "that were held out when this was counted:\n",
        "| language | pieces that are gone | texts that are split otherwise | texts |",
        "| --- | ---: | ---: | ---: |",
    ]
    for language, losses in record["held_out"].items():
        lines.append(
            f"| {escape_markdown(language)} | {losses['pieces_lost']:.2%} | "
            f"{losses['texts_changed']:.2%} | {losses['texts']:,} |"
        )
    return "\n".join(lines) + "\n"


def _how_to_load(shrunk: Shrunk) -> str:
    """Who reads the folder."""
    config = shrunk.module.config
    if shrunk.form == "folder":
        return READ_BY_OTHERS if shrunk.cut is None else READ_BY_OTHERS_CUT
    if shrunk.form == "gguf":
        return READ_BY_LLAMA_CPP
    if is_shrunk(config) or config.model_type == MODEL_TYPE:
        return LOADS_WITH_HEADLAB
    return LOADS_WITHOUT_HEADLAB


def _rounding_clause(record: ProofRecord) -> str:
    """What happened to the remaining weights."""
    dtype_before = record["dtype_before"]
    dtype_after = record["dtype_after"]
    if record["cut_alone"] is not None:
        return f"the others were rounded from {dtype_before} to {dtype_after}"
    if dtype_before == dtype_after:
        return "nothing else changed"
    return f"the others are the same, written in {dtype_after} and not {dtype_before}"


def _before_after_table(
    model: Model, shrunk: Shrunk, record: ProofRecord, speed: Speed | None
) -> Iterator[str]:
    parameters_before = shrunk.parameters_before
    parameters_after = shrunk.parameters_after
    yield "| | before | after |"
    yield "| --- | ---: | ---: |"
    yield (
        f"| parameters | {parameters_before:,} | {parameters_after:,} "
        f"({(parameters_after - parameters_before) / parameters_before:+.1%}) |"
    )
    yield f"| dtype of the weights | {record['dtype_before']} | {record['dtype_after']} |"
    size_before = size_text(record["bytes_before"])
    size_after = size_text(record["bytes_after"])
    yield f"| weights | {size_before} | {size_after} |"
    heads = model.head_grid.size
    if shrunk.form == "folder":
        yield f"| attention heads that act | {heads} | {heads - len(shrunk.masked_heads)} |"
        yield from _rows_of_players(model, shrunk)
        return
    yield f"| attention heads | {heads} | {heads - shrunk.removed_count} |"
    if shrunk.mask.grid.has_only_heads:
        head_counts = [n for stack in model.grid.stacks for n in stack.heads]
        yield (
            f"| attention layers with heads | {sum(n > 0 for n in head_counts)} | "
            f"{layers_with_heads(model, shrunk)} |"
        )
    yield from _rows_of_players(model, shrunk)
    if speed is not None:
        yield (
            f"| time of a forward pass | 1 | {speed.ratio:.2f} [{speed.low:.2f}, "
            f"{speed.high:.2f}] |"
        )
        yield f"\nTimes: {speed.conditions}; the interval is of the median."


def _rows_of_players(model: Model, shrunk: Shrunk) -> Iterator[str]:
    """Neurons and layers before and after, of a mask of other players than heads."""
    record = players_record(model, shrunk)
    if record is None:
        return
    for noun, before, gone in (
        ("neurons", record["neurons_before"], record["neurons_removed"]),
        ("layers", record["layers_before"], record["layers_removed"]),
    ):
        if before:
            yield f"| {noun} | {before:,} | {before - gone:,} |"


def layers_with_heads(model: Model, shrunk: Shrunk) -> int:
    """Number of attention layers that still have a head."""
    remaining_heads = set(model.grid.heads) - (set(shrunk.mask.removed) - set(shrunk.masked_heads))
    return len({(head.stack, head.layer) for head in remaining_heads})


def _comparison(shrunk: Shrunk, record: ProofRecord, masked_count: int) -> str:
    compared_on = record["compared_on"]
    source = (
        f"task {escape_markdown(compared_on['task'])}" if compared_on.get("task") else "sentences"
    )
    under_mask = mask_clause = effect = ""
    if shrunk.mask.removed:
        under_mask, mask_clause = " under the mask", ", under the mask"
        what = "heads" if shrunk.mask.grid.has_only_heads else "players"
        effect = f"; switching the {what} off changed them by up to {record['mask_changes']:.2g}"
    how_much = f"at most {record['max_logit_difference']:.2g}"
    if record["is_rounded"]:
        how_much = (
            f"at most {record['usual_difference']:.2g} for {percent_text(USUAL_SHARE)} of the "
            f"answers, and at most {record['max_logit_difference']:.2g} for all"
        )
    text = (
        f"On {record['examples']} examples ({source}), computed in {record['computed_in']}, its "
        f"logits differ from those of the original{under_mask} by "
        f"{how_much} (tolerance {record['tolerance']:.2g}){effect}. On "
        "random input they differ by at most "
        f"{record['random_input']['max_logit_difference']:.2g}.\n"
    )
    removal_proof = record["cut_alone"]
    if removal_proof is not None:
        is_before_rounding = record["form"] == "gguf"
        compared = (
            "Before it"
            if is_before_rounding
            else f"From the original with its weights so rounded{mask_clause},"
        )
        text += (
            f"\nThat is the rounding to {record['dtype_after']}. {compared} they differ by at most "
            f"{removal_proof['max_logit_difference']:.2g} (tolerance "
            f"{removal_proof['tolerance']:.2g}).\n"
        )
    if masked_count:
        text += (
            f"\n{masked_count} heads of the mask stay in the weights, as other query heads of "
            "their group need the same key and value; their output columns are zero, so they "
            "give nothing.\n"
        )
    return text


AS_RECORDED = """As recorded in the mask file: measured with the heads switched off; the proof shows that the outputs are the \
same.
"""
RECORDED_BEFORE_CUT = """As recorded in the mask file: measured with the heads switched off and the whole vocabulary.
"""
RECORDED_UNDER_OTHER_MEANS = """As recorded in the mask file, where each language's heads gave their mean over its own dev examples; \
`headlab evaluate --model FOLDER` measures this model, which has one mean for all.
"""


def _accuracies(shrunk: Shrunk) -> Iterator[str]:
    """The accuracies recorded in the mask file, split by split."""
    for split, part in shrunk.mask.evaluated.items():
        yield f"## Accuracy on {split} of task {escape_markdown(part['task'])}\n"
        yield _how_recorded(shrunk)
        yield "| language | before | after | difference, points | n |"
        yield "| --- | ---: | ---: | ---: | ---: |"
        for language, figure in part["languages"].items():
            cells = (escape_markdown(language), *_accuracy_cells(figure), str(figure["n"]))
            yield f"| {' | '.join(cells)} |"
        yield ""


def _how_recorded(shrunk: Shrunk) -> str:
    """How the accuracies in the mask file were measured."""
    if shrunk.means is not None:
        return RECORDED_UNDER_OTHER_MEANS
    return AS_RECORDED if shrunk.cut is None else RECORDED_BEFORE_CUT


def _accuracy_cells(figure: RecordedAccuracy) -> tuple[str, str, str]:
    """Accuracy before and after and their difference, as far as the mask file has them."""
    accuracy = f"{figure['accuracy']:.1%}"
    if "accuracy_low" in figure and "accuracy_high" in figure:
        accuracy += f" [{figure['accuracy_low']:.1%}, {figure['accuracy_high']:.1%}]"
    baseline = f"{figure['baseline']:.1%}" if "baseline" in figure else "–"
    if "difference" not in figure:
        return baseline, accuracy, "–"
    difference = f"{100 * figure['difference']:+.1f}"
    if "low" in figure and "high" in figure:
        difference += f" [{100 * figure['low']:+.1f}, {100 * figure['high']:+.1f}]"
    return baseline, accuracy, difference


def escape_markdown(text: object) -> str:
    """A name from outside, escaped for Markdown."""
    plain = " ".join(str(text).split())
    for mark in "\\`*_[]<>|#":
        plain = plain.replace(mark, f"\\{mark}")
    return plain
