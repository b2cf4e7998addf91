"""The mask being edited: undo, redo, reset, and the link parameter `m` that carries it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import streamlit as st

from headlab.core import (
    Bools,
    HeadGrid,
    HeadlabError,
    JsonLike,
    JsonRecord,
    content_key,
    is_ablation,
)
from headlab.dashboard.widgets import PageState, widget_values
from headlab.masks import MIXED_ABLATION, Mask, full_mask

MAX_STATES = 500
HISTORY_KEY_PREFIX = "_history:"
"""Session key of a model's history, before the fingerprint of the model."""
BY_HAND = "by hand"
ABLATION_MARK = "."
"""In a link, between the heads of a mask and the ablation that it was chosen under."""


@dataclass
class MaskHistory:
    """All states of one model's mask in this session.

    Attributes:
        grid: The model's heads.
        model: What the masks say of the model that they are of, as in a mask file.
        masks: The states, oldest first; all heads are on in the first one.
        position: Of the current mask among them.
        stamp: Incremented whenever the mask changes other than by the list of heads, which is
            then redrawn.
        written_link_texts: Masks already written to this session's links, as link text; going Back
            to one does not undo a click.
    """

    grid: HeadGrid
    model: JsonRecord = field(default_factory=dict)
    masks: list[Mask] = field(init=False)
    position: int = field(default=0, init=False)
    stamp: int = field(default=0, init=False)
    written_link_texts: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.masks = [replace(full_mask(self.grid), model=self.model)]

    @property
    def mask(self) -> Mask:
        """The current mask."""
        return self.masks[self.position]

    @property
    def can_undo(self) -> bool:
        """Whether there is a state before this one."""
        return self.position > 0

    @property
    def can_redo(self) -> bool:
        """Whether a state was undone."""
        return self.position < len(self.masks) - 1

    def name_model(self, model: JsonRecord) -> None:
        """State what is known of the model now, also in the masks made before.

        Args:
            model: As in a mask file.
        """
        if model != self.model:
            self.model = model
            self.masks = [replace(mask, model=model) for mask in self.masks]

    def switch(self, head_indices: Sequence[int], is_on: bool) -> None:
        """Switch some heads by hand; the others stay as they are.

        Args:
            head_indices: Of these heads, in the grid's order.
            is_on: Whether they are kept then.
        """
        kept_heads = self.mask.kept.copy()
        kept_heads[list(head_indices)] = is_on
        self.stamp += 1
        self.set_by_hand(kept_heads)

    def set_mask(self, kept_heads: Bools, origin: JsonRecord) -> None:
        """Set a mask from elsewhere: a suggestion, a file, a link.

        Args:
            kept_heads: Heads kept, bool [head].
            origin: How they were chosen, as in a mask file.
        """
        self.stamp += 1
        self._append(kept_heads, origin)

    def undo(self) -> None:
        """Go one state back, if there is one."""
        self._go_to(self.position - 1)

    def redo(self) -> None:
        """Go one state forward, if there is one."""
        self._go_to(self.position + 1)

    def reset(self) -> None:
        """Switch all heads on; can be undone."""
        self.set_mask(np.ones(self.grid.size, bool), {})

    def set_by_hand(self, kept_heads: Bools) -> None:
        """Set the mask as a person chose it, for one in the list of heads, which already shows it.

        Args:
            kept_heads: Heads kept, bool [head].
        """
        origin: dict[str, JsonLike] = {"rule": BY_HAND}
        started_from = self._left_of(self.position, ~kept_heads)
        if started_from:
            origin["started_from"] = dict(started_from)
        self._append(kept_heads, origin)

    def _left_of(self, position: int, is_off: Bools) -> JsonRecord:
        """How the mask that a state was made from by hand was chosen, if it has a head still off.

        Empty if it has none. A state that was not made by hand is such a mask itself.

        Args:
            position: Of the state.
            is_off: Which heads are off now, bool [head].
        """
        origin = self.masks[position].chosen
        started_from = _start_of(origin)
        while _is_by_hand_alone(origin) and position:
            earlier_origin = self.masks[position - 1].chosen
            is_same_chain = (
                _is_by_hand_alone(earlier_origin) and _start_of(earlier_origin) == started_from
            )
            if not is_same_chain and earlier_origin != started_from:
                break  # it came as it is, or what it was made from is forgotten
            position -= 1
            origin = earlier_origin
        if not (is_off & ~self.masks[position].kept).any():
            return {}
        if _is_by_hand_alone(origin):
            return _start_of(origin)
        inner = _start_of(origin)
        if "added" in origin and position and inner == self.masks[position - 1].chosen:
            left = self._left_of(position - 1, is_off)
            without = {name: value for name, value in origin.items() if name != "started_from"}
            return {**without, "started_from": dict(left)} if left else without
        return origin

    def _go_to(self, position: int) -> None:
        if 0 <= position < len(self.masks):
            self.position = position
            self.stamp += 1

    def _append(self, kept_heads: Bools, origin: JsonRecord) -> None:
        """Make a new current mask, which drops what was undone.

        The same heads make none, unless they were chosen under another ablation.
        """
        mask = Mask(self.grid, kept_heads.copy(), self.model, origin)
        has_same_ablation = (mask.ablation or "zero") == (self.mask.ablation or "zero")
        if np.array_equal(kept_heads, self.mask.kept) and (has_same_ablation or not mask.removed):
            return
        self.masks = [*self.masks[: self.position + 1], mask][-MAX_STATES:]
        self.position = len(self.masks) - 1


def _start_of(origin: JsonRecord) -> JsonRecord:
    """How the mask was chosen that one was made from; empty if it was made from none.

    Args:
        origin: How the mask that was made from it was chosen.
    """
    started_from = origin.get("started_from")
    return started_from if isinstance(started_from, Mapping) else {}


def _is_by_hand_alone(origin: JsonRecord) -> bool:
    """Whether a person chose a mask head by head, and nothing was added to it otherwise.

    Args:
        origin: How the mask was chosen.
    """
    return origin.get("rule") == BY_HAND and set(origin) <= {"rule", "started_from"}


@dataclass
class LinkProblem(PageState):
    """Why the mask of a link could not be used in one session.

    Attributes:
        sentence: The reason.
        position_and_stamp: Of the history when the link was followed; None if there is no problem.
    """

    key = "_link_trouble"
    sentence: str = ""
    position_and_stamp: tuple[int, int] | None = None


def history_of(fingerprint: str, grid: HeadGrid, model: JsonRecord | None = None) -> MaskHistory:
    """This session's history of one model's mask.

    Args:
        fingerprint: Of the model.
        grid: The model's heads.
        model: What its masks say of the model, as in a mask file; None where only the
            fingerprint is known.
    """
    key = f"{HISTORY_KEY_PREFIX}{fingerprint}{_players_suffix(grid)}"
    history = st.session_state.get(key)
    if not isinstance(history, MaskHistory) or history.grid != grid:
        history = st.session_state[key] = MaskHistory(grid, model or {"fingerprint": fingerprint})
    if model is not None:
        history.name_model(model)
    return history


def _players_suffix(grid: HeadGrid) -> str:
    """What tells the history of other players from that of the heads of their model."""
    if grid.has_only_heads:
        return ""
    return f":{content_key([grid.to_json(), grid.members_json()])[:16]}"


def histories_of_models() -> list[tuple[str, MaskHistory]]:
    """This session's histories, of heads and of other players, with their model's fingerprint."""
    histories = []
    for key, history in widget_values(HISTORY_KEY_PREFIX).items():
        if isinstance(history, MaskHistory):
            fingerprint = key.removeprefix(HISTORY_KEY_PREFIX).partition(":")[0]
            histories.append((fingerprint, history))
    return histories


def histories_by_fingerprint() -> dict[str, MaskHistory]:
    """This session's histories of heads, by the fingerprint of their model."""
    return {
        fingerprint: history
        for fingerprint, history in histories_of_models()
        if history.grid.has_only_heads
    }


def mask_link_text(kept_heads: Bools) -> str:
    """A mask as link text: one bit per head, 1 = off, base64url without padding."""
    return base64.urlsafe_b64encode(np.packbits(~kept_heads).tobytes()).decode().rstrip("=")


def link_text_of(mask: Mask) -> str:
    """A mask as link text, with the ablation that it was chosen under unless that is zero."""
    bits = mask_link_text(mask.kept)
    return f"{bits}{ABLATION_MARK}{mask.ablation}" if mask.ablation not in (None, "zero") else bits


def origin_of_link(ablation: str) -> dict[str, JsonLike]:
    """How the mask of a link was chosen.

    Args:
        ablation: As the link says it; empty where it says none.

    Raises:
        HeadlabError: There is no such ablation.
    """
    if not ablation:
        return {"rule": "link"}
    if ablation != MIXED_ABLATION and not is_ablation(ablation):
        raise HeadlabError(
            f"The mask in this link was chosen under an ablation that headlab does not know "
            f"({ablation[:40]}). The link is incomplete, or of a newer headlab; nothing was changed.",
            code="link.mask_malformed",
        )
    return {"rule": "link", "ablation": ablation}


def kept_heads_of_link_text(link_text: str, grid: HeadGrid) -> Bools:
    """The heads that a link's mask keeps, bool [head]: the inverse of `mask_link_text`.

    Args:
        link_text: Of the link.
        grid: The model's heads.

    Raises:
        HeadlabError: The text is no mask of as many heads.
    """
    remedy = (
        f"this model has {grid}. The link is incomplete, or was made for another model; no "
        f"{grid.noun} were changed"
    )
    padded_text = link_text + "=" * (-len(link_text) % 4)
    try:
        raw = base64.b64decode(padded_text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise HeadlabError(
            f"The mask in this link (m={link_text[:40]}) cannot be read; {remedy}.",
            code="link.mask_malformed",
        ) from error
    bits = np.unpackbits(np.frombuffer(raw, np.uint8)).astype(bool)
    if len(raw) != -(-grid.size // 8) or bits[grid.size :].any():
        raise HeadlabError(
            f"The mask in this link (m={link_text[:40]}) does not fit; {remedy}.",
            code="link.mask_mismatch",
        )
    return ~bits[: grid.size]


def apply_mask_link(history: MaskHistory, is_arrival: bool) -> str | None:
    """Apply the link's mask on arrival at the page. Returns a sentence if it could not be used.

    Only on arrival: later the browser may still send the link of an earlier state.  The sentence
    stays until the mask changes, because a page may rerun at any time.

    Args:
        history: Of the mask that the link sets.
        is_arrival: Whether the page was not drawn before.
    """
    problem = LinkProblem.of_session()
    link_text = st.query_params.get("m")
    known_texts = {link_text_of(history.mask), *history.written_link_texts}
    if is_arrival and link_text and link_text not in known_texts:
        try:
            bits, _, ablation = link_text.partition(ABLATION_MARK)
            kept_heads = kept_heads_of_link_text(bits, history.grid)
            history.set_mask(kept_heads, origin_of_link(ablation))
        except HeadlabError as error:
            problem.sentence = str(error)
            problem.position_and_stamp = (history.position, history.stamp)
    if problem.position_and_stamp == (history.position, history.stamp):
        return problem.sentence
    return None


def write_mask_link(history: MaskHistory) -> None:
    """Write the current mask to the link; a mask that keeps all heads is removed from it."""
    mask = history.mask
    if mask.kept.all():
        st.query_params.pop("m", None)
        return
    link_text = link_text_of(mask)
    history.written_link_texts.add(link_text)
    if st.query_params.get("m") != link_text:
        st.query_params["m"] = link_text
