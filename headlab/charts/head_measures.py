"""What is known of every head, as numbers that an axis of a chart can show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from headlab.core import Floats, HeadGrid, display_unit
from headlab.pictures import MINUS, role_words, value_format
from headlab.results import HeadScores
from headlab.roles import Roles

LAYER = "layer"
"""Name of the measure that says how deep in its stack a head lies."""
ATTENTION = "attention"
"""How names of attention measures begin, such as entropy and distance."""
PLAIN_FORMAT = ".4g"
"""Of numbers without a sign."""
TOKEN_COUNT = "tokens"
"""Column of a report that counts what its measures are means of; it says nothing of a head."""


@dataclass(frozen=True)
class HeadMeasure:
    """One number per head.

    Attributes:
        name: What it is, such as 'value by shapley'.
        language: Code of the language that it was measured in; empty for one of the model alone.
        unit: Of the values; empty for numbers without one.
        values: Float [head], NaN where it is not known.
        low: Lower ends of the intervals, float [head], NaN for none; None without intervals.
        high: Their upper ends.
        number_format: How a value is written, as in `format`.
        basis: What it rests on, in words: settings, examples, cautions; empty if that is not said.
        sampled_values: Float [head] in `unit`: the values by samples alone, where `values` lean on
            slopes too, NaN for heads without a sample; None where they do not.
    """

    name: str
    language: str
    unit: str
    values: Floats
    low: Floats | None = None
    high: Floats | None = None
    number_format: str = PLAIN_FORMAT
    basis: str = ""
    sampled_values: Floats | None = None

    @property
    def ranked_values(self) -> Floats:
        """By what heads are ranked beside another measure: values of which no two share slopes."""
        return self.values if self.sampled_values is None else self.sampled_values

    @property
    def title(self) -> str:
        """The measure with its language and unit, for an axis."""
        parts = [self.name]
        if self.language:
            parts.append(self.language)
        if self.unit:
            parts.append(self.unit)
        return ", ".join(parts)

    def text_of(self, head_index: int) -> str:
        """One head's value with its interval, such as '+0.31 [+0.10, +0.52] points'."""
        value = self.values[head_index]
        if not np.isfinite(value):
            return "not known"
        text = self._number_text(value)
        if self.low is not None and self.high is not None and np.isfinite(self.low[head_index]):
            low_text = self._number_text(self.low[head_index])
            text += f" [{low_text}, {self._number_text(self.high[head_index])}]"
        if self.unit:
            text += f" {self.unit}"
        return text

    def _number_text(self, value: float) -> str:
        return f"{value:{self.number_format}}".replace("-", MINUS)


@dataclass(frozen=True)
class KnownMeasure:
    """A measure that stored results give, in some languages.

    Attributes:
        name: As of `HeadMeasure`.
        by_language: By code of the language, what makes the measure; one under the empty code for a
            measure of the model alone.
        method: For values by a method, its name with what distinguishes its settings; else empty.
        is_of_other_model: Whether it is of another model with the same heads.
    """

    name: str
    by_language: Mapping[str, Callable[[], HeadMeasure]]
    method: str = ""
    is_of_other_model: bool = False


def value_measure(scores: HeadScores, name: str) -> HeadMeasure:
    """The values of some scores, with their intervals.

    Args:
        scores: Of all heads, in one language.
        name: Of the measure.
    """
    factor, unit = display_unit(scores.unit)
    number_format = PLAIN_FORMAT
    if scores.signed:
        number_format = value_format(scores.unit)
    return HeadMeasure(
        name,
        scores.language,
        unit,
        factor * scores.values,
        None if scores.low is None else factor * scores.low,
        None if scores.high is None else factor * scores.high,
        number_format,
        sampled_values=factor * scores.tested_values if has_values_by_samples(scores) else None,
    )


def has_values_by_samples(scores: HeadScores) -> bool:
    """Whether what the samples alone say differs from the values: by slopes, or heads without any."""
    return scores.sample_means is not None or not scores.tested.all()


def rank_measure(scores: HeadScores, name: str) -> HeadMeasure:
    """The ranks of the heads by some scores, 1 for the highest value; none without a value.

    Args:
        scores: Of all heads, in one language.
        name: Of the measure.
    """
    has_value = np.isfinite(scores.values)
    ranks = np.where(has_value, scores.ranks, np.nan)
    sampled_ranks = None
    if has_values_by_samples(scores):
        has_value = np.isfinite(scores.tested_values)
        sampled_ranks = np.where(has_value, scores.tested_ranks, np.nan)
    return HeadMeasure(name, scores.language, "", ranks, sampled_values=sampled_ranks)


def layer_measure(grid: HeadGrid) -> HeadMeasure:
    """The layer of every head, counted from 0 in each stack."""
    layers = np.array([head.layer for head in grid.heads], np.float64)
    return HeadMeasure(LAYER, "", "", layers, number_format="g")


def measures_of_roles(
    roles: Roles, grid: HeadGrid, language: str
) -> dict[str, Callable[[], HeadMeasure]]:
    """What a report on roles says of every head, by the names of the measures.

    These are the measures of attention (entropy, distance, ...), then the share of the tokens at
    which a head does what each role says.

    Args:
        roles: The report, whose grid may lack heads that were not examined.
        grid: The model's heads.
        language: Code of the language of its sentences.
    """
    makers: dict[str, Callable[[], HeadMeasure]] = {}
    columns = next(iter(roles.measures.values()), {})
    for column in columns:
        if column != TOKEN_COUNT:
            measure_name, _, unit = column.partition(", ")
            name = f"{ATTENTION}: {measure_name}"
            makers[name] = partial(_attention_measure, roles, grid, column, name, unit, language)
    for role in dict.fromkeys(row.role for row in roles.rows):
        name = f"share of role {role_words(role)}"
        makers[name] = partial(_role_share, roles, grid, role, name, language)
    return makers


def _attention_measure(
    roles: Roles, grid: HeadGrid, column: str, name: str, unit: str, language: str
) -> HeadMeasure:
    values = np.full(grid.size, np.nan)
    for head_index, head in enumerate(grid.heads):
        value = roles.measures.get(head, {}).get(column)
        if value is not None:
            values[head_index] = value
    return HeadMeasure(name, language, unit, values)


def _role_share(roles: Roles, grid: HeadGrid, role: str, name: str, language: str) -> HeadMeasure:
    result_by_head = {row.head: row for row in roles.rows if row.role == role}
    values, low, high = np.full((3, grid.size), np.nan)
    columns = {"share, %": values, "low, %": low, "high, %": high}
    for head_index, head in enumerate(grid.heads):
        if head not in result_by_head:
            continue
        for column, numbers in columns.items():
            number = result_by_head[head].numbers[column]
            if number is not None:
                numbers[head_index] = number
    return HeadMeasure(name, language, "%", values, low, high, ".1f")
