"""What a map with one value per head shows, decided once: unit, scale, colours, signs, marks and words.

The clickable grid of the pages, Plotly and the report's SVG only draw it. This module uses no
drawing library.
"""

from __future__ import annotations

import re
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from headlab.core import Floats, Head, HeadGrid, Ints, shown_unit
from headlab.methods import RANDOM_METHOD
from headlab.results import HeadScores, coarse
from headlab.roles import POSITIONAL, Found, Roles
from headlab.stats import holm

# Colours. Orange harms, blue helps: distinguishable with every common colour blindness, and in grey
# by their labels.

Scale = tuple[tuple[float, str], ...]
DIVERGING: Scale = (
    (0.0, "#b35806"),
    (0.25, "#f1a340"),
    (0.5, "#f7f7f7"),
    (0.75, "#67a9cf"),
    (1.0, "#2166ac"),
)
UPWARDS: Scale = tuple(
    (2 * at - 1, colour) for at, colour in DIVERGING[2:]
)  # for values without a sign
SEQUENTIAL: Scale = ((0.0, "#f7fbff"), (0.5, "#6baed6"), (1.0, "#08306b"))
HELPS, HARMS, UNSURE = "#2b7bba", "#d9730d", "#8a8f98"
# Colours of a figure's lines; neighbours differ in lightness too.
LINES = (HELPS, HARMS, "#3a8f5c", "#8e5ea2", "#b08d2e", "#c94f7c")
CHANCE = RANDOM_METHOD  # drawn in grey, as the baseline for all others
# One per line, so that lines differ by more than colour.
DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot", "dash")
MINUS = "\N{MINUS SIGN}"
DARK, LIGHT = "#101418", "#ffffff"  # text on a colour


def line_look(number: int, name: str = "") -> tuple[str, str]:
    """Colour and dashes of a figure's line by its number, or by its name if that is the baseline's."""
    return (
        (UNSURE, "dot")
        if name == CHANCE
        else (LINES[number % len(LINES)], DASHES[number % len(DASHES)])
    )


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of "#rrggbb"."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def on_scale(scale: Sequence[tuple[float, str]], share: float) -> str:
    """The colour at a position on a scale, "#rrggbb"; positions beyond its ends get the ends' colours."""
    share = min(max(share, scale[0][0]), scale[-1][0])
    for (start, one), (end, other) in pairwise(scale):
        if share <= end:
            t = (share - start) / (end - start)
            mixed = (round(a + t * (b - a)) for a, b in zip(rgb(one), rgb(other), strict=True))
            return "#" + "".join(f"{part:02x}" for part in mixed)
    return scale[-1][1]


def ink_on(colour: str) -> str:
    """Dark or light, whichever is easier to read on a colour (WCAG 2 contrast)."""
    light = luminance(colour)
    return DARK if (light + 0.05) ** 2 > (luminance(DARK) + 0.05) * 1.05 else LIGHT


def luminance(colour: str) -> float:
    """Relative luminance of "#rrggbb", 0 to 1 (WCAG 2)."""
    parts = [value / 255 for value in rgb(colour)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def picture(shares: Floats) -> str:
    """A matrix of shares, 0 to 1, as a PNG in a data URI: a pixel each, on the sequential scale."""
    colours = np.array([rgb(on_scale(SEQUENTIAL, at / 255)) for at in range(256)], np.uint8)
    pixels = colours[np.rint(255 * np.clip(shares, 0, 1)).astype(int)]
    rows, (height, width) = b"".join(b"\0" + row.tobytes() for row in pixels), shares.shape
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d))
        for kind, d in parts
    )
    return "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode(
        "ascii"
    )


# Maps of heads.

OWN, CORRECTED = (
    1,
    2,
)  # how a head is marked: by its own interval, and if that also holds after Holm's correction


@dataclass(frozen=True)
class HeadMap:
    """One value per head, as shown.

    Attributes:
        values: float [head] in `unit`; NaN for none.
        limit: End of the scale, in `unit`; values beyond it get the end's colour.
        signed: Whether the scale extends to both sides of 0.
        marks: int [head], 0 where the interval holds 0, OWN where it does not, CORRECTED where the
            p-value corrected for `tests` tests is small too; positive above 0, negative below.
        tips: Lines of text about each head; empty, or one per head.
        tests: 0 without p-values.
        named: Where there are few values, what each means, NaN for no value; a legend then has
            these, and no scale.
    """

    grid: HeadGrid
    values: Floats
    unit: str
    limit: float
    signed: bool
    marks: Ints
    tips: tuple[str, ...] = ()
    tests: int = 0
    named: tuple[tuple[float, str], ...] = ()

    @property
    def meanings(self) -> dict[int, str]:
        """What the marks of this map mean, by their size; only those that can occur on it."""
        corrected = (
            {CORRECTED: f"also after Holm's correction for {self.tests:,} tests"}
            if self.tests
            else {}
        )
        return {OWN: "the head's own interval excludes 0"} | corrected

    @property
    def scale(self) -> Scale:
        """The scale's colours, from the lowest value at 0 to the highest at 1."""
        return DIVERGING if self.signed else UPWARDS

    @property
    def lowest(self) -> float:
        """The value at the start of the scale, in `unit`."""
        return -self.limit if self.signed else 0.0

    @property
    def colours(self) -> tuple[str | None, ...]:
        """The colour of each head, "#rrggbb"; None where it has no value."""
        shares = (self.values - self.lowest) / (self.limit - self.lowest)
        return tuple(
            on_scale(self.scale, share) if np.isfinite(share) else None for share in shares.tolist()
        )

    @property
    def signs(self) -> Ints:
        """1 where a head's colour means help, -1 where it means harm, else 0; int [head]."""
        signs = np.sign(np.nan_to_num(self.values)).astype(np.int64)
        return signs if self.signed else np.maximum(signs, 0)

    @property
    def ends(self) -> tuple[str, ...]:
        """Labels of the scale: its ends, with ≤ or ≥ if values lie beyond them, and 0."""
        finite = self.values[np.isfinite(self.values)]
        low, high = (bool((side * finite > self.limit * 1.0001).any()) for side in (-1, 1))
        end = f"{self.limit:.3g}"
        top = f"{'≥ ' if high else ''}{'+' if self.signed else ''}{end}"
        return (f"{'≤ ' if low else ''}−{end}", "0", top) if self.signed else ("0", top)


def head_map(
    values: Floats,
    grid: HeadGrid,
    *,
    unit: str = "",
    limit: float | None = None,
    signed: bool = True,
    marks: Ints | None = None,
    tips: Sequence[str] = (),
    named: Sequence[tuple[float, str]] = (),
) -> HeadMap:
    """A map of any values, float [head]; arguments as in `HeadMap`.

    Args:
        limit: by default the largest magnitude.
    """
    limit = limit or float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
    marks = np.zeros(grid.size, np.int64) if marks is None else marks
    return HeadMap(grid, values, unit, limit, signed, marks, tuple(tips), named=tuple(named))


def map_of(scores: HeadScores, limit: float | None = None) -> HeadMap:
    """The map of a method's scores by themselves.

    Args:
        limit: End of the scale in the unit shown; by default its own.
    """
    (shown,) = maps_of({"": scores}, common=False).values()
    return shown if limit is None else replace(shown, limit=limit)


def maps_of(scores: Mapping[str, HeadScores], *, common: bool = True) -> dict[str, HeadMap]:
    """The maps of several scores on view together, whose p-values are corrected for all heads of all of them.

    Args:
        common: On one scale; else on each map's own.
    """
    limit, holms = common_limit(scores.values()), adjusted(scores)
    tests = 0 if coarse(scores.values()) else sum(len(p) for p in holms.values())
    found = dict[str, HeadMap]()
    for name, s in scores.items():
        factor, unit = shown_unit(s.unit)
        own = limit if common else common_limit([s])
        marks, known = score_marks(s, holms.get(name)), tests if name in holms else 0
        found[name] = HeadMap(
            s.grid, factor * s.values, unit, own, bool(s.signed), marks, score_tips(s), known
        )
    return found


def adjusted(scores: Mapping[str, HeadScores]) -> dict[str, Floats]:
    """Holm-adjusted p-values over all heads of all languages on view, [head] each; {} where there are none."""
    tested = {name: s.p_values for name, s in scores.items() if s.p_values is not None}
    if not tested:
        return {}
    cuts = np.cumsum([len(p) for p in tested.values()])[:-1]
    return dict(
        zip(tested, np.split(holm(np.concatenate(list(tested.values()))), cuts), strict=True)
    )


def score_marks(scores: HeadScores, corrected: Floats | None = None) -> Ints:
    """How heads are marked, int [head], as in `HeadMap`.

    Args:
        corrected: Their adjusted p-values, if any.
    """
    sides = scores.helpful.astype(np.int64) - scores.harmful
    return (
        sides
        if corrected is None
        else np.where(corrected <= 1 - scores.level, CORRECTED, OWN) * sides
    )


def common_limit(scores: Iterable[HeadScores]) -> float:
    """The common end of the scale of several maps, in the unit shown."""
    return symmetric_limit([shown_unit(s.unit)[0] * s.values for s in scores])


def symmetric_limit(values: Iterable[Floats]) -> float:
    """One scale end for several maps: the 99 % quantile of the magnitudes, so that one head does not pale the rest."""
    every = np.abs(np.concatenate([np.asarray(v, float).ravel() for v in values] or [np.zeros(1)]))
    every = every[np.isfinite(every)]
    limit = float(np.quantile(every, 0.99)) if every.size else 0.0
    return limit or float(every.max(initial=0.0)) or 1.0


def score_tips(scores: HeadScores) -> tuple[str, ...]:
    """Text on each head: value, interval (seldom symmetric) and half-width in the unit shown, and samples."""
    half, unit, plus = scores.half_width, scores.unit, "" if scores.signed else "+"
    tips = []
    for i, value in enumerate(scores.values):
        lines = [
            value_words(value, unit).lstrip(plus)
            + (" points" if unit == "accuracy" else f" ({unit})")
        ]
        if half is not None and scores.low is not None and scores.high is not None:
            ends = " to ".join(
                value_words(end[i], unit).lstrip(plus) for end in (scores.low, scores.high)
            )
            lines.append(
                f"{scores.level:.0%} interval {ends}, half-width "
                f"{value_words(half[i], unit).lstrip('+')}"
            )
        if scores.samples is not None:
            lines.append(f"{int(scores.samples[i]):,} samples")
        tips.append("\n".join(lines))
    return tuple(tips)


def value_format(unit: str) -> str:
    """How a signed value of a unit is written once it is in the unit shown.

    Those in other units may be small.
    """
    return "+.2f" if unit == "accuracy" else "+.4g"


def value_words(value: float, unit: str) -> str:
    """A signed value, in the unit shown."""
    return f"{shown_unit(unit)[0] * value:{value_format(unit)}}".replace("-", MINUS)


def named(head: Head) -> str:
    """A head in words."""
    stack = "" if head.stack == "encoder" else f"{head.stack} "
    return f"{stack}layer {head.layer}, head {head.head}"


# Roles of heads: one colour and one letter per role, the same in the map, the figures and their
# legends.


class Look(NamedTuple):
    """How a kind of role is drawn.

    Attributes:
        colour, ink: of the cell and of the text on it.
        mark: A letter, so that roles differ by more than colour.
    """

    colour: str
    ink: str
    mark: str


# At least 0.12 apart in OKLab, also with each kind of dichromacy (Machado et al. 2009).
LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        POSITIONAL: Look("#d9952c", DARK, "±"),
        "nsubj": Look("#1c7515", LIGHT, "S"),
        "obj": Look("#59bfba", DARK, "O"),
        "amod": Look("#5e0fa8", LIGHT, "A"),
        "advmod": Look("#a384ee", DARK, "V"),
        "rare word": Look("#e2326e", DARK, "R"),
        "induction": Look("#825bbc", LIGHT, "I"),
        "same token elsewhere": Look("#831b5c", LIGHT, "="),
        "separator": Look("#ecd387", DARK, "E"),
        "first token": Look("#a3e6fa", DARK, "F"),
    }
)
OTHER = Look(UNSURE, DARK, "?")  # roles unknown to this version


def look_of(group: str) -> Look:
    """The look of a group of roles."""
    return LOOKS.get(group, OTHER)


def in_order(groups: Iterable[str]) -> list[str]:
    """Each group once: known ones first in the order of the legend, then the others by name."""
    known = list(LOOKS)
    return sorted(
        dict.fromkeys(groups),
        key=lambda name: (known.index(name) if name in known else len(known), name),
    )


@dataclass(frozen=True)
class RoleMap:
    """What every head does, as shown.

    Attributes:
        counts: {group of roles: number of heads that have one}, for every group tested, in the
            legend's order.
        groups: of each head, the clearest first; None where it was not looked at.
        marks: The letter of the first group; for a position, the offset itself; empty without a
            role.
        tips: Lines of text about each head.
    """

    grid: HeadGrid
    counts: Mapping[str, int]
    groups: tuple[tuple[str, ...] | None, ...]
    marks: tuple[str, ...]
    tips: tuple[str, ...]


def role_map_of(roles: Roles) -> RoleMap:
    """The map of a report's roles."""
    heads = roles.grid.heads
    return RoleMap(
        roles.grid,
        {group: roles.counts[group] for group in in_order(roles.counts)},
        tuple(tuple(roles.groups(head)) if head in roles.measures else None for head in heads),
        tuple(_role_mark(roles.having(head)) for head in heads),
        tuple(_role_tip(roles, head) for head in heads),
    )


def _role_mark(own: Sequence[Found]) -> str:
    if own and own[0].group == POSITIONAL:
        return role_words(own[0].role).removeprefix("position ")
    return look_of(own[0].group).mark if own else ""


def _role_tip(roles: Roles, head: Head) -> str:
    """A head's roles, a line each, with their shares."""
    if head not in roles.measures:
        return "not looked at"
    own = roles.having(head)
    lines = [f"{len(own)} roles"] if len(own) > 1 else []
    return (
        "\n".join([*lines, *(f"{role_words(row.role)}{_share(row)}" for row in own)]) or "no role"
    )


def role_words(role: str) -> str:
    """A role as displayed, with a minus sign for a hyphen."""
    return role.replace("position -", f"position {MINUS}")


def _share(row: Found) -> str:
    share, chance = row.numbers["share, %"], row.numbers["chance, %"]
    if share is None:
        return ""
    return f", {share:.0f} %" + ("" if chance is None else f" ({against(row.role)} {chance:.0f} %)")


def against(role: str) -> str:
    """What a role's share is compared with: for syntax, always attending to the relation's most frequent offset."""
    return "baseline" if ":" in role else "chance"


# Tokens that hold parts of a letter, as `headlab.models.token_texts` writes them.

PART = re.compile(r"\[\d+/\d+\]")


def parts_note(tokens: Iterable[str]) -> str:
    """What the marks of letters' parts mean, by the first of some tokens that has one.

    Empty if none has.
    """
    example = next((token for token in tokens if PART.search(token)), "")
    return example and f"{example}: a letter that takes several tokens, and which of them this is."
