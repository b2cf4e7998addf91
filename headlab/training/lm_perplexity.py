"""How well and how fast a language model predicts a text.

Perplexity with an interval, ratios, speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy
import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from headlab.core import Floats, HeadlabError, Ints, Rows, run_halving, timed_pass
from headlab.models.allattention import AllAttentionForCausalLM
from headlab.training.lm_text import Corpus

# How well a language model predicts a text: perplexity with an interval, and the ratio of two on
# the same text.

PASSAGE = 2000  # tokens per sampling unit: neighbouring tokens are not independent
MIN_PASSAGES = 20  # minimum number of passages, if the text has that many tokens
MIN_FOR_INTERVAL = 3  # minimum number of passages for an interval
MAX_NATS = 700.0  # exp of more overflows
DIGITS = 6  # decimals of a passage's word count, a sum of fractions
ROWS = 16  # windows computed together


class Perplexity(NamedTuple):
    """Perplexity: exp of the mean nats per word, and of the mean nats per token.

    That of words has its 95 % interval over passages.

    Attributes:
        nats: Mean per word. word and its ends are None if they overflow, as in scripts without
            spaces; the ends also for fewer than 3 passages.
        words, passages: How many were evaluated.
    """

    word: float | None
    low: float | None
    high: float | None
    token: float | None
    nats: float
    words: int
    passages: int


class PerplexityRatio(NamedTuple):
    """One perplexity divided by another on the same text, with its 95 % interval.

    None as in `Perplexity`.
    """

    value: float | None
    low: float | None
    high: float | None


def perplexity(sums: Floats) -> Perplexity:
    """Perplexity from sums over passages, float [passage, 3]: nats, words, tokens.

    exp(Σ nats / Σ words), so that models with different tokenizers can be compared.
    """
    nats, words, tokens = (float(x) for x in sums.sum(axis=0))
    low, high = _interval(sums[:, 0], sums[:, 1])
    return Perplexity(
        _exp(nats / words), low, high, _exp(nats / tokens), nats / words, round(words), len(sums)
    )


def perplexity_ratio(sums_before: Floats, sums_after: Floats) -> PerplexityRatio:
    """`after` relative to `before`, paired by passage of the same text; 1.02: two per cent higher.

    Raises HeadlabError if the passages are not the same.
    """
    if sums_before.shape != sums_after.shape or not np.array_equal(
        sums_before[:, 1], sums_after[:, 1]
    ):
        raise HeadlabError(
            "the two models were not measured on the same text; measure both on one text",
            code="lm.other_text",
        )
    gain = sums_after[:, 0] - sums_before[:, 0]
    words = sums_before[:, 1]
    return PerplexityRatio(_exp(float(gain.sum() / words.sum())), *_interval(gain, words))


def _interval(
    values: Floats, sizes: Floats, level: float = 0.95
) -> tuple[float | None, float | None]:
    """The t interval of R = Σ values / Σ sizes over sampled passages, after exp.

    The linearised variance is S / (S - 1) · Σ (value - R size)² / (Σ sizes)² over S passages, with
    S - 1 degrees of freedom (Cochran 1977, chapter 6): for few passages it keeps a coverage that
    resampling them does not.
    """
    count = len(values)
    if count < MIN_FOR_INTERVAL:
        return None, None
    ratio = values.sum() / sizes.sum()
    error = np.sqrt(count / (count - 1) * ((values - ratio * sizes) ** 2).sum()) / sizes.sum()
    width = scipy.stats.t.ppf((1 + level) / 2, count - 1) * error
    return _exp(float(ratio - width)), _exp(float(ratio + width))


def _exp(nats: float) -> float | None:
    if nats < MAX_NATS:
        return float(np.exp(nats))
    return None


def passages(corpus: Corpus, nats: Floats, tokens: int = PASSAGE) -> Floats:
    """Sums over passages, float [passage, 3]: nats, words, tokens.

    A passage is whole lines of `tokens` or more in all; shorter if the text would otherwise have
    fewer than 20.  If lines are too few for that, 20 equal parts cut within lines, where each token
    of a line is an equal part of its words.

    Args:
        nats: [predicted token].
    """
    length = max(1, min(tokens, corpus.predicted_tokens // MIN_PASSAGES))
    ends = np.cumsum(corpus.line_tokens)
    by_line = (ends - corpus.line_tokens) // length  # assigned by where the line begins
    member = np.unique(np.repeat(by_line, corpus.line_tokens), return_inverse=True)[1]
    if member.max() + 1 < MIN_PASSAGES:
        member = np.unique(
            np.arange(corpus.predicted_tokens) * MIN_PASSAGES // corpus.predicted_tokens,
            return_inverse=True,
        )[1]
    words = np.bincount(
        member, np.repeat(corpus.line_words / corpus.line_tokens, corpus.line_tokens)
    )
    # rounded: whole lines have whole numbers of words
    return np.stack(
        [np.bincount(member, nats), words.round(DIGITS), np.bincount(member)], axis=1
    ).astype(np.float64)


def token_nats(
    model: PreTrainedModel, corpus: Corpus, block: int, tick: Callable[[], None] = lambda: None
) -> Floats:
    """-log p of every token of a text but the first, nats, float64 [predicted token].

    Windows of `block` tokens overlap by half, so that each token is predicted from at least block /
    2 before it (the first ones of the text from all there are).
    """
    step = max(1, block // 2)
    starts = np.arange(0, max(1, corpus.predicted_tokens - (block - step)), step)
    nats = np.zeros(corpus.predicted_tokens)

    def run(part: Rows) -> None:
        tick()
        for window_start, window_nats in zip(
            starts[part.rows],
            _window_nats(model, corpus.ids, starts[part.rows], block),
            strict=True,
        ):
            context = 0 if window_start == 0 else block - step
            end = min(block, corpus.predicted_tokens - int(window_start))
            nats[window_start + context : window_start + end] = window_nats[context:end]

    run_halving(
        (
            Rows(np.arange(first_row, min(first_row + ROWS, len(starts))))
            for first_row in range(0, len(starts), ROWS)
        ),
        run,
    )
    return nats


def _window_nats(model: PreTrainedModel, ids: Ints, starts: Ints, block: int) -> Floats:
    """Nats of the tokens of some windows, float64 [window, token]; 0 past the end of the text."""
    positions = starts[:, None] + np.arange(block + 1)
    is_in_text = positions < len(ids)
    rows = torch.as_tensor(ids[np.where(is_in_text, positions, len(ids) - 1)], device=model.device)
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        logits = model(rows[:, :-1]).logits
        nats = cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten(), reduction="none")
    model.train(was_training)
    return np.where(is_in_text[:, 1:], nats.view(len(starts), block).double().cpu().numpy(), 0.0)


# Speed of models relative to one another, timed side by side in one run; absolute times are not
# reported.

LOW = 0.25
HIGH = 0.75


class RelativeSpeed(NamedTuple):
    """Speed relative to the first model, of the whole model and of its layers alone.

    Median and quartiles over rounds.
    """

    whole: float
    whole_low: float
    whole_high: float
    layers: float
    layers_low: float
    layers_high: float


def speeds(
    models: Mapping[str, AllAttentionForCausalLM],
    *,
    tokens: int,
    rows: int = 8,
    rounds: int = 15,
    clock: Callable[[], float] = time.perf_counter,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, RelativeSpeed]:
    """Time a forward pass of each model on the same rows of tokens, and compare.

    All models are timed in every round.

    A round's ratio is to the first model in the same round, so what slows the machine slows both.
    Each timed pass follows an untimed one of the same model, so that none is affected by the model
    before it.
    """
    first_model = next(iter(models.values()))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, first_model.config.vocab_size, (rows, tokens), generator=generator).to(
        first_model.device
    )
    seconds = np.zeros((rounds, len(models), 2))
    with torch.inference_mode():
        for round_number in range(rounds):
            for number, model in enumerate(models.values()):
                tick()
                seconds[round_number, number] = [
                    timed_pass(partial(part, ids), ids.device, clock)
                    for part in (model, model.model)
                ]
    ratios = seconds[:, :1] / seconds
    return {name: _speed(ratios[:, number]) for number, name in enumerate(models)}


def _speed(ratios: Floats) -> RelativeSpeed:
    """Medians and quartiles of ratios [round, whole or layers]."""
    middle, low, high = (np.quantile(ratios, q, axis=0) for q in (0.5, LOW, HIGH))
    return RelativeSpeed(
        *(float(x) for x in (middle[0], low[0], high[0], middle[1], low[1], high[1]))
    )
