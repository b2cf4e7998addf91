"""Masks that pages know: those that scores suggest, of learned gates, and of the Prune page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headlab.core import is_same_model, players_of, players_phrase
from headlab.dashboard.frame import Choice, StoredScores
from headlab.dashboard.names import language_title
from headlab.dashboard.panels.masks.accuracy import session_figures
from headlab.dashboard.panels.masks.history import histories_of_models
from headlab.dashboard.panels.masks.mask_figures import (
    NOTHING,
    AccuracyQuestion,
    ablation_to_measure,
)
from headlab.dashboard.panels.masks.mask_files import with_measured_accuracies
from headlab.dashboard.panels.masks.suggestion import (
    MEAN_OF_LANGUAGES,
    Suggestion,
    origin_of_mask,
    pooled_scores,
    suggested_heads,
    usable_rules,
)
from headlab.dashboard.panels.stored import stored_sweeps
from headlab.masks import Mask

CURRENT_MASK = "Prune page, now"
"""Name of the mask that the Prune page shows."""
HEADS_PER_REMOVED = 12
"""A suggestion of the lowest heads removes one head in this many, to begin with."""


def usual_removed_count(head_count: int) -> int:
    """How many heads a suggestion of the lowest ones removes, to begin with.

    Args:
        head_count: Of the model.
    """
    return max(1, head_count // HEADS_PER_REMOVED)


def suggested_masks(results: StoredScores, suggestion: Suggestion) -> dict[str, Mask]:
    """The masks suggested by each language's scores and by their mean."""
    scores_by_name = dict(results.scores)
    if len(scores_by_name) > 1:
        mean = pooled_scores(scores_by_name, MEAN_OF_LANGUAGES)
        if mean is not None:
            scores_by_name[MEAN_OF_LANGUAGES] = mean
    masks = {}
    for name, scores in scores_by_name.items():
        if suggestion.rule not in usable_rules(scores):
            continue
        subject = language_title(name)
        if name == MEAN_OF_LANGUAGES:
            subject = f"Mean of {len(results.scores)} languages"
        model = scores.spec.get("model")
        masks[f"{subject}: {scores.method}, {suggestion.rule}"] = Mask(
            scores.grid,
            suggested_heads(scores, suggestion),
            {**model} if isinstance(model, Mapping) else {},
            origin_of_mask(scores, suggestion, list(results.scores)),
        )
    return masks


def masks_of_prune_page(choice: Choice, fingerprint: str | None) -> dict[str, Mask]:
    """The current mask of every model pruned in this session, if any head is off, by name.

    Args:
        choice: The sidebar's.
        fingerprint: Of the weights of its model; None if they are not known.
    """
    masks = {}
    for weights, history in histories_of_models():
        if not history.mask.removed:
            continue
        players = ""
        if not history.grid.has_only_heads:
            players = f", {players_phrase(str(players_of(history.grid)))}"
        if not is_same_model(weights, fingerprint):
            model = {"name": None, "fingerprint": weights}
            masks[f"{CURRENT_MASK}{players}, another model ({weights[:8]})"] = replace(
                history.mask, model=model
            )
            continue
        mask = replace(history.mask, model={"name": choice.model, "fingerprint": weights})
        masks[f"{CURRENT_MASK}{players}"] = _with_figures_of_session(mask, choice, weights)
    return masks


def _with_figures_of_session(mask: Mask, choice: Choice, fingerprint: str) -> Mask:
    """A mask with its accuracies under its own ablation, or if there are none under zero.

    Args:
        mask: Of the Prune page.
        choice: The sidebar's.
        fingerprint: Of the weights of its model.
    """
    for ablation in dict.fromkeys((ablation_to_measure(mask), NOTHING)):
        question = AccuracyQuestion.unchecked(
            choice.model,
            fingerprint,
            choice.task,
            "dev",
            mask,
            label_map=choice.label_map,
            ablation=ablation,
        )
        measured_mask = with_measured_accuracies(
            mask, question, session_figures(), choice.languages
        )
        if measured_mask.evaluated:
            return measured_mask
    return mask


def masks_of_gates(choice: Choice) -> dict[str, Mask]:
    """The masks of the stored runs of learned gates, by language and weight of the penalty."""
    masks = {}
    for language, sweeps in stored_sweeps(choice).by_language.items():
        for run in (run for sweep in sweeps for run in sweep.runs):
            masks[
                f"Gates of {language_title(language)}, λ {run.record.weight:g} ({run.key[:6]})"
            ] = run.record.mask()
    return masks
