"""The mask being edited: undo, redo, reset, and the link parameter `m` that carries it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import streamlit as st

from headlab.errors import HeadlabError
from headlab.records import Bools, HeadGrid

DEPTH = 500
TROUBLE = "_link_trouble"


@dataclass(frozen=True)
class Step:
    """One state of the mask. kept: bool [head].  chosen: how it was chosen, as in the mask file."""

    kept: Bools
    chosen: Mapping[str, Any]


@dataclass
class History:
    """All states of one model's mask in this session.

    stamp: incremented whenever the mask changes other than by the list of heads, which is then redrawn.
    linked: masks already written to this session's links; going Back to one does not undo a click.
    """

    grid: HeadGrid
    steps: list[Step] = field(default_factory=list)
    at: int = 0
    stamp: int = 0
    linked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.steps = self.steps or [Step(np.ones(self.grid.size, bool), {})]

    @property
    def kept(self) -> Bools:
        """Heads kept now, bool [head]."""
        return self.steps[self.at].kept

    @property
    def chosen(self) -> Mapping[str, Any]:
        """How the current mask was chosen."""
        return self.steps[self.at].chosen

    @property
    def can_undo(self) -> bool:
        """Whether there is a state before this one."""
        return self.at > 0

    @property
    def can_redo(self) -> bool:
        """Whether a state was undone."""
        return self.at < len(self.steps) - 1

    def switch(self, heads: Bools, on: bool) -> None:
        """Switch some heads, bool [head], on or off by hand; the others stay as they are."""
        kept = self.kept.copy()
        kept[heads] = on
        self.stamp += 1
        self.by_hand(kept)

    def put(self, kept: Bools, chosen: Mapping[str, Any]) -> None:
        """Set a mask from elsewhere: a suggestion, a file, a link."""
        self.stamp += 1
        self._push(kept, chosen)

    def undo(self) -> None:
        """Go one state back, if there is one."""
        self._go(self.at - 1)

    def redo(self) -> None:
        """Go one state forward, if there is one."""
        self._go(self.at + 1)

    def reset(self) -> None:
        """Switch all heads on; can be undone."""
        self.put(np.ones(self.grid.size, bool), {})

    def _go(self, to: int) -> None:
        if 0 <= to < len(self.steps):
            self.at, self.stamp = to, self.stamp + 1

    def by_hand(self, kept: Bools) -> None:
        """Set the mask as a person chose it, for one in the list of heads, which already shows it."""
        before = self.chosen
        start = before.get("started_from") if before.get("rule") == "by hand" else dict(before)
        self._push(kept, {"rule": "by hand", **({"started_from": start} if start else {})})

    def _push(self, kept: Bools, chosen: Mapping[str, Any]) -> None:
        if np.array_equal(kept, self.kept):
            return
        self.steps = [*self.steps[: self.at + 1], Step(kept.copy(), chosen)][-DEPTH:]
        self.at = len(self.steps) - 1


def history(fingerprint: str, grid: HeadGrid) -> History:
    """This session's history of one model's mask."""
    key = f"_history:{fingerprint}"
    kept = st.session_state.get(key)
    if not isinstance(kept, History) or kept.grid != grid:
        kept = st.session_state[key] = History(grid)
    return kept


def encode(kept: Bools) -> str:
    """A mask as link text: one bit per head, 1 = off, base64url without padding."""
    return base64.urlsafe_b64encode(np.packbits(~kept).tobytes()).decode().rstrip("=")


def decode(text: str, grid: HeadGrid) -> Bools:
    """Inverse of `encode`, bool [head]. Raises HeadlabError unless the text is a mask of this grid's size."""
    remedy = f"this model has {grid}. The link is incomplete, or was made for another model; no heads were changed"
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise HeadlabError(
            f"The mask in this link (m={text[:40]}) cannot be read; {remedy}.",
            code="link.mask_malformed",
        ) from error
    bits = np.unpackbits(np.frombuffer(raw, np.uint8)).astype(bool)
    if len(raw) != -(-grid.size // 8) or bits[grid.size :].any():
        raise HeadlabError(
            f"The mask in this link (m={text[:40]}) does not fit; {remedy}.",
            code="link.mask_mismatch",
        )
    return ~bits[: grid.size]


def follow_link(now: History, arrived: bool) -> str | None:
    """Apply the link's mask on arrival at the page. Returns a sentence if it could not be used.

    Only on arrival: later the browser may still send the link of an earlier state.  The sentence stays
    until the mask changes, because a page may rerun at any time.
    """
    text = st.query_params.get("m")
    if arrived and text and text != encode(now.kept) and text not in now.linked:
        try:
            now.put(decode(text, now.grid), {"rule": "link"})
        except HeadlabError as error:
            st.session_state[TROUBLE] = (str(error), now.at, now.stamp)
    sentence, *when = st.session_state.get(TROUBLE, (None,))
    return sentence if when == [now.at, now.stamp] else None


def write_link(now: History) -> None:
    """Write the current mask to the link; a mask that keeps all heads is removed from it."""
    if now.kept.all():
        st.query_params.pop("m", None)
        return
    text = encode(now.kept)
    now.linked.add(text)
    if st.query_params.get("m") != text:
        st.query_params["m"] = text
