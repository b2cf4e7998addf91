"""Translations while some heads are switched off, their BLEU and references' likelihood."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import cast

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import DynamicCache, EncoderDecoderCache, LogitsProcessor, LogitsProcessorList

from headlab.core import (
    Bools,
    Floats,
    HeadlabError,
    Ints,
    Tick,
    one_thread,
    require_own_output,
    run_in_parallel,
)
from headlab.evaluation.bleu import Bleu, bleu, sacrebleu_metric
from headlab.evaluation.context import max_text_tokens
from headlab.evaluation.encoding import NO_TARGET, ChoiceAnswers, NextTokens, lengths, pad
from headlab.evaluation.evaluator import Batch, Evaluator, length_sorted_batches, token_budget
from headlab.evaluation.inputs import LanguageSetup, encode_sources, language_setup
from headlab.hooks import ActiveGates, Gates, Model, as_gate_tensor, not_finite_error
from headlab.masks import Mask, full_mask
from headlab.stats import (
    DRAWS,
    PairedDifference,
    group_bootstrap,
    paired_bootstrap,
    resampled_sums,
)
from headlab.tasks import Example, Split, Task, answer_names, languages_of_pair, writes_no_spaces

# Translations of a task's sources while some heads are switched off, and their BLEU.

ROWS = 128  # sentences x beams generated in parallel
# A model without the heads it needs may never stop, so a translation has at most this many tokens
# for each of its source, and some more.
TOKENS_PER_SOURCE_TOKEN = 2
EXTRA_TOKENS = 10
# Overrides for a model's generation settings that would change the search or the length limits,
# return something other than token ids, or need further inputs.
GENERATION_OVERRIDES: Mapping[str, bool | int | None] = MappingProxyType(
    {
        "do_sample": False,
        "use_cache": True,
        "max_new_tokens": None,
        "min_new_tokens": None,
        "max_time": None,
        "num_return_sequences": 1,
        "return_dict_in_generate": False,
        "output_scores": False,
        "output_logits": False,
        "output_attentions": False,
        "output_hidden_states": False,
        "num_beam_groups": None,
        "penalty_alpha": None,
        "dola_layers": None,
        "prompt_lookup_num_tokens": None,
        "assistant_early_exit": None,
        "constraints": None,
        "force_words_ids": None,
        "cache_implementation": None,
        "stop_strings": None,
        "guidance_scale": None,
        "token_healing": False,
    }
)


@dataclass(frozen=True)
class Decoding:
    """How translations are decoded.

    Attributes:
        beams: Width of the beam search; 1 is greedy decoding.
    """

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

    The model's own generation settings apply for tokens and scores (length penalty, forbidden
    tokens, ...), but not for search, length and return values. A translation has at most twice its
    source's tokens plus 10. The result does not depend on the number of threads.

    Args:
        evaluator: Of a translation model.
        gates: A mask, or bool or float [layer, head]; None for the unpruned model.
        ablation: What stands in the place of a removed head.
        decoding: Greedy if left out.

    Raises:
        HeadlabError: The model cannot generate or has no code for a language, or the gates do not
            fit it.
    """
    if decoding is None:
        decoding = Decoding()
    decoding.check()
    model = evaluator.model
    check_model(model, evaluator.language)
    require_own_output(ablation, "translations are written")
    gate_tensor = _gates_of(model, gates)
    setup = language_setup(model.module.config, model.tokenizer, evaluator.language)
    sources = TranslationSources(model, [example.text for example in evaluator.examples], setup)
    with one_thread(model.device):
        fill = evaluator.fill(ablation)
    settings = {"num_beams": decoding.beams, **setup.settings()}

    def write(batch: Batch, tick: Tick) -> list[list[int]]:
        limits = sources.limits[batch.rows]
        with torch.inference_mode(), model.active(ActiveGates(gates=gate_tensor, fill=fill)):
            return _generate_batch(model, batch.inputs, limits, settings, tick)

    tokens_by_row: dict[int, list[int]] = {}
    all_rows = np.arange(len(sources.lengths))
    max_rows = max(1, ROWS // decoding.beams)
    batches = length_sorted_batches(sources, all_rows, token_budget(model), max_rows)
    for batch, translation_tokens in run_in_parallel(
        batches, write, model=model, tick=evaluator.tick
    ):
        evaluator.forwards += len(translation_tokens)
        tokens_by_row |= zip(batch.rows.tolist(), translation_tokens, strict=True)
    return tuple(_decoded_text(model, tokens_by_row[row]) for row in range(len(tokens_by_row)))


def translated_bleu(
    evaluator: Evaluator,
    gates: Gates | None = None,
    *,
    ablation: str = "zero",
    decoding: Decoding | None = None,
    seed: int = 0,
) -> Bleu:
    """BLEU of the model's translations of the evaluator's examples.

    Args:
        evaluator: As in `translations`, like the next three.
        gates: Which heads are on, and how far.
        ablation: What stands in the place of a removed head.
        decoding: Greedy if left out.
        seed: Seed of the interval's resampling.

    Raises:
        HeadlabError: As in `translations`, or the task has no targets.
    """
    references = _references(evaluator.task, evaluator.examples)
    texts = translations(evaluator, gates, ablation=ablation, decoding=decoding)
    groups = [example.cluster for example in evaluator.examples]
    _, target_language = languages_of_pair(evaluator.language)
    return bleu(texts, references, language=target_language, groups=groups, seed=seed)


def check_bleu(task: Task, language: str, split: Split, decoding: Decoding) -> None:
    """Raise HeadlabError early where `translated_bleu` would fail.

    Failures that depend on the model are not found.
    """
    decoding.check()
    if task.likelihood:
        raise HeadlabError(
            f"task {task.name} is for language models, which continue its texts; BLEU needs a translation task",
            code="task.not_translation",
        )
    _references(task, task.examples(language, split, 1))
    sacrebleu_metric(languages_of_pair(language)[1])


def _references(task: Task, examples: Sequence[Example]) -> list[str]:
    targets = [example.target for example in examples if example.target is not None]
    if len(targets) < len(examples):
        raise HeadlabError(
            f"task {task.name} has labels, not texts to generate; BLEU needs a translation task",
            code="task.not_translation",
        )
    return targets


class TranslationSources:
    """Texts to translate, tokenised once.

    Attributes:
        lengths: Number of tokens of each text, int [row].
        limits: Maximum number of tokens of each translation, int [row].
    """

    def __init__(self, model: Model, texts: Sequence[str], setup: LanguageSetup) -> None:
        self.model = model
        self._tokens = encode_sources(model, texts, setup)
        self.lengths: Ints = lengths(self._tokens["input_ids"])
        limits_by_source = TOKENS_PER_SOURCE_TOKEN * self.lengths + EXTRA_TOKENS
        self.limits: Ints = np.minimum(limits_by_source, max_text_tokens(model, targets=True) - 1)

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of some rows, padded to the longest of them."""
        return pad(self.model, self._tokens, rows)


class LengthLimit(LogitsProcessor):
    """Ends every text at its own limit, independently of the rest of its batch.

    Args:
        model: Which writes the texts.
        limits: Maximum number of tokens of each row, the end token included, int [row].
        end: The end token.
        tick: Called at every token.
    """

    def __init__(self, model: Model, limits: torch.Tensor, end: int, tick: Tick) -> None:
        self.model = model
        self.limits = limits
        self.end = end
        self.tick = tick

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, given the tokens so far with the start, [row, vocabulary]."""
        self.tick()
        if not bool(scores.amax(dim=-1).isfinite().all()):
            raise not_finite_error(
                self.model,
                "outputs that are not finite while it translates",
                code="model.answers_not_finite",
            )
        has_ended = input_ids.shape[1] >= self.limits
        end_scores = torch.full_like(scores, float("-inf"))
        end_scores[:, self.end] = 0.0
        return torch.where(has_ended[:, None], end_scores, scores)


def _generate_batch(
    model: Model,
    inputs: Mapping[str, torch.Tensor],
    limits: Ints,
    settings: Mapping[str, int],
    tick: Tick,
) -> list[list[int]]:
    """Tokens of one batch's translations, without the start.

    Args:
        model: A translation model.
        inputs: The sources, by name.
        limits: Maximum number of tokens of each translation, int [row].
        settings: Of `generate` of transformers.
        tick: Called at every token.
    """
    limits_of_rows = torch.as_tensor(limits, device=model.device)
    limits_of_beams = limits_of_rows.repeat_interleave(settings["num_beams"])
    length_limit = LengthLimit(model, limits_of_beams, _end_token(model), tick)
    # Without this one, transformers creates a T5's cache with as many layers as its encoder has.
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    # By keyword, not as a configuration, in which None would be replaced by the model's own
    # setting.
    generate = cast(Callable[..., torch.Tensor], model.module.generate)
    tokens = generate(
        **inputs,
        **GENERATION_OVERRIDES,
        **settings,
        max_length=int(limits.max()) + 1,
        logits_processor=LogitsProcessorList([length_limit]),
        past_key_values=cache,
    )
    rows: list[list[int]] = tokens[:, 1:].tolist()
    return rows


def _decoded_text(model: Model, tokens: list[int]) -> str:
    # Padding after the end depends on the batch, and is a special token like the end itself.
    text = model.tokenizer.decode(
        tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return str(text).strip()


def _end_token(model: Model) -> int:
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
    """Raise HeadlabError for a model that cannot translate a language.

    It cannot generate, or it needs a code for the language that it does not have.
    """
    module = model.module
    if not (module.config.is_encoder_decoder and module.can_generate()):
        raise HeadlabError(
            f"{model.name} is a {type(module).__name__}, which does not translate; use a translation model, like "
            "one that `headlab train translation` makes",
            code="model.not_translation",
        )
    language_setup(module.config, model.tokenizer, language)


def _gates_of(model: Model, gates: Gates | None) -> torch.Tensor:
    gate_tensor = as_gate_tensor(model, full_mask(model.grid) if gates is None else gates)
    if gate_tensor.dim() != 2:
        raise HeadlabError(
            "all translations are generated under one mask; give gates of shape [layer, head]",
            code="gate.not_one_mask",
        )
    return gate_tensor


# Likelihood of the right answers: mean log-probability per token of reference translations, and its
# gain.

STREAM = 31  # separates these draws from others with the same seed


@dataclass(frozen=True)
class Likelihood:
    """Mean log-probability of the right answers, nats per answer.

    For a translation, that is per token, given the tokens before it.

    Attributes:
        mean: Mean over the answers.
        low: Lower end of its 95 % interval.
        high: Upper end.
        nats: Log-probability of each answer, float [answer].
        groups: The group of each answer; a group is resampled as a whole.
    """

    mean: float
    low: float
    high: float
    nats: Floats
    groups: tuple[str, ...]

    def record(self) -> dict[str, float | int]:
        """The figures to print, ready for JSON."""
        return {
            "log_probability": self.mean,
            "log_probability_low": self.low,
            "log_probability_high": self.high,
            "answers": len(self.nats),
        }


def likelihood(
    evaluator: Evaluator,
    mask: Mask | None = None,
    *,
    ablation: str = "zero",
    seed: int = 0,
    draws: int = DRAWS,
) -> Likelihood:
    """Likelihood of the evaluator's right answers under a mask.

    Two pseudo-answers are added for the interval: one with probability 1, and one with uniform
    probability.

    Args:
        evaluator: Of the examples.
        mask: Of the model's heads; None for the unpruned model.
        ablation: What stands in the place of a removed head.
        seed: Seed of the resampling.
        draws: Number of resamples.

    Raises:
        HeadlabError: The mask is another model's, or outputs are not finite.
    """
    if mask is None:
        mask = full_mask(evaluator.model.grid)
    nats, choice_count = answer_log_probabilities(evaluator, mask, ablation)
    _, groups = answer_names(evaluator.examples, evaluator.inputs.units)
    pseudo_answers = (0.0, -float(np.log(choice_count)))
    rng = np.random.default_rng([seed, STREAM])
    low, high, _ = group_bootstrap(
        nats[None], groups, rng, pseudo_values=pseudo_answers, draws=draws
    )
    return Likelihood(float(nats.mean()), float(low[0]), float(high[0]), nats, groups)


def gain(
    before: Likelihood, after: Likelihood, *, seed: int = 0, draws: int = DRAWS
) -> PairedDifference:
    """Gain in nats per answer of one model over another on the same answers, resampled by group.

    Args:
        before: Of the one model.
        after: Of the other, from which the first is subtracted.
        seed: Seed of the resampling.
        draws: Number of resamples.

    Raises:
        HeadlabError: The two are of different answers.
    """
    if before.groups != after.groups:
        raise HeadlabError(
            "the two were measured on different answers; compare models with the same tokenizer, on the same language",
            code="likelihood.other_answers",
        )
    rng = np.random.default_rng([seed, STREAM])
    return paired_bootstrap(before.nats, after.nats, before.groups, rng, draws)


def answer_log_probabilities(evaluator: Evaluator, mask: Mask, ablation: str) -> tuple[Floats, int]:
    """Log-probability of each right answer, float64 [answer], and the number of possible answers.

    Raises:
        HeadlabError: Outputs are not finite.
    """
    choice_count = 1

    def read(batch: Batch, logits: torch.Tensor, targets: torch.Tensor) -> list[Floats]:
        nonlocal choice_count
        choice_count = logits.shape[-1]
        flat_targets = targets.flatten()
        exact_logits = logits if logits.dtype == torch.float64 else logits.float()
        nats_lost = cross_entropy(
            exact_logits.flatten(0, -2), flat_targets, ignore_index=NO_TARGET, reduction="none"
        )
        log_probabilities = -nats_lost[flat_targets != NO_TARGET].double().cpu().numpy()
        ends_of_examples = np.cumsum(evaluator.inputs.units[batch.rows])
        return np.split(log_probabilities, ends_of_examples[:-1])

    all_rows = np.arange(len(evaluator.examples))
    nats = np.concatenate(evaluator.each(all_rows, mask, ablation, read))
    if not np.isfinite(nats).all():
        raise not_finite_error(
            evaluator.model,
            "a right answer no probability at all, so its log-probability is not finite",
            code="model.answers_not_finite",
        )
    return nats, choice_count


# Of a word. Beyond it, the perplexity leaves a float's range: what stands between spaces are no
# words.
MAX_WORD_NATS = 700.0


def text_rates(
    evaluator: Evaluator, likelihood_of_texts: Likelihood, *, seed: int = 0
) -> dict[str, float]:
    """Bits per byte and perplexity of a word, each with its 95 % interval.

    Documents are resampled as a whole, with two pseudo-tokens of mean length.

    Args:
        evaluator: Of texts whose every token was predicted.
        likelihood_of_texts: Likelihood of the evaluator's answers.
        seed: Seed of the resampling.

    Returns:
        Rates by name. None where texts are not predicted token by token, and no perplexity where
        words are not separated.
    """
    if not isinstance(evaluator.inputs, NextTokens) or evaluator.inputs.masked:
        return {}
    texts = [example.target or "" for example in evaluator.examples]
    groups = [example.cluster for example in evaluator.examples]
    nats_by_text = np.split(likelihood_of_texts.nats, np.cumsum(evaluator.inputs.units)[:-1])
    nats_lost = np.array([-nats.sum() for nats in nats_by_text])
    vocabulary_size = evaluator.model.module.config.get_text_config().vocab_size
    uniform_nats = float(np.log(vocabulary_size))
    token_count = len(likelihood_of_texts.nats)
    rates: dict[str, float] = {}

    byte_counts = np.array([float(len(text.encode())) for text in texts])
    pseudo_token = (byte_counts.sum() / token_count, uniform_nats)
    nats_per_byte = nats_per_unit(nats_lost, byte_counts, groups, pseudo_token, seed=seed)
    bits_per_byte = [nats / float(np.log(2)) for nats in nats_per_byte]
    rates |= _with_interval("bits_per_byte", bits_per_byte)

    if writes_no_spaces(evaluator.language):
        return rates
    word_counts = np.array([float(max(1, len(text.split()))) for text in texts])
    pseudo_token = (word_counts.sum() / token_count, uniform_nats)
    nats_per_word = nats_per_unit(nats_lost, word_counts, groups, pseudo_token, seed=seed)
    if max(nats_per_word) > MAX_WORD_NATS:
        return rates
    perplexities = [float(np.exp(nats)) for nats in nats_per_word]
    rates |= _with_interval("word_perplexity", perplexities)
    return rates


def _with_interval(name: str, rate_and_ends: Sequence[float]) -> dict[str, float]:
    """A rate and the lower and upper end of its interval, by their names."""
    rate, low, high = rate_and_ends
    return {name: rate, f"{name}_low": low, f"{name}_high": high}


def nats_per_unit(
    nats_lost: Floats,
    sizes: Floats,
    groups: Sequence[str],
    pseudo_token: tuple[float, float],
    *,
    seed: int,
    draws: int = DRAWS,
) -> tuple[float, float, float]:
    """Nats lost in all per unit of size in all, with its 95 % interval by resampling whole groups.

    Two pseudo-tokens are added, which are groups of their own: one loses nats, the other none.

    Args:
        nats_lost: Nats that each text loses, float [text].
        sizes: Size of each text, float [text].
        groups: The group of each text.
        pseudo_token: Size of a pseudo-token, and the nats that one of the two loses.
        seed: Seed of the resampling.
        draws: Number of resamples.

    Returns:
        The rate, and the lower and upper end of its interval.
    """
    _, group_indices = np.unique(np.array(groups), return_inverse=True)
    nats_by_group = np.bincount(group_indices, nats_lost)
    size_by_group = np.bincount(group_indices, sizes)
    columns = np.stack([nats_by_group, size_by_group], axis=1)
    pseudo_size, pseudo_nats = pseudo_token
    rows = np.vstack([columns, [0.0, pseudo_size], [pseudo_nats, pseudo_size]])
    sums_by_draw = resampled_sums(rows, [seed, STREAM], draws)
    low, high = np.quantile(sums_by_draw[0] / sums_by_draw[1], [0.025, 0.975])
    return float(nats_lost.sum() / sizes.sum()), float(low), float(high)


def right_by_bytes(
    evaluator: Evaluator, mask: Mask | None = None, *, ablation: str = "zero"
) -> Bools:
    """Whether each right choice has the highest log-probability a byte, bool [example].

    This is `acc_norm` of lm-evaluation-harness, with bytes where that counts characters.

    Args:
        evaluator: Of a task with choices.
        mask: Of the model's heads; None for the unpruned model.
        ablation: What stands in the place of a removed head.
    """
    inputs = evaluator.inputs
    assert isinstance(inputs, ChoiceAnswers)

    def read(batch: Batch, logits: torch.Tensor, targets: torch.Tensor) -> list[bool]:
        sizes = torch.as_tensor(inputs.bytes[batch.rows], device=logits.device).clamp(min=1)
        is_right: list[bool] = ((logits.double() / sizes).argmax(dim=-1) == targets).tolist()
        return is_right

    if mask is None:
        mask = full_mask(evaluator.model.grid)
    all_rows = np.arange(len(evaluator.examples))
    return np.array(evaluator.each(all_rows, mask, ablation, read))
