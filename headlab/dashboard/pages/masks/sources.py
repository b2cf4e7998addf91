"""Where compared masks come from: suggestions of scores, gates, the Prune page and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st
from streamlit.typing import UploadedFile

from headlab.core import HeadlabError, as_sentence
from headlab.dashboard.frame import Choice, StoredScores
from headlab.dashboard.names import plain
from headlab.dashboard.pages.masks.pair import choose_uploaded
from headlab.dashboard.panels.masks import (
    SUGGESTION_RULES,
    Suggestion,
    TargetModel,
    masks_of_fronts,
    masks_of_gates,
    masks_of_prune_page,
    rule_meaning,
    suggested_masks,
    usable_rules,
    usual_removed_count,
)
from headlab.masks import Mask, mask_from_text


def gather_masks(
    choice: Choice,
    results: StoredScores,
    uploaded_by_name: Mapping[str, Mask],
    suggestion: Suggestion | None,
    target: TargetModel,
) -> dict[str, Mask]:
    """Every mask that can be compared, by display name; those of the Prune page first."""
    return {
        **masks_of_prune_page(choice, target.fingerprint),
        **uploaded_by_name,
        **({} if suggestion is None else suggested_masks(results, suggestion)),
        **({} if target.grid is None else masks_of_fronts(target.grid, target.fingerprint)),
        **masks_of_gates(choice),
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
    grid = results.first_scores.grid
    label_by_rule = {
        rule: f"{SUGGESTION_RULES[rule].title}: {rule_meaning(rule, grid)}" for rule in rules
    }
    # as many heads in each language, so that masks can be compared
    default_index = rules.index("bottom")
    rule = rule_place.selectbox(
        "Suggestions of the scores",
        rules,
        default_index,
        label_by_rule.__getitem__,
        key="masks-rule",
    )
    size = grid.size
    if rule != "bottom":
        return Suggestion(rule)
    k = count_place.number_input(
        f"k, {grid.noun} to switch off", 0, size, usual_removed_count(size), key="masks-k"
    )
    return Suggestion(rule, k=int(k))


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
