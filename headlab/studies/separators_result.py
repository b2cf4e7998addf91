"""What the study of separators found.

It needs no model, so that reports are shown without PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from headlab.studies.result import Column, HeadCells, Records, StudyResult, TableName

PERCENT = ".1f"
POINTS = "+.1f"


@dataclass(frozen=True)
class HeadLooks:
    """How often a head looks at separators in a language.

    Attributes:
        language: Its code.
        head: The head.
        sentences_percent: Share of sentences in which every token's largest weight goes to a
            separator.
        low_percent: Lower end of its interval.
        high_percent: Upper end.
        tokens_percent: Mean share of a sentence's tokens whose largest weight does.
        sentences: Their number.
    """

    language: Annotated[str, Column("language")]
    head: HeadCells
    sentences_percent: Annotated[float, Column("sentences, %", PERCENT)]
    low_percent: Annotated[float, Column("low, %", PERCENT)]
    high_percent: Annotated[float, Column("high, %", PERCENT)]
    tokens_percent: Annotated[float, Column("tokens, %", PERCENT)]
    sentences: Annotated[int, Column("n", "d")]


@dataclass(frozen=True)
class KindLooks:
    """The same as a mean over a kind of heads, and minus the mean over all heads.

    None for a kind without heads.

    Attributes:
        language: Its code, or "all languages".
        kind: Of the heads.
        heads: Their number.
        sentences_percent: As of one head.
        low_percent: Lower end of its interval.
        high_percent: Upper end.
        tokens_percent: As of one head.
        difference: In points, to the mean over all heads; None where these are all heads.
        low: Lower end of its interval.
        high: Upper end.
        p: Two-sided.
    """

    language: Annotated[str, Column("language")]
    kind: Annotated[str, Column("heads")]
    heads: Annotated[int, Column("number of heads", "d")]
    sentences_percent: Annotated[float | None, Column("sentences, %", PERCENT)] = None
    low_percent: Annotated[float | None, Column("low, %", PERCENT)] = None
    high_percent: Annotated[float | None, Column("high, %", PERCENT)] = None
    tokens_percent: Annotated[float | None, Column("tokens, %", PERCENT)] = None
    difference: Annotated[float | None, Column("difference, points", POINTS)] = None
    low: Annotated[float | None, Column("low, points", POINTS)] = None
    high: Annotated[float | None, Column("high, points", POINTS)] = None
    p: Annotated[float | None, Column("p", ".4f")] = None


@dataclass(frozen=True, kw_only=True)
class SeparatorsResult(StudyResult):
    """How often heads look at separators.

    Attributes:
        heads: Every head in every language.
        kinds: Every kind of heads in every language, and in all of them.
    """

    heads: Annotated[Records[HeadLooks], TableName("separators")]
    kinds: Annotated[Records[KindLooks], TableName("separator-kinds")]
