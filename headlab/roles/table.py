"""Roles, and the options of finding them.

Command line, pages and documents read them, and no model is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headlab.core import Option, OptionValue, require_known_options, resolve_options

NAME = "roles"
FILE = "file"  # split name of trees read from a given file
VERSION = 2
ALPHA = 0.05  # significance level of the adjusted p-values
# The paper's relations, by their names in Universal Dependencies 2.
RELATIONS = ("nsubj", "obj", "amod", "advmod")
TO_GOVERNOR = "dependent to governor"
TO_DEPENDENT = "governor to dependent"
DIRECTIONS = (TO_GOVERNOR, TO_DEPENDENT)
POSITIONAL = "positional"
RARE = "rare word"
SEPARATOR = "separator"
FIRST = "first token"
SAME = "same token elsewhere"
INDUCTION = "induction"
# Where heads attend that have nothing else to do (Clark et al. 2019, section 3.2).
IDLE = (SEPARATOR, FIRST)
# That a positional head may have, in tokens; ties go to the first.
OFFSETS = (0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5)
# What the thresholds of most roles are.
SHARE = "share of its tokens that must look there most"


def syntactic(relation: str, direction: str) -> str:
    """Name of the role for a relation in a direction."""
    return f"{relation}: {direction}"


def position(offset: int) -> str:
    """Name of the role of looking at a fixed offset: "position -1", "position +1", "position 0"."""
    if offset:
        return f"position {offset:+d}"
    return "position 0"


def kind_of(role: str) -> str:
    """The role without the offset: "positional" for every position, else the role itself."""
    if role.startswith("position "):
        return POSITIONAL
    return role


def group_of(role: str) -> str:
    """The kind without the direction: "nsubj" for "nsubj: dependent to governor"."""
    return kind_of(role).partition(":")[0]


SYNTACTIC = tuple(f"{relation}: {direction}" for relation in RELATIONS for direction in DIRECTIONS)
KINDS = (POSITIONAL, *SYNTACTIC, RARE, SEPARATOR, FIRST, SAME, INDUCTION)


OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "positional": Option(
            0.9, f"{POSITIONAL} heads: {SHARE} (the paper's)", kind=float, low=0, high=1
        ),
        "margin": Option(
            0.1,
            "syntactic heads: share of pairs above the baseline of the most frequent offset (the "
            "paper's)",
            kind=float,
            low=0,
            high=1,
        ),
        "rare": Option(0.5, f"{RARE} heads: {SHARE} (the paper's)", kind=float, low=0, high=1),
        "separator": Option(0.5, f"{SEPARATOR} heads: {SHARE} (ours)", kind=float, low=0, high=1),
        "first": Option(0.5, f"{FIRST} heads: {SHARE} (ours)", kind=float, low=0, high=1),
        "same": Option(0.5, f"heads of the {SAME}: {SHARE} (ours)", kind=float, low=0, high=1),
        "induction": Option(
            0.5, f"{INDUCTION} heads, of decoders: {SHARE} (ours)", kind=float, low=0, high=1
        ),
        "exclude": Option(
            "separator",
            "tokens that do not count as targets of confidence (the paper's: the end of sentence)",
            ("separator", "special", "none"),
        ),
        "level": Option(
            0.95, "confidence level of the intervals", kind=float, low=0, high=1, open=True
        ),
        "examples": Option(
            3,
            "sentences shown where the best head of a role does it, and where not",
            kind=int,
            low=0,
        ),
    }
)
# The option that holds each role's threshold.
THRESHOLDS: Mapping[str, str] = MappingProxyType(
    {
        POSITIONAL: "positional",
        RARE: "rare",
        SEPARATOR: "separator",
        FIRST: "first",
        SAME: "same",
        INDUCTION: "induction",
        **{role: "margin" for role in SYNTACTIC},  # noqa: C420
    }
)


def resolve(options: Mapping[str, object]) -> dict[str, OptionValue]:
    """All options: those given are checked, the others are at their defaults.

    Raises:
        HeadlabError: An option is unknown or has an invalid value.
    """
    require_known_options(
        OPTIONS, options, "roles have", code="roles.option_unknown", it_has="they have"
    )
    return resolve_options(OPTIONS, options, "roles", code="roles.option_invalid")
