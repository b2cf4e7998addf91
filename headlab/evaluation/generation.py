"""Translations of a task's sources while some heads are switched off, their BLEU, and the likelihood of references."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import cast

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import DynamicCache, EncoderDecoderCache, LogitsProcessor, LogitsProcessorList

from headlab.core import Bools, Floats, HeadlabError, Ints
from headlab.core.parallel import Tick, one_thread, spread
from headlab.evaluation.bleu import Bleu, bleu, metric_of
from headlab.evaluation.context import longest
from headlab.evaluation.encoding import IGNORED, Chosen, NextTokens, lengths, pad
from headlab.evaluation.evaluator import Batch, Evaluator, cut, token_budget
from headlab.evaluation.inputs import LanguageSetup, encode_sources, language_setup
from headlab.hooks import Active, Gates, Model, as_gates, not_finite
from headlab.masks import Mask, full_mask
from headlab.stats import Paired, group_bootstrap, paired_bootstrap, resampled_sums
from headlab.stats.bootstrap import DRAWS
from headlab.tasks import Example, Split, Task, answer_names, sides, unspaced

# Translations of a task's sources while some heads are switched off, and their BLEU.

ROWS = 128  # sentences x beams generated in parallel
# A model without the heads it needs may never stop: a translation has at most TIMES x source tokens + MORE tokens.
TIMES, MORE = 2, 10
# Overrides for a model's generation settings that would change the search or the length limits, return something
# other than token ids, or need further inputs.
OURS: Mapping[str, bool | int | None] = MappingProxyType(
    {
        "do_sample": False, "use_cache": True, "max_new_tokens": None, "min_new_tokens": None, "max_time": None,
        "num_return_sequences": 1, "return_dict_in_generate": False, "output_scores": False, "output_logits": False,
        "output_attentions": False, "output_hidden_states": False, "num_beam_groups": None, "penalty_alpha": None,
        "dola_layers": None, "prompt_lookup_num_tokens": None, "assistant_early_exit": None, "constraints": None,
        "force_words_ids": None, "cache_implementation": None, "stop_strings": None, "guidance_scale": None,
        "token_healing": False,
    }
)  # fmt: skip


@dataclass(frozen=True)
class Decoding:
    """How translations are decoded. beams: 1 is greedy decoding, more is beam search of that width."""

    beams: int = 1

    def check(self) -> None:
        """Raise HeadlabError for an invalid number of beams."""
        if not 1 <= self.beams <= ROWS:
            raise HeadlabError(
                f"asked for {self.beams} beams; choose 1 (greedy) to {ROWS}",
                code="beam.out_of_range",
            )

    def record(self) -> dict[str, int]:
        """The options by name, ready for JSON."""
        return asdict(self)


def translations(
    evaluator: Evaluator,
    gates: Gates | None = None,
    *,
    ablation: str = "zero",
    decoding: Decoding | None = None,
) -> tuple[str, ...]:
    """The model's translation of each of the evaluator's examples, in their order.

    gates: a mask, or bool or float [layer, head]; None for the unpruned model.  The model's own generation settings
    apply for tokens and scores (length penalty, forbidden tokens, ...), but not for search, length and return values.
    A translation has at most twice its source's tokens plus 10.  The result does not depend on the number of threads.
    Raises HeadlabError for a model that cannot generate or has no code for a language, or gates that do not fit it.
    """
    chosen = decoding or Decoding()
    chosen.check()
    model = evaluator.model
    check_model(model, evaluator.language)
    tensor = _gates_of(model, gates)
    about = language_setup(model.module.config, model.tokenizer, evaluator.language)
    sources = Sources(model, [example.text for example in evaluator.examples], about)
    with one_thread(model.device):
        fill = evaluator.fill(ablation)

    def write(batch: Batch, tick: Tick) -> list[list[int]]:
        limits = sources.limits[batch.rows]
        with torch.inference_mode(), model.active(Active(gates=tensor, fill=fill)):
            return _written(
                model, batch.inputs, limits, {"num_beams": chosen.beams, **about.settings()}, tick
            )

    found: dict[int, list[int]] = {}
    batches = cut(
        sources, np.arange(len(sources.lengths)), token_budget(model), max(1, ROWS // chosen.beams)
    )
    for batch, rows in spread(batches, write, on=model, tick=evaluator.tick):
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
    references = _references(evaluator.task, evaluator.examples)
    texts = translations(evaluator, gates, ablation=ablation, decoding=decoding)
    groups = [example.cluster for example in evaluator.examples]
    return bleu(texts, references, language=sides(evaluator.language)[1], groups=groups, seed=seed)


def check_bleu(task: Task, language: str, split: Split, decoding: Decoding) -> None:
    """Raise HeadlabError early where `translated_bleu` would fail for reasons other than the model."""
    decoding.check()
    if task.likelihood:
        raise HeadlabError(
            f"task {task.name} is for language models, which continue its texts; BLEU needs a translation task",
            code="task.not_translation",
        )
    _references(task, task.examples(language, split, 1))
    metric_of(sides(language)[1])


def _references(task: Task, examples: Sequence[Example]) -> list[str]:
    found = [example.target for example in examples if example.target is not None]
    if len(found) < len(examples):
        raise HeadlabError(
            f"task {task.name} has labels, not texts to generate; BLEU needs a translation task",
            code="task.not_translation",
        )
    return found


class Sources:
    """Texts to translate, tokenised once.  limits: int [row], maximum tokens of each translation."""

    def __init__(self, model: Model, texts: Sequence[str], about: LanguageSetup) -> None:
        self.model, self._tokens = model, encode_sources(model, texts, about)
        self.lengths: Ints = lengths(self._tokens["input_ids"])
        self.limits: Ints = np.minimum(
            TIMES * self.lengths + MORE, longest(model, targets=True) - 1
        )

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of some rows, padded to the longest of them."""
        return pad(self.model, self._tokens, rows)


class Limit(LogitsProcessor):
    """Ends every text at its own limit, independently of the rest of its batch; calls `tick` at every token.

    limits: int [row], maximum tokens of a row, including the end token.
    """

    def __init__(self, model: Model, limits: torch.Tensor, end: int, tick: Tick) -> None:
        self.model, self.limits, self.end, self.tick = model, limits, end, tick

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores [row, vocabulary] of the next token, given the tokens so far, including the start."""
        self.tick()
        if not bool(scores.amax(dim=-1).isfinite().all()):
            raise not_finite(
                self.model,
                "outputs that are not finite while it translates",
                code="model.answers_not_finite",
            )
        over = input_ids.shape[1] >= self.limits
        only = torch.full_like(scores, float("-inf"))
        only[:, self.end] = 0.0
        return torch.where(over[:, None], only, scores)


def _written(
    model: Model,
    inputs: Mapping[str, torch.Tensor],
    limits: Ints,
    settings: Mapping[str, int],
    tick: Tick,
) -> list[list[int]]:
    """Tokens of one batch's translations, without the start."""
    allowed = torch.as_tensor(limits, device=model.device).repeat_interleave(settings["num_beams"])
    # Without this one, transformers creates a T5's cache with as many layers as its encoder has.
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    # By keyword, not as a configuration, in which None would be replaced by the model's own setting.
    generate = cast(Callable[..., torch.Tensor], model.module.generate)
    written = generate(
        **inputs,
        **OURS,
        **settings,
        max_length=int(limits.max()) + 1,
        logits_processor=LogitsProcessorList([Limit(model, allowed, _end(model), tick)]),
        past_key_values=cache,
    )
    rows: list[list[int]] = written[:, 1:].tolist()
    return rows


def _text(model: Model, tokens: list[int]) -> str:
    # Padding after the end depends on the batch, and is a special token like the end itself.
    found = model.tokenizer.decode(
        tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return str(found).strip()


def _end(model: Model) -> int:
    ends: int | list[int] | None = model.module.generation_config.eos_token_id
    if ends is None:
        ends = model.module.config.eos_token_id
    if ends is None:
        raise HeadlabError(
            f"{model.name} has no end-of-text token; set eos_token_id in its generation_config",
            code="model.no_end_token",
        )
    return int(ends[0] if isinstance(ends, list) else ends)


def check_model(model: Model, language: str) -> None:
    """Raise HeadlabError for a model that cannot generate, or needs a code for a language that it does not have."""
    module = model.module
    if not (module.config.is_encoder_decoder and module.can_generate()):
        raise HeadlabError(
            f"{model.name} is a {type(module).__name__}, which does not translate; use a translation model, like "
            "one that `headlab train translation` makes",
            code="model.not_translation",
        )
    language_setup(module.config, model.tokenizer, language)


def _gates_of(model: Model, gates: Gates | None) -> torch.Tensor:
    kept = full_mask(model.grid) if gates is None else gates
    tensor = as_gates(model, kept)
    if tensor.dim() != 2:
        raise HeadlabError(
            "all translations are generated under one mask; give gates of shape [layer, head]",
            code="gate.not_one_mask",
        )
    return tensor


# Likelihood of the right answers: mean log-probability per token of reference translations, and its gain.

STREAM = 31  # separates these draws from others with the same seed


@dataclass(frozen=True)
class Likelihood:
    """Mean log-probability of the right answers, nats per answer (for a translation: per token, given earlier tokens).

    low, high: its 95 % interval.  nats: float [answer].  groups: label [answer]; a group is resampled as a whole.
    """

    mean: float
    low: float
    high: float
    nats: Floats
    groups: tuple[str, ...]

    def record(self) -> dict[str, float | int]:
        """The figures to print, ready for JSON."""
        return {"log_probability": self.mean, "log_probability_low": self.low, "log_probability_high": self.high,
                "answers": len(self.nats)}  # fmt: skip


def likelihood(
    evaluator: Evaluator,
    mask: Mask | None = None,
    *,
    ablation: str = "zero",
    seed: int = 0,
    draws: int = DRAWS,
) -> Likelihood:
    """Likelihood of the evaluator's right answers under a mask (None: the unpruned model).

    Two pseudo-answers are added for the interval: one with probability 1, and one with uniform probability.  seed: of
    the resampling.  Raises HeadlabError for another model's mask, and for outputs that are not finite.
    """
    nats, choices = nats_of(
        evaluator, full_mask(evaluator.model.grid) if mask is None else mask, ablation
    )
    _, groups = answer_names(evaluator.examples, evaluator.inputs.units)
    made_up = (0.0, -float(np.log(choices)))
    rng = np.random.default_rng([seed, STREAM])
    low, high, _ = group_bootstrap(nats[None], groups, rng, made_up=made_up, draws=draws)
    return Likelihood(float(nats.mean()), float(low[0]), float(high[0]), nats, groups)


def gain(before: Likelihood, after: Likelihood, *, seed: int = 0, draws: int = DRAWS) -> Paired:
    """Gain in nats per answer of one model over another on the same answers, resampled by group.

    Raises HeadlabError where the answers differ.
    """
    if before.groups != after.groups:
        raise HeadlabError(
            "the two were measured on different answers; compare models with the same tokenizer, on the same language",
            code="likelihood.other_answers",
        )
    return paired_bootstrap(
        before.nats, after.nats, before.groups, np.random.default_rng([seed, STREAM]), draws
    )


def nats_of(evaluator: Evaluator, mask: Mask, ablation: str) -> tuple[Floats, int]:
    """Log-probability of each answer, float64 [answer], and the number of possible answers.

    Raises HeadlabError for outputs that are not finite.
    """
    choices = 1

    def read(batch: Batch, logits: torch.Tensor, targets: torch.Tensor) -> list[Floats]:
        nonlocal choices
        choices, flat = logits.shape[-1], targets.flatten()
        wide = logits if logits.dtype == torch.float64 else logits.float()
        lost = cross_entropy(wide.flatten(0, -2), flat, ignore_index=IGNORED, reduction="none")
        found = -lost[flat != IGNORED].double().cpu().numpy()
        return np.split(found, np.cumsum(evaluator.inputs.units[batch.rows])[:-1])

    nats = np.concatenate(evaluator.each(np.arange(len(evaluator.examples)), mask, ablation, read))
    if not np.isfinite(nats).all():
        raise not_finite(
            evaluator.model,
            "a right answer no probability at all, so its log-probability is not finite",
            code="model.answers_not_finite",
        )
    return nats, choices


MOST_NATS = 700.0  # a word: its perplexity is beyond a float's range, so what stands between spaces are no words


def text_rates(evaluator: Evaluator, sure: Likelihood, *, seed: int = 0) -> dict[str, float]:
    """Bits per byte and perplexity of a word of texts whose every token was predicted, each with its 95 % interval.

    sure: likelihood of the evaluator's answers.  Documents are resampled as a whole, with two pseudo-tokens of mean
    length.  Empty where texts are not predicted token by token; without the perplexity where words are not separated.
    """
    if not isinstance(evaluator.inputs, NextTokens) or evaluator.inputs.masked:
        return {}
    texts = [example.target or "" for example in evaluator.examples]
    groups = [example.cluster for example in evaluator.examples]
    lost = np.array(
        [-part.sum() for part in np.split(sure.nats, np.cumsum(evaluator.inputs.units)[:-1])]
    )
    most = float(np.log(evaluator.model.module.config.get_text_config().vocab_size))
    many = len(sure.nats)
    found: dict[str, float] = {}
    for name, of in (("bits_per_byte", _bytes), ("word_perplexity", _words)):
        if of is _words and unspaced(evaluator.language):
            continue
        sizes = np.array([of(text) for text in texts])
        ends = per_size(lost, sizes, groups, (sizes.sum() / many, most), seed=seed)
        if of is _words and max(ends) > MOST_NATS:
            continue
        shown = [end / float(np.log(2)) if of is _bytes else float(np.exp(end)) for end in ends]
        found |= dict(zip((name, f"{name}_low", f"{name}_high"), shown, strict=True))
    return found


def _bytes(text: str) -> float:
    return float(len(text.encode()))


def _words(text: str) -> float:
    return float(max(1, len(text.split())))


def per_size(
    lost: Floats,
    sizes: Floats,
    groups: Sequence[str],
    made_up: tuple[float, float],
    *,
    seed: int,
    draws: int = DRAWS,
) -> tuple[float, float, float]:
    """Nats lost in all per unit of size in all, with its 95 % interval by resampling whole groups.

    lost, sizes: float [text].  made_up: size of two pseudo-tokens, which are groups of their own, and what one of them
    loses; the other loses nothing.
    """
    _, member = np.unique(np.array(groups), return_inverse=True)
    columns = np.stack([np.bincount(member, one) for one in (lost, sizes)], axis=1)
    size, most = made_up
    drawn = resampled_sums(np.vstack([columns, [0.0, size], [most, size]]), [seed, STREAM], draws)
    low, high = np.quantile(drawn[0] / drawn[1], [0.025, 0.975])
    return float(lost.sum() / sizes.sum()), float(low), float(high)


def normalised(evaluator: Evaluator, mask: Mask | None = None, *, ablation: str = "zero") -> Bools:
    """Whether each right choice has the highest log-probability a byte, bool [example]; for tasks with choices.

    This is `acc_norm` of lm-evaluation-harness, with bytes where that counts characters.
    """
    inputs = evaluator.inputs
    assert isinstance(inputs, Chosen)

    def read(batch: Batch, logits: torch.Tensor, targets: torch.Tensor) -> list[bool]:
        sizes = torch.as_tensor(inputs.bytes[batch.rows], device=logits.device).clamp(min=1)
        best: list[bool] = ((logits.double() / sizes).argmax(dim=-1) == targets).tolist()
        return best

    kept = full_mask(evaluator.model.grid) if mask is None else mask
    return np.array(evaluator.each(np.arange(len(evaluator.examples)), kept, ablation, read))
