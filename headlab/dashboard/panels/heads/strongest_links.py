"""The sentences of a task in which a head has its strongest links of a kind, read in the background.

A page that lists them keeps a `SentenceSource` and draws this part:

    source = SentenceSource(choice.model, fingerprint, choice.task, language, head_key(head))
    sentences = sentences_read(client, source)      # what is read by now; it asks for no attention
    start_reading(client, source)                   # the action of a button
    ranked = rank_sentences(sentences.panels, source.head, kind)

or leaves button, progress and Stop to `draw_reading`. What is read belongs to the server, not to a
session: a reload, another kind of link, or a second page find it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import streamlit as st

from headlab.core import duration_text
from headlab.dashboard.frame import LatestValue, await_values, errors_as_sentences
from headlab.dashboard.names import head_from
from headlab.dashboard.panels.heads.attended_sentences import (
    MAX_OFFERED_SENTENCES,
    offered_examples,
)
from headlab.dashboard.widgets import button, redraw_every
from headlab.plots.matrices import PATTERNS, LinksOfKind, Panel, links_of_kind
from headlab.worker import AttentionRequest, Client, ExampleCard

MAX_TEXT_LENGTH = 2000
"""Characters of a text that the worker takes."""
MAX_SOURCES = 8
"""Heads, in one language each, whose sentences the server keeps: up to 32 MB each."""
UNWATCHED_SECONDS = 180.0
"""After this long without a page that shows it, reading stops. A hidden tab still asks each minute."""
REDRAW_SECONDS = 1.0
FEW_SENTENCES = 8
"""Sentences by whose pace the time that is left is known."""
FIRST_SECONDS = 0.5
"""So soon after its start, what is read is drawn by the run that started it."""


class SentenceSource(NamedTuple):
    """Whose attention is read, in which sentences.

    Attributes:
        model: Its name, as requests give it.
        fingerprint: Of its weights.
        task: Whose sentences they are.
        language: Code of their language.
        head: Key of the head.
    """

    model: str
    fingerprint: str
    task: str
    language: str
    head: str


@dataclass(frozen=True)
class ReadSentences:
    """How far the sentences of a source are read.

    Attributes:
        panels: The sentences read so far, in the task's order, each with the attention of the head
            and its text as title; None for a text that the worker does not take.
        total: How many sentences the task offers in this language: all of dev, up to
            `MAX_OFFERED_SENTENCES`.
        is_reading: Whether more are on their way.
        seconds_left: How long the rest will take, by the pace so far; None where that is not known.
        error: What ended the reading; None if nothing did.
    """

    panels: tuple[Panel | None, ...]
    total: int
    is_reading: bool = False
    seconds_left: float | None = None
    error: Exception | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all sentences are read."""
        return len(self.panels) == self.total

    @property
    def too_long(self) -> int:
        """How many of those read were left out, as their text is too long for the worker."""
        return self.panels.count(None)

    @property
    def total_words(self) -> str:
        """All of the sentences: 'all 512 sentences', or 'the first 1,000 sentences' of more."""
        words = f"{self.total:,} sentence{'s' * (self.total != 1)}"
        if self.total == MAX_OFFERED_SENTENCES:
            return f"the first {words}"
        return f"all {words}"

    @property
    def progress_words(self) -> str:
        """How many are read: '64 of 512 sentences read, 2 min left'."""
        words = f"{len(self.panels):,} of {self.total:,} sentences read"
        if self.seconds_left is None:
            return words
        return f"{words}, {duration_text(self.seconds_left)} left"


class _Reading:
    """The sentences of one source as they are read, for all sessions of the server."""

    def __init__(self, source: SentenceSource) -> None:
        self._source = source
        self._panels: list[Panel | None] = []
        self._live: LatestValue[int] | None = None
        self._count_at_start = 0
        self._lock = threading.Lock()
        self._start_lock = threading.Lock()
        self._look_time = time.monotonic()

    def state(self, total: int) -> ReadSentences:
        """How far it is; whoever asks keeps the reading going."""
        self._look_time = time.monotonic()
        live = self._live
        panels = tuple(self._panels)
        if live is None:
            return ReadSentences(panels, total)
        seconds_left = None
        newly_read = len(panels) - self._count_at_start
        if not live.done and newly_read >= FEW_SENTENCES:
            seconds_left = (total - len(panels)) * live.age / newly_read
        return ReadSentences(
            panels, total, is_reading=not live.done, seconds_left=seconds_left, error=live.error
        )

    def start(self, client: Client, examples: Sequence[ExampleCard]) -> None:
        """Read on from where it is, unless that is being done."""
        self._look_time = time.monotonic()
        with self._start_lock:  # two people may press at once
            if self._live is None or self._live.done:
                self._count_at_start = len(self._panels)
                self._live = LatestValue(lambda: self._read_on(client, examples))

    def await_first_sentences(self) -> None:
        """Wait a moment after the start, in which a short list is read to its end."""
        if self._live is not None:
            await_values(self._live, MAX_OFFERED_SENTENCES + 1, FIRST_SECONDS)

    def stop(self) -> None:
        """Read no sentence after the present one."""
        if self._live is not None:
            self._live.stop()
        self._live = None

    def _read_on(self, client: Client, examples: Sequence[ExampleCard]) -> Generator[int]:
        """Read the sentences that are missing; yields how many are read.

        One that was stopped may still be reading a sentence when the next one begins.
        """
        while time.monotonic() - self._look_time < UNWATCHED_SECONDS:
            with self._lock:
                if len(self._panels) == len(examples):
                    return
                example = examples[len(self._panels)]
                self._panels.append(_panel_of(client, self._source, example))
            yield len(self._panels)


def _panel_of(client: Client, source: SentenceSource, example: ExampleCard) -> Panel | None:
    """Attention of the head in one sentence; None for a text that is too long."""
    if max(len(example.text), len(example.pair or "")) > MAX_TEXT_LENGTH:
        return None
    request = AttentionRequest.model_construct(
        model=source.model,
        text=example.text,
        heads=[head_from(source.head)],
        pair=example.pair,
        words=example.words,
    )
    return Panel.from_attention(example.text, client.attention(request))


@st.cache_resource(max_entries=MAX_SOURCES, show_spinner=False)
def _reading_of(source: SentenceSource) -> _Reading:
    return _Reading(source)


def sentences_read(client: Client, source: SentenceSource) -> ReadSentences:
    """The sentences of a source that are read by now, and whether these are all.

    It does not wait for the worker's attention, only, the first time, for the task's texts.

    Args:
        client: Of the worker.
        source: Whose attention, in which sentences.
    """
    examples = offered_examples(client, source.task, source.language)
    return _reading_of(source).state(len(examples))


def start_reading(client: Client, source: SentenceSource) -> None:
    """Read the sentences of a source in the background, from where the last reading ended.

    Nothing happens if they are being read. It goes on through reloads and page turns, and stops by
    itself when no page has asked for `sentences_read` for `UNWATCHED_SECONDS`.
    """
    examples = offered_examples(client, source.task, source.language)
    _reading_of(source).start(client, examples)


def stop_reading(source: SentenceSource) -> None:
    """Read no further; what is read stays."""
    _reading_of(source).stop()


class RankedSentence(NamedTuple):
    """A sentence with its links of a kind.

    Attributes:
        number: Of the sentence, in the task's order.
        panel: The sentence.
        links: Its links; `links.strongest` has the positions of the two tokens to mark.
    """

    number: int
    panel: Panel
    links: LinksOfKind


def ranks_by_mean(kind: str) -> bool:
    """Whether sentences are ranked by the mean of a kind of link, or else by the strongest one.

    A head that always looks at the previous token has a link of 1 in nearly every sentence, so that
    only the mean over a sentence tells sentences apart. A link to the same or to a given token
    stands once in most sentences, and a mean would prefer short ones.
    """
    return kind in PATTERNS


def rank_sentences(
    panels: Sequence[Panel | None], head: str, kind: str, token: str = ""
) -> list[RankedSentence]:
    """The sentences that have a link of a kind, the strongest first; see `ranks_by_mean`.

    Args:
        panels: Of `ReadSentences`.
        head: Key of the head.
        kind: Of link, one of `headlab.plots.matrices.LINKS`.
        token: The token looked at, for links to a given one.
    """
    ranked = []
    for number, panel in enumerate(panels):
        links = None if panel is None else links_of_kind(panel, head, kind, token)
        if panel is not None and links is not None:
            ranked.append(RankedSentence(number, panel, links))

    def weakness(sentence: RankedSentence) -> float:
        if ranks_by_mean(kind):
            return -sentence.links.mean
        return -sentence.links.strongest.weight

    return sorted(ranked, key=weakness)  # equal ones in the task's order


def draw_reading(
    client: Client,
    source: SentenceSource,
    draw_sentences: Callable[[ReadSentences], None],
    *,
    key: str,
) -> None:
    """Draw the button that reads all sentences, the progress, and what is read so far.

    Args:
        client: Of the worker.
        source: Whose attention, in which sentences.
        draw_sentences: Draws what is read, every second while more is on its way. While
            `is_reading`, it must draw no widget that a person changes, as it would be drawn anew
            under the pointer.
        key: Of the buttons.
    """
    with errors_as_sentences():
        _reading_of(source).await_first_sentences()
        sentences = sentences_read(client, source)
        if sentences.is_reading:
            button("Stop", key=f"{key}-stop", on_press=stop_reading, args=(source,), icon="stop")
            redraw_every(_draw_progress, REDRAW_SECONDS)(client, source, draw_sentences)
            return
        if not sentences.is_complete:
            begin_words = f"Look through {sentences.total_words}"
            if sentences.panels:
                st.caption(f"{sentences.progress_words}.")
                begin_words = "Go on"
            button(begin_words, key=key, on_press=start_reading, args=(client, source))
        if sentences.panels or sentences.is_complete:
            draw_sentences(sentences)
        if sentences.error is not None:
            raise sentences.error


def _draw_progress(
    client: Client, source: SentenceSource, draw_sentences: Callable[[ReadSentences], None]
) -> None:
    with errors_as_sentences():
        sentences = sentences_read(client, source)
        if not sentences.is_reading:
            st.rerun()  # the whole page, which ends the timer
        share = len(sentences.panels) / max(1, sentences.total)
        st.progress(share, text=sentences.progress_words)
        if sentences.panels:
            draw_sentences(sentences)
