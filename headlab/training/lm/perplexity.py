"""How well a language model predicts a text: perplexity with an interval, and ratios of two on the same text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from headlab.errors import HeadlabError
from headlab.memory import Rows, halving
from headlab.records import Floats, Ints
from headlab.stats.bootstrap import DRAWS
from headlab.training.lm.text import Corpus

PASSAGE = 2000  # tokens that are resampled together: what stands near in a text is alike
LEAST = 20  # passages that a text is cut into at least, where it is long enough
ROWS = 16  # windows computed together


class Perplexity(NamedTuple):
    """exp of the mean nats a word with its 95 % interval, and of the mean nats a token; passages resampled."""

    word: float
    low: float
    high: float
    token: float
    passages: int

    def record(self) -> dict[str, Any]:
        """Ready for JSON."""
        return self._asdict()


class Ratio(NamedTuple):
    """A perplexity divided by another one on the same text, with its 95 % interval."""

    value: float
    low: float
    high: float


def perplexity(sums: Floats, seed: int = 0, draws: int = DRAWS) -> Perplexity:
    """Perplexity of passages, float [passage, 3]: nats, words, tokens.

    exp(Σ nats / Σ words), so that models of different tokenizers can be compared.  The interval is the percentile one
    of passages resampled with replacement (blocks of a dependent series: Carlstein, 1986).
    """
    nats, words, tokens = sums.sum(axis=0)
    low, high = np.exp(_interval(sums[:, 0], sums[:, 1], seed, draws))
    return Perplexity(float(np.exp(nats / words)), float(low), float(high), float(np.exp(nats / tokens)), len(sums))


def perplexity_ratio(before: Floats, after: Floats, seed: int = 0, draws: int = DRAWS) -> Ratio:
    """`after` against `before`, passage by passage of the same text; 1.02: two per cent higher.

    Raises HeadlabError if the passages are not the same.
    """
    if before.shape != after.shape or not np.array_equal(before[:, 1], after[:, 1]):
        raise HeadlabError("the two models were not judged on the same text; measure both on one")
    gain, words = after[:, 0] - before[:, 0], before[:, 1]
    low, high = np.exp(_interval(gain, words, seed, draws))
    return Ratio(float(np.exp(gain.sum() / words.sum())), float(low), float(high))


def _interval(values: Floats, sizes: Floats, seed: int, draws: int, level: float = 0.95) -> Floats:
    """Percentiles of Σ values / Σ sizes over resamples of passages."""
    count = len(values)
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=draws).astype(np.float64)
    means = (drawn @ values) / (drawn @ sizes)
    found: Floats = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return found


def passages(corpus: Corpus, nats: Floats, tokens: int = PASSAGE) -> Floats:
    """Sums over passages of whole lines, float [passage, 3]: nats, words, tokens. nats: [token asked].

    tokens: a passage's length at least; shorter where the text would have fewer than 20 passages.
    """
    length = max(1, min(tokens, corpus.asked // LEAST))
    ends = np.cumsum(corpus.line_tokens)
    member = (ends - corpus.line_tokens) // length  # by where a line begins
    member = np.unique(member, return_inverse=True)[1]
    by_token = np.repeat(member, corpus.line_tokens)
    columns = [np.bincount(by_token, nats), np.bincount(member, corpus.line_words),
               np.bincount(member, corpus.line_tokens)]  # fmt: skip
    return np.stack(columns, axis=1).astype(np.float64)


def token_nats(model: PreTrainedModel, corpus: Corpus, block: int, tick: Callable[[], None] = lambda: None) -> Floats:
    """-log p of every token of a text but the first, nats, float64 [token asked].

    Windows of `block` tokens overlap by half, so that each token is predicted from block / 2 ones before it or more
    (the first ones of the text from all there are).
    """
    step = max(1, block // 2)
    starts = np.arange(0, max(1, corpus.asked - (block - step)), step)
    out = np.zeros(corpus.asked)

    def run(part: Rows) -> None:
        tick()
        for at, found in zip(starts[part.rows], _window_nats(model, corpus.ids, starts[part.rows], block), strict=True):
            skipped = 0 if at == 0 else block - step
            end = min(block, corpus.asked - int(at))
            out[at + skipped : at + end] = found[skipped:end]

    halving((Rows(np.arange(at, min(at + ROWS, len(starts)))) for at in range(0, len(starts), ROWS)), run)
    return out


def _window_nats(model: PreTrainedModel, ids: Ints, starts: Ints, block: int) -> Floats:
    """Nats of the tokens of some windows, float64 [window, token]; behind the text's end 0."""
    places = starts[:, None] + np.arange(block + 1)
    there = places < len(ids)
    rows = torch.as_tensor(ids[np.where(there, places, len(ids) - 1)], device=model.device)
    was = model.training
    model.eval()
    with torch.inference_mode():
        logits = model(rows[:, :-1]).logits
        found = cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten(), reduction="none")
    model.train(was)
    return np.where(there[:, 1:], found.view(len(starts), block).double().cpu().numpy(), 0.0)
