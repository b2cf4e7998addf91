"""What a map with one value per head shows: unit, scale, colours, signs, marks and words.

It is decided here once; the clickable grid of the pages, Plotly and the report's SVG only draw it.
This module uses no drawing library.
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

from headlab.core import (
    HEADS,
    Floats,
    Head,
    HeadGrid,
    Ints,
    base_and_kind,
    display_unit,
    percent_text,
    player_in_words,
)
from headlab.methods import RANDOM_METHOD
from headlab.results import (
    AVERAGE_LIMIT,
    SAMPLING_ERROR_LIMIT,
    HeadScores,
    adjusted_p_values,
    why_holm_rejects_none,
)
from headlab.roles import POSITIONAL, RoleResult, Roles
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
# For values without a sign.
UPWARDS: Scale = tuple((2 * position - 1, colour) for position, colour in DIVERGING[2:])
# For heads that are on or off, and gates that are open or closed: purple, which says neither help nor
# harm; what is off is pale, and not as white as what has no gate.
SWITCHES: Scale = ((0.0, "#e7dff0"), (0.5, "#9e83c1"), (1.0, "#4b2a7b"))
# For what sets two masks apart: pink and green, told apart with every common colour blindness too.
APART: Scale = (
    (0.0, "#c51b7d"),
    (0.25, "#e9a3c9"),
    (0.5, "#f7f7f7"),
    (0.75, "#a1d76a"),
    (1.0, "#4d9221"),
)
SEQUENTIAL: Scale = ((0.0, "#f7fbff"), (0.5, "#6baed6"), (1.0, "#08306b"))
HELPS = "#2b7bba"
HARMS = "#d9730d"
UNSURE = "#8a8f98"
# Colours of a figure's lines; neighbours differ in lightness too.
LINE_COLOURS = (HELPS, HARMS, "#3a8f5c", "#8e5ea2", "#b08d2e", "#c94f7c")
CHANCE_METHOD = RANDOM_METHOD  # drawn in grey, as the baseline for all others
# One per line, so that lines differ by more than colour.
DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot", "dash")
MINUS = "\N{MINUS SIGN}"
# Text on a colour.
DARK = "#101418"
LIGHT = "#ffffff"


def line_look(number: int, name: str = "") -> tuple[str, str]:
    """Colour and dashes of a figure's line, by its number.

    Args:
        number: Number of the line in its figure.
        name: Name of the line; that of `CHANCE_METHOD` has a look of its own.
    """
    if name == CHANCE_METHOD:
        return UNSURE, "dot"
    return LINE_COLOURS[number % len(LINE_COLOURS)], DASHES[number % len(DASHES)]


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of "#rrggbb"."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def colour_on_scale(scale: Sequence[tuple[float, str]], share: float) -> str:
    """The colour at a position on a scale, "#rrggbb".

    Positions beyond the scale's ends get the ends' colours.
    """
    share = min(max(share, scale[0][0]), scale[-1][0])
    for (start, start_colour), (end, end_colour) in pairwise(scale):
        if share <= end:
            weight = (share - start) / (end - start)
            channels = zip(rgb(start_colour), rgb(end_colour), strict=True)
            mixed_channels = [round(low + weight * (high - low)) for low, high in channels]
            return "#" + "".join(f"{channel:02x}" for channel in mixed_channels)
    return scale[-1][1]


def ink_on(colour: str) -> str:
    """Dark or light, whichever is easier to read on a colour (WCAG 2 contrast)."""
    is_light = (luminance(colour) + 0.05) ** 2 > (luminance(DARK) + 0.05) * 1.05
    return DARK if is_light else LIGHT


def luminance(colour: str) -> float:
    """Relative luminance of "#rrggbb", 0 to 1 (WCAG 2)."""
    parts = [value / 255 for value in rgb(colour)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def png_of_shares(shares: Floats) -> str:
    """A matrix of shares, 0 to 1, as a PNG in a data URI: a pixel each, on the sequential scale."""
    colours = np.array(
        [rgb(colour_on_scale(SEQUENTIAL, level / 255)) for level in range(256)], np.uint8
    )
    pixels = colours[np.rint(255 * np.clip(shares, 0, 1)).astype(int)]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    height, width = shares.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n"
    png += _png_chunk(b"IHDR", header)
    png += _png_chunk(b"IDAT", zlib.compress(rows))
    png += _png_chunk(b"IEND", b"")
    return "data:image/png;base64," + b64encode(png).decode("ascii")


def _png_chunk(kind: bytes, content: bytes) -> bytes:
    """A chunk of a PNG file, with its length and checksum."""
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


# Maps of heads.

# How a head is marked: by its own interval, and if that also holds after Holm's correction.
OWN_INTERVAL = 1
HOLM_CORRECTED = 2


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
        own_scale: Colours of a map whose values neither help nor harm; None for the usual ones.
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
    own_scale: Scale | None = None

    @property
    def meanings(self) -> dict[int, str]:
        """What the marks of this map mean, by their size; only those that can occur on it."""
        owner = "the head's" if self.grid.has_only_heads else "its"
        meanings = {OWN_INTERVAL: f"{owner} own interval excludes 0"}
        if self.tests:
            meanings[HOLM_CORRECTED] = f"also after Holm's correction for {self.tests:,} tests"
        return meanings

    @property
    def scale(self) -> Scale:
        """The scale's colours, from the lowest value at 0 to the highest at 1."""
        if self.own_scale is not None:
            return self.own_scale
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
            colour_on_scale(self.scale, share) if np.isfinite(share) else None
            for share in shares.tolist()
        )

    @property
    def signs(self) -> Ints:
        """1 where a head's colour means help, -1 where it means harm, else 0; int [head]."""
        signs = np.sign(np.nan_to_num(self.values)).astype(np.int64)
        if self.signed:
            return signs
        return np.maximum(signs, 0)

    @property
    def ends(self) -> tuple[str, ...]:
        """Labels of the scale: its ends, with ≤ or ≥ if values lie beyond them, and 0."""
        finite = self.values[np.isfinite(self.values)]
        visible_limit = self.limit * 1.0001
        at_least = "≥ " if (finite > visible_limit).any() else ""
        at_most = "≤ " if (-finite > visible_limit).any() else ""
        end = f"{self.limit:.3g}"
        if self.signed:
            return f"{at_most}−{end}", "0", f"{at_least}+{end}"
        return "0", f"{at_least}{end}"


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
    own_scale: Scale | None = None,
) -> HeadMap:
    """A map of any values, float [head]; arguments as in `HeadMap`.

    Args:
        limit: End of the scale; by default the largest magnitude.
    """
    limit = limit or float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
    marks = np.zeros(grid.size, np.int64) if marks is None else marks
    return HeadMap(
        grid,
        values,
        unit,
        limit,
        signed,
        marks,
        tuple(tips),
        named=tuple(named),
        own_scale=own_scale,
    )


def map_of_scores(scores: HeadScores, limit: float | None = None) -> HeadMap:
    """The map of a method's scores by themselves.

    Args:
        limit: End of the scale in the unit shown; by default its own.
    """
    (head_map,) = maps_of_scores({"": scores}, common=False).values()
    if limit is None:
        return head_map
    return replace(head_map, limit=limit)


def maps_of_scores(scores: Mapping[str, HeadScores], *, common: bool = True) -> dict[str, HeadMap]:
    """The maps of several scores on view together.

    Their p-values are corrected for all heads of all of them.

    Args:
        scores: Scores by the name of their map.
        common: Whether all maps have one scale; else each has its own.
    """
    limit = common_limit(scores.values())
    holm_adjusted = holm_adjusted_p_values(scores)
    tests = (
        0
        if why_holm_rejects_none(scores.values())
        else sum(scores[name].test_count for name in holm_adjusted)
    )
    maps: dict[str, HeadMap] = {}
    for name, head_scores in scores.items():
        factor, unit = display_unit(head_scores.unit)
        scale_end = limit if common else common_limit([head_scores])
        marks = score_marks(head_scores, holm_adjusted.get(name))
        map_tests = tests if name in holm_adjusted else 0
        maps[name] = HeadMap(
            head_scores.grid,
            factor * head_scores.values,
            unit,
            scale_end,
            bool(head_scores.signed),
            marks,
            score_tips(head_scores),
            map_tests,
        )
    return maps


def holm_adjusted_p_values(scores: Mapping[str, HeadScores]) -> dict[str, Floats]:
    """Holm-adjusted p-values over all tested heads of all scores on view, [head] each.

    Scores without p-values are left out.
    """
    with_p_values = {
        name: head_scores
        for name, head_scores in scores.items()
        if head_scores.p_values is not None
    }
    all_adjusted = adjusted_p_values(list(with_p_values.values()), holm)
    return dict(zip(with_p_values, all_adjusted, strict=True))


def score_marks(scores: HeadScores, adjusted_p: Floats | None = None) -> Ints:
    """How heads are marked, int [head], as in `HeadMap`.

    Args:
        scores: Scores of the heads.
        adjusted_p: Their adjusted p-values, if any.
    """
    sides = scores.helpful.astype(np.int64) - scores.harmful
    if adjusted_p is None:
        return sides
    return np.where(adjusted_p <= 1 - scores.level, HOLM_CORRECTED, OWN_INTERVAL) * sides


def common_limit(scores: Iterable[HeadScores]) -> float:
    """The common end of the scale of several maps, in the unit shown."""
    return symmetric_limit([display_unit(s.unit)[0] * s.values for s in scores])


def symmetric_limit(values: Iterable[Floats]) -> float:
    """One end of the scale for several maps: the 99 % quantile of the magnitudes.

    One head with a large value does not make the others pale then.
    """
    magnitudes = np.abs(
        np.concatenate([np.asarray(array, float).ravel() for array in values] or [np.zeros(1)])
    )
    magnitudes = magnitudes[np.isfinite(magnitudes)]
    limit = float(np.quantile(magnitudes, 0.99)) if magnitudes.size else 0.0
    return limit or float(magnitudes.max(initial=0.0)) or 1.0


def score_tips(scores: HeadScores) -> tuple[str, ...]:
    """Text about each head: value, interval and half-width in the unit shown, and samples."""
    half_width = scores.half_width
    unit = scores.unit
    unit_text = " points" if unit == "accuracy" else f" ({unit})"
    hidden_sign = "" if scores.signed else "+"
    tips = []
    for index, value in enumerate(scores.values):
        lines = [value_words(value, unit).lstrip(hidden_sign) + unit_text]
        if half_width is not None and scores.low is not None and scores.high is not None:
            low = value_words(scores.low[index], unit).lstrip(hidden_sign)
            high = value_words(scores.high[index], unit).lstrip(hidden_sign)
            half_width_text = value_words(half_width[index], unit).lstrip("+")
            lines.append(
                f"{percent_text(scores.level)} interval {low} to {high}, half-width {half_width_text}"
            )
        has_samples = scores.samples is None or scores.samples[index] > 0
        if scores.sample_means is not None and has_samples:
            mean = value_words(scores.sample_means[index], unit).lstrip(hidden_sign)
            lines.append(f"{mean} by samples alone")
        if scores.sampling_error is not None:
            lines.append(f"± {sampling_error_words(scores, index)}")
        if scores.average_error is not None:
            error = value_words(scores.average_error[index], unit).lstrip("+")
            limit = AVERAGE_LIMIT.replace("heads", scores.grid.noun)
            lines.append(f"average error {error}, which {limit}")
        if scores.samples is not None:
            lines.append(f"{int(scores.samples[index]):,} samples")
        tips.append("\n".join(lines))
    return tuple(tips)


def sampling_error_words(scores: HeadScores, index: int) -> str:
    """The sampling error of a head, in the unit shown, and what it leaves out."""
    assert scores.sampling_error is not None
    error = value_words(scores.sampling_error[index], scores.unit).lstrip("+")
    return f"{error} from sampling at {percent_text(scores.level)}, which {SAMPLING_ERROR_LIMIT}"


def value_format(unit: str) -> str:
    """How a signed value of a unit is written once it is in the unit shown.

    Those in other units may be small.
    """
    if unit == "accuracy":
        return "+.2f"
    return "+.4g"


def value_words(value: float, unit: str) -> str:
    """A signed value, in the unit shown."""
    return f"{display_unit(unit)[0] * value:{value_format(unit)}}".replace("-", MINUS)


def head_in_words(head: Head, grid: HeadGrid | None = None) -> str:
    """A head, or another player, in words.

    Args:
        head: The head.
        grid: That it is in, which says whether it is a head; None where its stack's name does.
    """
    kind = base_and_kind(head.stack)[1] if grid is None else grid.kind_of(head)
    if kind != HEADS:
        return player_in_words(head)
    stack = "" if head.stack == "encoder" else f"{head.stack} "
    return f"{stack}layer {head.layer}, head {head.head}"


# Roles of heads: one colour and one letter per role, the same in the map, the figures and their
# legends.


class RoleLook(NamedTuple):
    """How a kind of role is drawn.

    Attributes:
        colour: Colour of the cell.
        ink: Colour of the text on it.
        mark: A letter, so that roles differ by more than colour.
    """

    colour: str
    ink: str
    mark: str


# At least 0.12 apart in OKLab, also with each kind of dichromacy (Machado et al. 2009).
LOOKS: Mapping[str, RoleLook] = MappingProxyType(
    {
        POSITIONAL: RoleLook("#d9952c", DARK, "±"),
        "nsubj": RoleLook("#1c7515", LIGHT, "S"),
        "obj": RoleLook("#59bfba", DARK, "O"),
        "amod": RoleLook("#5e0fa8", LIGHT, "A"),
        "advmod": RoleLook("#a384ee", DARK, "V"),
        "rare word": RoleLook("#e2326e", DARK, "R"),
        "induction": RoleLook("#825bbc", LIGHT, "I"),
        "same token elsewhere": RoleLook("#831b5c", LIGHT, "="),
        "separator": RoleLook("#ecd387", DARK, "E"),
        "first token": RoleLook("#a3e6fa", DARK, "F"),
    }
)
UNKNOWN_LOOK = RoleLook(UNSURE, DARK, "?")  # roles unknown to this version


def look_of(group: str) -> RoleLook:
    """The look of a group of roles."""
    return LOOKS.get(group, UNKNOWN_LOOK)


def in_legend_order(groups: Iterable[str]) -> list[str]:
    """Each group once: known ones first in the order of the legend, then the others by name."""
    known_groups = list(LOOKS)

    def rank(name: str) -> tuple[int, str]:
        is_known = name in known_groups
        return known_groups.index(name) if is_known else len(known_groups), name

    return sorted(dict.fromkeys(groups), key=rank)


@dataclass(frozen=True)
class RoleMap:
    """What every head does, as shown.

    Attributes:
        counts: {group of roles: number of heads that have one}, for every group tested, in the
            legend's order.
        groups: Groups of each head's roles, the clearest first; None where it was not looked at.
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
        {group: roles.counts[group] for group in in_legend_order(roles.counts)},
        tuple(tuple(roles.groups(head)) if head in roles.measures else None for head in heads),
        tuple(_role_mark(roles.roles_of(head)) for head in heads),
        tuple(_role_tip(roles, head) for head in heads),
    )


def _role_mark(roles_of_head: Sequence[RoleResult]) -> str:
    if roles_of_head and roles_of_head[0].group == POSITIONAL:
        return role_words(roles_of_head[0].role).removeprefix("position ")
    if roles_of_head:
        return look_of(roles_of_head[0].group).mark
    return ""


def _role_tip(roles: Roles, head: Head) -> str:
    """A head's roles, a line each, with their shares."""
    if head not in roles.measures:
        return "not looked at"
    roles_of_head = roles.roles_of(head)
    lines = []
    if len(roles_of_head) > 1:
        lines.append(f"{len(roles_of_head)} roles")
    for row in roles_of_head:
        lines.append(f"{role_words(row.role)}{_share_text(row)}")
    return "\n".join(lines) or "no role"


def role_words(role: str) -> str:
    """A role as displayed, with a minus sign for a hyphen."""
    return role.replace("position -", f"position {MINUS}")


def _share_text(row: RoleResult) -> str:
    share = row.numbers["share, %"]
    chance = row.numbers["chance, %"]
    if share is None:
        return ""
    if chance is None:
        return f", {share:.0f} %"
    return f", {share:.0f} % ({comparison_word(row.role)} {chance:.0f} %)"


def comparison_word(role: str) -> str:
    """What a role's share is compared with.

    For syntax it is a baseline, always attending to the relation's most frequent offset.
    """
    return "baseline" if ":" in role else "chance"


# Tokens that hold parts of a letter, as `headlab.models.token_texts` writes them.

LETTER_PART = re.compile(r"\[\d+/\d+\]")


def parts_note(tokens: Iterable[str]) -> str:
    """What the marks of letters' parts mean, by the first of some tokens that has one.

    Empty if none has.
    """
    example = next((token for token in tokens if LETTER_PART.search(token)), "")
    return example and f"{example}: a letter that takes several tokens, and which of them this is."
