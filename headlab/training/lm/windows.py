"""Which windows of a text a step is made on: a function of seed and step, so that a resumed run needs no history."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from headlab.errors import HeadlabError
from headlab.records import Ints
from headlab.training.steps import Pace


class StepOptions(Pace, Protocol):
    """What the steps of a language model's training are told: `Pace`, of windows of text."""

    @property
    def block(self) -> int:
        """Tokens a window."""
        ...


def step_windows(asked: int, options: StepOptions, step: int) -> Ints:
    """Where the windows of a step begin, int [batch], in a text with so many tokens to predict.

    An epoch cuts the text at another place each time and shuffles the windows.  Raises HeadlabError for a text shorter
    than a batch.
    """
    each_epoch = steps_an_epoch(asked, options)
    epoch, at = divmod(step, each_epoch)
    rng = np.random.default_rng((options.seed, epoch))
    first = int(rng.integers(options.block))
    windows = rng.permutation(_windows(asked, options))[at * options.batch : (at + 1) * options.batch]
    return first + options.block * windows.astype(np.int64)


def steps_an_epoch(asked: int, options: StepOptions) -> int:
    """Whole batches in one pass over the text. Raises HeadlabError if there is none."""
    found = _windows(asked, options) // options.batch
    if not found:
        raise HeadlabError(
            f"the text has {asked} tokens, fewer than {options.batch} windows of {options.block}; "
            "give a longer one, or a smaller batch or block",
            code="lm.text_too_short",
        )
    return found


def _windows(asked: int, options: StepOptions) -> int:
    """Windows that fit wherever the first one begins."""
    return max(0, asked - options.block + 1) // options.block
