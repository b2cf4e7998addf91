"""The masks that the Masks page can compare: the Prune page's, files, suggestions of stored scores, learned gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from headlab.errors import HeadlabError
from headlab.masks import Mask, mask_from_text
from headlab.records import HeadGrid
from headlab.scores import HeadScores
from headlab.ui import gates_store
from headlab.ui.experiments_store import weights_of
from headlab.ui.history import History
from headlab.ui.names import language_title
from headlab.ui.prune_suggest import MEAN, RULES, Suggestion, how_chosen, pooled, rules_for, suggest
from headlab.ui.results import Found, spec_of
from headlab.ui.shell import Choice

NOW = "Prune page, now"
HISTORY = "_history:"
SHARE = 12  # a suggestion's first k is one head in so many


class Target(NamedTuple):
    """The chosen model as far as it is known here: fingerprint of its weights, and its heads."""

    fingerprint: str | None
    grid: HeadGrid | None


def target_of(choice: Choice, results: Found) -> Target:
    """What is known of the chosen model: by the worker's word or its results, and by what this session pruned."""
    known = None if results.first is None else spec_of(results.first, "model", "fingerprint")
    fingerprint = weights_of(choice.model) or (known if isinstance(known, str) else None)
    now = st.session_state.get(f"{HISTORY}{fingerprint}")
    grid = now.grid if isinstance(now, History) else results.grid if known == fingerprint else None
    return Target(fingerprint, grid)


def gather(
    choice: Choice, results: Found, uploaded: Mapping[str, Mask], wanted: Suggestion | None, target: Target
) -> dict[str, Mask]:
    """Every mask there is to compare, by the name to show; those made by hand first."""
    return {
        **_of_the_prune_page(choice, target.fingerprint),
        **uploaded,
        **({} if wanted is None else suggestions(results, wanted)),
        **_of_gates(choice),
    }


def pick_rule(results: Found) -> Suggestion | None:
    """The widgets that say by which rule the stored scores suggest a mask; None where there are no scores."""
    if results.first is None:
        return None
    left, right = st.columns([3, 2])
    rules = [rule for rule in rules_for(results.first) if rule != "threshold"]
    words = {rule: f"{rule}: {RULES[rule]}" for rule in rules}
    usual = rules.index("bottom")  # as many heads of each language, so that they can be compared
    rule = left.selectbox("Suggestions of the scores", rules, usual, words.__getitem__, key="masks-rule")
    size = results.first.grid.size
    if rule != "bottom":
        return Suggestion(rule)
    k = right.number_input("k, heads to switch off", 0, size, max(1, size // SHARE), key="masks-k")
    return Suggestion(rule, k=int(k))


def suggestions(results: Found, wanted: Suggestion) -> dict[str, Mask]:
    """The mask that each language's scores suggest, and that of their mean."""
    made = {}
    mean: list[HeadScores | None] = [pooled(results.scores, MEAN)] if len(results.scores) > 1 else []
    for scores in (*results.scores.values(), *mean):
        if scores is None or (wanted.rule == "harmful" and scores.high is None):
            continue
        whose = (
            f"Mean of {len(results.scores)} languages" if scores.language == MEAN else language_title(scores.language)
        )
        chosen = how_chosen(scores, wanted, list(results.scores))
        made[f"{whose}: {scores.method}, {wanted.rule}"] = Mask(
            scores.grid, suggest(scores, wanted), _identity(scores), chosen
        )
    return made


def _identity(scores: HeadScores) -> dict[str, Any]:
    found = spec_of(scores, "model")
    return dict(found) if isinstance(found, Mapping) else {}


def _of_the_prune_page(choice: Choice, fingerprint: str | None) -> dict[str, Mask]:
    """The present mask of every model that was pruned in this session, where any head is off."""
    made = {}
    for key, now in st.session_state.items():
        if not (isinstance(key, str) and key.startswith(HISTORY) and isinstance(now, History)) or now.kept.all():
            continue
        whose = key.removeprefix(HISTORY)
        name = NOW if whose == fingerprint else f"{NOW}, another model ({whose[:8]})"
        model = {"name": choice.model if whose == fingerprint else None, "fingerprint": whose}
        made[name] = Mask(now.grid, now.kept, model, now.chosen)
    return made


def _of_gates(choice: Choice) -> dict[str, Mask]:
    made = {}
    for language, sweeps in gates_store.shelf(choice).by_language.items():
        for run in (run for sweep in sweeps for run in sweep.runs):
            made[f"Gates of {language_title(language)}, λ {run.gates.weight:g} ({run.key[:6]})"] = run.gates.mask()
    return made


def uploads() -> tuple[dict[str, Mask], list[str]]:
    """The masks of uploaded files by file name, and a sentence for each that is none."""
    files = st.file_uploader("Mask files", type="json", accept_multiple_files=True, key="masks-files")
    return read_files(files or [])


def read_files(files: Sequence[UploadedFile]) -> tuple[dict[str, Mask], list[str]]:
    """Masks of files by name; equal names are told apart. And a sentence for each file that is not a mask."""
    made: dict[str, Mask] = {}
    problems = []
    for file in files:
        name, count = file.name, 2
        while name in made:
            name, count = f"{file.name} ({count})", count + 1
        try:
            made[name] = mask_from_text(file.getvalue(), file.name)
        except HeadlabError as error:
            problems.append(f"{str(error).rstrip('.')}.")
    return made, problems
