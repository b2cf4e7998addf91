"""Translations of a task's sources while some heads are switched off, and their BLEU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, EncoderDecoderCache, GenerationConfig, LogitsProcessor

from headlab.batches import Batch, cut, token_budget
from headlab.bleu import Bleu, bleu
from headlab.errors import HeadlabError
from headlab.evaluator import Evaluator
from headlab.gates import Active, Model, as_gates
from headlab.inputs import encode, lengths, longest, pad
from headlab.lanes import Tick, one_thread, spread
from headlab.masks import Mask, full_mask
from headlab.records import Ints
from headlab.tasks.translation import target_language

ROWS = 128  # sentences, times beams, that are written side by side
# A model without the heads it needs may never end: a translation has at most so many tokens.
TIMES, MORE = 2, 10
Gates = Mask | torch.Tensor | np.ndarray[Any, Any]


@dataclass(frozen=True)
class Decoding:
    """How a translation is chosen. beams: 1 takes the likeliest token each time, more is beam search of that width."""

    beams: int = 1

    def check(self) -> None:
        """Raise HeadlabError for a number of beams that cannot be."""
        if not 1 <= self.beams <= ROWS:
            raise HeadlabError(f"asked for {self.beams} beams; choose 1 (greedy) to {ROWS}")

    def record(self) -> dict[str, Any]:
        """The options by name, ready for JSON."""
        return asdict(self)


def translations(
    evaluator: Evaluator, gates: Gates | None = None, *, ablation: str = "zero", decoding: Decoding | None = None
) -> tuple[str, ...]:
    """The model's translation of each of the evaluator's examples, in their order.

    gates: a mask, or bool or float [layer, head]; None for the untouched model.  What the model's own generation
    settings say (length penalty, forbidden tokens, ...) holds, sampling left out.  A translation ends at twice its
    source's tokens and 10 at the latest.  Equal for any number of threads.  Raises HeadlabError for a model that
    writes nothing, or gates that are not the model's.
    """
    chosen = decoding or Decoding()
    chosen.check()
    model = evaluator.model
    _check(model)
    tensor = _gates_of(model, gates)
    sources = Sources(model, [example.text for example in evaluator.examples])
    with one_thread(model.device):
        fill = evaluator.fill(ablation)

    def write(batch: Batch, tick: Tick) -> list[list[int]]:
        limits = sources.limits[batch.rows]
        with torch.inference_mode(), model.active(Active(gates=tensor, fill=fill)):
            return _written(model, batch.inputs, limits, chosen.beams, tick)

    found: dict[int, list[int]] = {}
    batches = cut(sources, np.arange(len(sources.lengths)), token_budget(model), max(1, ROWS // chosen.beams))
    for batch, rows in spread(batches, write, device=model.device, tick=evaluator.tick):
        evaluator.forwards += len(rows)
        found |= zip(batch.rows.tolist(), rows, strict=True)
    return tuple(_text(model, found[row]) for row in range(len(found)))


def translated_bleu(
    evaluator: Evaluator,
    gates: Gates | None = None,
    *,
    ablation: str = "zero",
    decoding: Decoding | None = None,
    seed: int = 0,
) -> Bleu:
    """BLEU of the model's translations of the evaluator's examples; arguments as in `translations`.

    seed: of the interval.  Raises HeadlabError for a task without targets.
    """
    targets = [example.target for example in evaluator.examples]
    references = [target for target in targets if target is not None]
    if len(references) < len(targets):
        raise HeadlabError(f"task {evaluator.task.name} asks for labels, not for texts; BLEU needs a translation task")
    texts = translations(evaluator, gates, ablation=ablation, decoding=decoding)
    groups = [example.group or example.id for example in evaluator.examples]
    return bleu(texts, references, language=target_language(evaluator.language), groups=groups, seed=seed)


class Sources:
    """Texts to be translated, tokenised once.  limits: int [row], tokens that each translation may have."""

    def __init__(self, model: Model, texts: Sequence[str]) -> None:
        self.model, self._tokens = model, encode(model, texts)
        self.lengths: Ints = lengths(self._tokens["input_ids"])
        self.limits: Ints = np.minimum(TIMES * self.lengths + MORE, longest(model) - 1)

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of some rows, padded to the longest of them."""
        return pad(self.model, self._tokens, rows)


class Limit(LogitsProcessor):
    """Ends every text at its own limit, so that it does not depend on those beside it; asks `tick` at every token.

    limits: int [row], tokens that a row may have, the last one that ends it included.
    """

    def __init__(self, limits: torch.Tensor, end: int, tick: Tick) -> None:
        self.limits, self.end, self.tick = limits, end, tick

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores [row, vocabulary] of the next token, given those so far, the start among them."""
        self.tick()
        over = input_ids.shape[1] >= self.limits
        only = torch.full_like(scores, float("-inf"))
        only[:, self.end] = 0.0
        return torch.where(over[:, None], only, scores)


def _written(model: Model, inputs: Mapping[str, torch.Tensor], limits: Ints, beams: int, tick: Tick) -> list[list[int]]:
    """Tokens of one batch's translations, the start left out."""
    allowed = torch.as_tensor(limits, device=model.device).repeat_interleave(beams)
    settings = GenerationConfig(num_beams=beams, do_sample=False, use_cache=True, max_length=int(limits.max()) + 1)
    # Without one of ours, transformers makes a T5's cache with as many layers as its encoder has.
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    module: Any = model.module
    written = module.generate(
        **inputs,
        generation_config=settings,
        logits_processor=[Limit(allowed, _end(model), tick)],
        past_key_values=cache,
    )
    rows: list[list[int]] = written[:, 1:].tolist()
    return rows


def _text(model: Model, tokens: list[int]) -> str:
    # Padding behind the end depends on the batch, and is a special token like the end itself.
    found = model.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return str(found).strip()


def _end(model: Model) -> int:
    settings: Any = model.module.generation_config
    ends = settings.eos_token_id if settings.eos_token_id is not None else model.module.config.eos_token_id
    if ends is None:
        raise HeadlabError(f"{model.name} names no token that ends a text; set eos_token_id in its generation_config")
    return int(ends[0] if isinstance(ends, list) else ends)


def _check(model: Model) -> None:
    module: Any = model.module
    if not (module.config.is_encoder_decoder and module.can_generate()):
        raise HeadlabError(
            f"{model.name} is a {type(module).__name__}, which translates nothing; use a translation model, like "
            "one that `headlab train translation` makes"
        )


def _gates_of(model: Model, gates: Gates | None) -> torch.Tensor:
    kept = full_mask(model.grid) if gates is None else gates
    tensor = as_gates(model, kept)
    if tensor.dim() != 2:
        raise HeadlabError("translations are written under one mask for all; give gates of shape [layer, head]")
    return tensor
