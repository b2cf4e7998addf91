"""A head's links over all of a task's sentences, read in the background, once for all sessions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
import streamlit as st
from support.waiting import wait_until

from headlab.core import HeadlabError
from headlab.dashboard.panels.heads import (
    SentenceSource,
    sentences_read,
    start_reading,
    stop_reading,
    strongest_links,
)
from headlab.worker.schemas import AttentionRequest, ExampleCard, Weights

SOURCE = SentenceSource("m", "0" * 64, "intents", "de", "encoder.0.0")


@dataclass
class GatedClient:
    """A worker that gives as many sentences as it is allowed to.

    Attributes:
        texts: Of the task's sentences.
        allowed: Counts the sentences that may be answered.
        asked: How many sentences were asked for.
        requests: What was answered, in order.
        error: Raised in place of the next answer, once.
    """

    texts: list[str]
    allowed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    asked: int = 0
    requests: list[AttentionRequest] = field(default_factory=list)
    error: HeadlabError | None = None

    def sentences(self, task: str, language: str, n: int) -> list[ExampleCard]:
        return [
            ExampleCard(id=str(number), text=text, label=None)
            for number, text in enumerate(self.texts[:n])
        ]

    def attention(self, request: AttentionRequest) -> Weights:
        self.asked += 1
        self.allowed.acquire()
        error = self.error
        self.error = None
        if error is not None:
            raise error
        self.requests.append(request)
        return Weights(tokens=["a"], weights={"encoder.0.0": [[1.0]]}, truncated=False)

    def allow(self, count: int) -> None:
        """Answer so many more sentences."""
        self.allowed.release(count)


@pytest.fixture(autouse=True)
def empty_caches() -> Iterator[None]:
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


def read_texts(client: GatedClient) -> list[str | None]:
    panels = sentences_read(client, SOURCE).panels
    return [None if panel is None else panel.title for panel in panels]


def wait_for_count(client: GatedClient, count: int) -> None:
    wait_until(lambda: len(read_texts(client)) == count, f"{count} sentences that are read")


def wait_for_end(client: GatedClient) -> None:
    wait_until(lambda: not sentences_read(client, SOURCE).is_reading, "an end of reading")


def test_sentences_are_read_in_order_and_known_as_they_come():
    client = GatedClient(["a", "b", "x" * 2001, "c"])
    assert sentences_read(client, SOURCE).panels == ()
    assert not sentences_read(client, SOURCE).is_complete
    start_reading(client, SOURCE)
    client.allow(2)
    wait_for_count(client, 3)
    sentences = sentences_read(client, SOURCE)
    assert sentences.is_reading
    assert sentences.total == 4
    assert sentences.progress_words == "3 of 4 sentences read"
    client.allow(1)
    wait_for_end(client)
    sentences = sentences_read(client, SOURCE)
    assert sentences.is_complete
    assert sentences.too_long == 1
    assert read_texts(client) == ["a", "b", None, "c"]
    (weights,) = sentences.panels[0].weights.values()
    assert np.array_equal(weights, [[1.0]])
    assert [request.heads for request in client.requests] == [[("encoder", 0, 0)]] * 3


def test_what_was_stopped_goes_on_where_it_was_and_nothing_is_read_twice():
    client = GatedClient(list("abcdef"))
    start_reading(client, SOURCE)
    start_reading(client, SOURCE)  # it is being read
    client.allow(2)
    wait_for_count(client, 2)
    stop_reading(SOURCE)
    assert not sentences_read(client, SOURCE).is_reading
    start_reading(client, SOURCE)  # while the first reading still waits for its third sentence
    client.allow(10)
    wait_for_end(client)
    assert read_texts(client) == list("abcdef")
    assert [request.text for request in client.requests] == list("abcdef")
    start_reading(client, SOURCE)
    wait_for_end(client)
    assert len(client.requests) == 6


def test_another_head_is_read_for_itself():
    client = GatedClient(["a"])
    client.allow(1)
    start_reading(client, SOURCE)
    wait_for_end(client)
    other_source = SOURCE._replace(head="encoder.0.1")
    assert sentences_read(client, other_source).panels == ()


def test_an_error_ends_reading_and_is_told_until_it_is_tried_again():
    client = GatedClient(["a", "b"])
    client.error = HeadlabError("the worker is not running", code="worker.unreachable")
    client.allow(10)
    start_reading(client, SOURCE)
    wait_for_end(client)
    sentences = sentences_read(client, SOURCE)
    assert str(sentences.error) == "the worker is not running"
    assert sentences.panels == ()
    start_reading(client, SOURCE)
    wait_for_end(client)
    sentences = sentences_read(client, SOURCE)
    assert sentences.is_complete
    assert sentences.error is None


def test_reading_ends_when_no_page_shows_it(monkeypatch):
    client = GatedClient(["a", "b", "c"])
    start_reading(client, SOURCE)
    wait_until(lambda: client.asked == 1, "a request for the first sentence")
    monkeypatch.setattr(strongest_links, "UNWATCHED_SECONDS", 0.0)
    client.allow(10)
    wait_for_end(client)
    assert len(read_texts(client)) == 1
    monkeypatch.undo()
    start_reading(client, SOURCE)
    wait_for_end(client)
    assert read_texts(client) == ["a", "b", "c"]


def test_how_long_it_will_take_is_told_by_the_pace_so_far():
    client = GatedClient([str(number) for number in range(20)])
    start_reading(client, SOURCE)
    client.allow(7)
    wait_for_count(client, 7)
    assert sentences_read(client, SOURCE).seconds_left is None
    client.allow(3)
    wait_for_count(client, 10)
    sentences = sentences_read(client, SOURCE)
    assert sentences.seconds_left > 0
    assert sentences.progress_words.startswith("10 of 20 sentences read, ")
    client.allow(10)
    wait_for_end(client)
    assert sentences_read(client, SOURCE).progress_words == "20 of 20 sentences read"
