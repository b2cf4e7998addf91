"""Where the positions of one text are in another, whose choices are packed behind its context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headlab.core import Ints

NOWHERE = -1
"""For a position at which the other text has ended."""
PADDING = -1


@dataclass(frozen=True)
class Packing:
    """Contexts whose continuations stand behind them in one row, as if each alone followed.

    Attributes:
        segments: Of each token, 0 for the context, or the number of its continuation, from 1;
            `PADDING` behind the end, int [text, token].
        contexts: Tokens of each context, int [text].
        sizes: Tokens of each continuation, int [text, continuation]; the last column is of none.
        starts: Where in the row each continuation starts, in the shape of `sizes`.
    """

    segments: Ints
    contexts: Ints
    sizes: Ints
    starts: Ints

    @classmethod
    def of(cls, segments_of_texts: Sequence[Sequence[int]]) -> Packing:
        """The packing of texts.

        Args:
            segments_of_texts: Of each text's tokens, as in `segments`, [text][token].
        """
        width = max(map(len, segments_of_texts))
        segments = np.full((len(segments_of_texts), width), PADDING, np.int64)
        for row, segments_of_text in enumerate(segments_of_texts):
            segments[row, : len(segments_of_text)] = segments_of_text
        numbers = np.arange(1, segments.max(initial=0) + 2)
        sizes = np.stack([(segments == number).sum(axis=1) for number in numbers], axis=1)
        contexts = (segments == 0).sum(axis=1)
        starts = contexts[:, None] + np.cumsum(sizes, axis=1) - sizes
        return cls(segments, contexts, sizes, starts)

    def places(self, rows: Ints, others: Packing, texts: Ints) -> Ints:
        """Where in another text the position of each token is, int [row, token].

        A token of a continuation has the position that it would have were there no other
        continuation, and finds there the other text's context, or its continuation of the same
        number. A token of the context finds the other's context. It is `NOWHERE` if there is none.

        Args:
            rows: The text of each row, int [row].
            others: The packing of the other texts.
            texts: The other text of each row, int [row].
        """
        segments = self.segments[rows]
        segments = segments[:, : int((segments != PADDING).sum(axis=1).max(initial=0))]
        tokens = np.arange(segments.shape[1])
        number = np.maximum(segments, 1) - 1
        start = np.take_along_axis(self.starts[rows], number, axis=1)
        position = np.where(segments > 0, self.contexts[rows][:, None] + tokens - start, tokens)
        other_context = others.contexts[texts][:, None]
        other_number = np.minimum(number, others.sizes.shape[1] - 1)  # the last has no token
        other_size = np.take_along_axis(others.sizes[texts], other_number, axis=1)
        other_start = np.take_along_axis(others.starts[texts], other_number, axis=1)
        behind = position - other_context
        is_continued = (segments > 0) & (behind < other_size)
        place = np.where(is_continued, other_start + behind, NOWHERE)
        place = np.where(behind < 0, position, place)
        return np.where(segments == PADDING, NOWHERE, place)

    def share_beyond(self) -> float:
        """Share of the positions that are `NOWHERE` in another text, over all pairs of texts."""
        layouts = np.column_stack([self.contexts, self.sizes])
        distinct, counts = np.unique(layouts, axis=0, return_counts=True)
        contexts, sizes = distinct[:, 0], distinct[:, 1:]
        ends = contexts[:, None] + sizes
        beyond = 0.0
        for layout, count in zip(distinct, counts, strict=True):
            of_context = np.maximum(layout[0] - contexts, 0)
            of_continuations = np.clip(layout[0] + layout[1:] - ends, 0, layout[1:]).sum(axis=1)
            beyond += float(count * (counts @ (of_context + of_continuations)))
        return beyond / (len(self.contexts) - 1) / float((self.segments != PADDING).sum())
