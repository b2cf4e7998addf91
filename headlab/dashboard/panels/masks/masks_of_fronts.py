"""Masks of stored fronts: of each, the smaller model that answers its question."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from headlab.core import HeadGrid, HeadlabError, Report, is_same_model, part, players_of
from headlab.dashboard.frame import stored_results
from headlab.dashboard.panels.stored import report_label
from headlab.masks import Mask
from headlab.results import Result
from headlab.studies import STUDIES
from headlab.studies.pareto import chosen_mask

KEY_LENGTH = 6
"""Characters of a front's key that tell apart fronts of one label."""


def masks_of_fronts(grid: HeadGrid, fingerprint: str | None) -> dict[str, Mask]:
    """The masks that stored fronts of a model chose, on any task, by name.

    A front that removes nothing gives none, nor does a damaged one: the Prune page names it.

    Args:
        grid: Of the model's heads, or other players.
        fingerprint: Of its weights; None if they are not known.
    """
    masks = {}
    for result in _fronts_of_model(str(players_of(grid)), fingerprint):
        with suppress(HeadlabError):
            mask = chosen_mask(result.record, grid)
            if mask.removed:
                task = part(result.record.spec, "task", "name")
                label = report_label(result, fingerprint)
                masks[f"Front of {task}: {label} ({result.key[:KEY_LENGTH]})"] = mask
    return masks


def _fronts_of_model(players: str, fingerprint: str | None) -> Iterator[Result[Report]]:
    for result in stored_results(Report, players).results:
        report = result.record
        is_front = report.name == STUDIES["front"].key
        if is_front and is_same_model(part(report.spec, "model", "fingerprint"), fingerprint):
            yield result
