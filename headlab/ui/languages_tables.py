"""What languages share and where they part, as tables: pure functions of head scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from headlab.records import Bools, Floats, Head
from headlab.scores import HeadScores
from headlab.stats import spearman
from headlab.ui.heads_table import shown_unit
from headlab.ui.names import head_key
from headlab.ui.results import spec_of


def stacked(scores: Mapping[str, HeadScores]) -> Floats:
    """Values of all languages, float [language, head], in the unit shown."""
    return np.stack([shown_unit(s.unit)[0] * s.values for s in scores.values()])


def agreement_table(scores: Mapping[str, HeadScores]) -> pd.DataFrame:
    """Rank correlation of the head scores of every pair of languages, square, by language code."""
    names = list(scores)
    return pd.DataFrame(spearman(stacked(scores)), index=pd.Index(names, name="language"), columns=names)


def noise_share(scores: Mapping[str, HeadScores]) -> float | None:
    """Median half-width over the spread (standard deviation) of the values; None without intervals.

    Near 0 the ranks are the heads' own; near 1 or above they are mostly sampling noise.
    """
    ratios = [
        float(np.median(s.half_width) / s.values.std())
        for s in scores.values()
        if s.half_width is not None and s.values.std()
    ]
    return float(np.median(ratios)) if ratios else None


def agreement_note(scores: Mapping[str, HeadScores]) -> str:
    """How far the correlations can be trusted, in words."""
    note = f"Spearman ρ over {next(iter(scores.values())).grid.size} heads."
    noise = noise_share(scores)
    if noise is None:
        return f"{note} This method gives no intervals, so how much of ρ is noise is not known."
    return f"{note} Sampling noise pulls ρ towards 0: the median half-width is {noise:.2f} of the spread of the values."


def sample_note(scores: Mapping[str, HeadScores]) -> str:
    """How many examples and samples stand behind the values, in words."""
    examples = sorted({int(n) for s in scores.values() if (n := spec_of(s, "task", "size"))})
    samples = sorted({int(np.median(s.samples)) for s in scores.values() if s.samples is not None})
    words = [f"{_span(examples)} examples"] if examples else []
    words += [f"{_span(samples)} samples a head"] if samples else []
    return f"From {', '.join(words)}." if words else ""


def _span(numbers: list[int]) -> str:
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"


def _signs(scores: Mapping[str, HeadScores], sure: bool) -> tuple[Bools, Bools]:
    """(helps, harms), bool [language, head]; by the interval if `sure`, else by the value's sign."""
    every = list(scores.values())
    if sure:
        return np.stack([s.helpful for s in every]), np.stack([s.harmful for s in every])
    return np.stack([s.values > 0 for s in every]), np.stack([s.values < 0 for s in every])


def has_intervals(scores: Mapping[str, HeadScores]) -> bool:
    """Whether every language's scores come with intervals."""
    return all(s.low is not None and s.high is not None for s in scores.values())


def specific_heads(scores: Mapping[str, HeadScores], few: int) -> pd.DataFrame:
    """Heads positive in 1 to `few` languages and negative in all others, the clearest first.

    Columns: head, positive in, negative in (counts), the languages where it is positive; and where
    there are intervals, in how many the sign is sure, so that noise is not read as a difference.
    """
    names, helps, harms = np.array(list(scores)), *_signs(scores, False)
    count = helps.sum(0)
    chosen = np.flatnonzero((count >= 1) & (count <= few) & (count + harms.sum(0) == len(names)) & (harms.sum(0) > 0))
    return _sign_rows(scores, chosen, names, helps, harms)


def sign_changes(scores: Mapping[str, HeadScores]) -> pd.DataFrame:
    """Heads whose interval lies above 0 in some language and below 0 in another."""
    names, helps, harms = np.array(list(scores)), *_signs(scores, True)
    return _sign_rows(scores, np.flatnonzero(helps.any(0) & harms.any(0)), names, helps, harms)


def _sign_rows(
    scores: Mapping[str, HeadScores], chosen: npt.NDArray[Any], names: npt.NDArray[Any], helps: Bools, harms: Bools
) -> pd.DataFrame:
    values, heads = stacked(scores), _heads(scores)
    sure = _signs(scores, True) if has_intervals(scores) else None
    rows = []
    for i in chosen:
        row: dict[str, object] = {
            "head": head_key(heads[i]),
            "positive in": int(helps[:, i].sum()),
            "negative in": int(harms[:, i].sum()),
        }
        if sure is not None:
            row |= {"sure positive": int(sure[0][:, i].sum()), "sure negative": int(sure[1][:, i].sum())}
        row |= {"lowest": float(values[:, i].min()), "highest": float(values[:, i].max())}
        rows.append(
            row
            | {"positive languages": ", ".join(names[helps[:, i]]), "negative languages": ", ".join(names[harms[:, i]])}
        )
    table = pd.DataFrame(rows)
    order = ["sure positive", "sure negative"] if sure is not None else ["highest"]
    return table.sort_values(order, ascending=False, kind="stable", ignore_index=True) if rows else table


def _heads(scores: Mapping[str, HeadScores]) -> tuple[Head, ...]:
    return next(iter(scores.values())).grid.heads


def shared_top(scores: Mapping[str, HeadScores], k: int) -> pd.DataFrame:
    """Heads among the `k` highest of every language, best worst-rank first.

    Columns: head, worst rank, best rank, mean value (in the unit shown), and where there are
    intervals, in how many languages the head surely helps.
    """
    ranks, values, heads = np.stack([s.ranks for s in scores.values()]), stacked(scores), _heads(scores)
    helps = _signs(scores, True)[0] if has_intervals(scores) else None
    rows = []
    for i in np.flatnonzero((ranks <= k).all(0)):
        row = {"head": head_key(heads[i]), "worst rank": int(ranks[:, i].max()), "best rank": int(ranks[:, i].min())}
        row |= {"mean value": float(values[:, i].mean())}
        rows.append(row if helps is None else row | {"surely helps in": int(helps[:, i].sum())})
    return pd.DataFrame(rows).sort_values("worst rank", ignore_index=True) if rows else pd.DataFrame()


def expected_shared(heads: int, languages: int, k: int) -> float:
    """How many heads would be in every language's top k if the rankings had nothing in common."""
    return float(heads * (k / heads) ** languages)
