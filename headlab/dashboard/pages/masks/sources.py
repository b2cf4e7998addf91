"""Where compared masks come from: suggestions of scores, gates, the Prune page and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import streamlit as st
from streamlit.typing import UploadedFile

from headlab.core import HeadlabError, as_sentence, is_same_model
from headlab.dashboard.frame import Choice, StoredScores
from headlab.dashboard.names import language_title, plain
from headlab.dashboard.pages.masks.pair import choose_uploaded
from headlab.dashboard.panels.masks import (
    MEAN_OF_LANGUAGES,
    SUGGESTION_RULES,
    AccuracyQuestion,
    Suggestion,
    TargetModel,
    histories_by_fingerprint,
    origin_of_mask,
    pooled_scores,
    session_figures,
    suggested_heads,
    usable_rules,
    with_measured_accuracies,
)
from headlab.dashboard.panels.stored import stored_sweeps
from headlab.masks import Mask, mask_from_text

CURRENT_MASK = "Prune page, now"

HEADS_PER_REMOVED = 12
"""A suggestion removes one head in this many, to begin with."""


def gather_masks(
    choice: Choice,
    results: StoredScores,
    uploaded_by_name: Mapping[str, Mask],
    suggestion: Suggestion | None,
    target: TargetModel,
) -> dict[str, Mask]:
    """Every mask that can be compared, by display name; those of the Prune page first."""
    return {
        **_masks_of_prune_page(choice, target.fingerprint),
        **uploaded_by_name,
        **({} if suggestion is None else suggested_masks(results, suggestion)),
        **_masks_of_gates(choice),
    }


def pick_rule(results: StoredScores) -> Suggestion | None:
    """Draw the choice of the rule by which scores suggest a mask.

    None without scores, and for scores by which no rule chooses heads.
    """
    if results.first_scores is None:
        return None
    rules = [rule for rule in usable_rules(results.first_scores) if rule != "threshold"]
    if not rules:
        return None
    rule_place, count_place = st.columns([3, 2])
    label_by_rule = {rule: ": ".join(SUGGESTION_RULES[rule]) for rule in rules}
    # as many heads in each language, so that masks can be compared
    default_index = rules.index("bottom")
    rule = rule_place.selectbox(
        "Suggestions of the scores",
        rules,
        default_index,
        label_by_rule.__getitem__,
        key="masks-rule",
    )
    size = results.first_scores.grid.size
    if rule != "bottom":
        return Suggestion(rule)
    k = count_place.number_input(
        "k, heads to switch off", 0, size, max(1, size // HEADS_PER_REMOVED), key="masks-k"
    )
    return Suggestion(rule, k=int(k))


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


def _masks_of_prune_page(choice: Choice, fingerprint: str | None) -> dict[str, Mask]:
    """The current mask of every model pruned in this session, if any head is off."""
    masks = {}
    for weights, history in histories_by_fingerprint().items():
        if not history.mask.removed:
            continue
        if not is_same_model(weights, fingerprint):
            model = {"name": None, "fingerprint": weights}
            masks[f"{CURRENT_MASK}, another model ({weights[:8]})"] = replace(
                history.mask, model=model
            )
            continue
        mask = replace(history.mask, model={"name": choice.model, "fingerprint": weights})
        question = AccuracyQuestion.unchecked(
            choice.model, weights, choice.task, "dev", mask, label_map=choice.label_map
        )
        masks[CURRENT_MASK] = with_measured_accuracies(
            mask, question, session_figures(), choice.languages
        )
    return masks


def _masks_of_gates(choice: Choice) -> dict[str, Mask]:
    masks = {}
    for language, sweeps in stored_sweeps(choice).by_language.items():
        for run in (run for sweep in sweeps for run in sweep.runs):
            masks[
                f"Gates of {language_title(language)}, λ {run.record.weight:g} ({run.key[:6]})"
            ] = run.record.mask()
    return masks


def uploaded_masks() -> tuple[dict[str, Mask], list[str]]:
    """The masks of uploaded files by file name, and a sentence for each file that is not a mask."""
    files = st.file_uploader(
        "Mask files", type="json", accept_multiple_files=True, key="masks-files"
    )
    masks, problems = read_mask_files(files or [])
    if masks:
        st.caption(plain(f"In the lists of A and B: {', '.join(masks)}."))
    choose_uploaded(list(masks))
    return masks, problems


def read_mask_files(files: Sequence[UploadedFile]) -> tuple[dict[str, Mask], list[str]]:
    """Read mask files.

    Returns:
        The masks by file name, of which equal ones are numbered, and a sentence for each file that
        is not a mask.
    """
    masks: dict[str, Mask] = {}
    problems = []
    for file in files:
        name = file.name
        count = 2
        while name in masks:
            name = f"{file.name} ({count})"
            count += 1
        try:
            masks[name] = mask_from_text(file.getvalue(), file.name)
        except HeadlabError as error:
            problems.append(as_sentence(error))
    return masks, problems
