"""What is switched on and off: the text that says it, and the kinds of players that it asks for."""

from __future__ import annotations

from dataclasses import dataclass

from headlab.core.errors import HeadlabError
from headlab.core.records import (
    HEADS,
    KIND_NOUNS,
    PLAYER_KINDS,
    Head,
    HeadGrid,
    base_and_kind,
    nouns_of_kinds,
)

NEURONS = "neurons"
FEED_FORWARD = "feed-forward"
KV_GROUPS = "kv-groups"
ATTENTION = "attention"
LAYERS = "layers"
# Kinds whose players are heads, one or several together.
KINDS_OF_HEADS = frozenset({HEADS, KV_GROUPS, ATTENTION})
PLAYERS_WORDS = "heads, kv-groups, attention, feed-forward, neurons:N or layers"
MAX_GROUPS = 4096  # as many as a mask may have in a layer


@dataclass(frozen=True)
class Players:
    """Kinds of players that are switched together.

    Attributes:
        kinds: Some of `PLAYER_KINDS`, in that order.
        groups: Number of groups of neurons in each layer; 0 where no neurons are switched.
    """

    kinds: tuple[str, ...] = (HEADS,)
    groups: int = 0

    @property
    def are_heads(self) -> bool:
        """Whether these are heads and nothing else."""
        return self.kinds == (HEADS,)

    def __str__(self) -> str:
        """As `read_players` reads it, always in one order."""
        return ",".join(f"{kind}:{self.groups}" if kind == NEURONS else kind for kind in self.kinds)


def read_players(text: str) -> Players:
    """The players that a text asks for: heads, kv-groups, feed-forward, neurons:8, or several.

    Args:
        text: Kinds, joined by commas, in any order.

    Raises:
        HeadlabError: It names another kind, or a kind twice, or no number of groups of neurons.
    """
    groups = 0
    kinds: list[str] = []
    for part in text.split(","):
        kind, colon, count = part.strip().partition(":")
        if kind not in PLAYER_KINDS:
            raise HeadlabError(
                f"unknown players {part.strip()!r:.60}; use {PLAYERS_WORDS}, or several joined by "
                "commas, as in heads,neurons:8",
                code="players.unknown",
            )
        if kind in kinds:
            raise HeadlabError(
                f"players {text!r:.60} name {kind} twice; name it once", code="players.twice"
            )
        if kind == NEURONS:
            groups = _group_count(count, part.strip())
        elif colon:
            raise HeadlabError(
                f"players {part.strip()!r:.60}: only neurons take a number, of groups a layer, as "
                f"in neurons:8; write {kind}",
                code="players.number_unused",
            )
        kinds.append(kind)
    return Players(tuple(kind for kind in PLAYER_KINDS if kind in kinds), groups)


def _group_count(text: str, part: str) -> int:
    """The number of groups of neurons. Raises HeadlabError for anything else."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_GROUPS))
    if not is_number or not 1 <= int(text) <= MAX_GROUPS:
        raise HeadlabError(
            f"players {part!r:.60} must say how many groups the neurons of a layer form, from 1 to "
            f"{MAX_GROUPS:,}, as in neurons:8",
            code="players.groups_invalid",
        )
    return int(text)


def players_of(grid: HeadGrid) -> Players:
    """What a grid's players are, with the largest number of groups of neurons in a layer.

    Args:
        grid: Of any players.
    """
    groups = 0
    for stack in grid.stacks:
        if stack.kind == NEURONS:
            groups = max(groups, *stack.heads)
    return Players(grid.kinds or (HEADS,), groups)


# Players in words.


def noun_of(players: str) -> str:
    """What players are called where they are counted: "heads", "groups of neurons", "players".

    Args:
        players: As `read_players` reads them.
    """
    return nouns_of_kinds(read_players(players).kinds)[1]


def players_phrase(players: str) -> str:
    """What is switched, in words: "heads and neurons in 8 groups".

    Args:
        players: As `read_players` reads them.
    """
    chosen = read_players(players)
    words = []
    for kind in chosen.kinds:
        if kind == NEURONS:
            groups = "1 group" if chosen.groups == 1 else f"{chosen.groups:,} groups"
            words.append(f"neurons in {groups}")
        else:
            words.append(KIND_NOUNS[kind][1])
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def players_title(players: str) -> str:
    """What is switched, as a heading: "Heads and neurons in 8 groups".

    Args:
        players: As `read_players` reads them.
    """
    phrase = players_phrase(players)
    return phrase[0].upper() + phrase[1:]


def kind_title(stack_name: str, *, several_bases: bool = False) -> str:
    """What the players of a stack are, as a heading: "Groups of neurons", "Decoder: heads".

    Args:
        stack_name: Name of the stack.
        several_bases: Whether the grid has stacks of both encoder and decoder.
    """
    base, kind = base_and_kind(stack_name)
    noun = KIND_NOUNS[kind][1]
    text = f"{base}: {noun}" if several_bases else noun
    return text[0].upper() + text[1:]


def player_in_words(player: Head, *, several_bases: bool = False) -> str:
    """One player in words: "layer 4, head 1", "layer 4, group 1 of neurons", "layer 4".

    Args:
        player: Of any kind.
        several_bases: Whether the model has both an encoder and a decoder that are switched.
    """
    base, kind = base_and_kind(player.stack)
    is_said = several_bases or base != "encoder"
    place = f"{base} layer {player.layer}" if is_said else f"layer {player.layer}"
    if kind == LAYERS:
        return place
    if kind in (ATTENTION, FEED_FORWARD):
        return f"{place}, {KIND_NOUNS[kind][0]}"
    if kind == NEURONS:
        return f"{place}, group {player.head} of neurons"
    return f"{place}, {KIND_NOUNS[kind][0]} {player.head}"


def player_name(grid: HeadGrid, player: Head) -> str:
    """One player in words, with what it holds: "layer 4, group 1 of neurons: 192 neurons".

    Args:
        grid: That it is in.
        player: One of the grid's.
    """
    bases = {stack.base for stack in grid.stacks}
    words = player_in_words(player, several_bases=len(bases) > 1)
    members = grid.stack(player.stack).members
    if members is None:
        return words
    neurons = members[player.layer].count(player.head)
    return f"{words}: {neurons:,} neuron{'s' * (neurons != 1)}"
