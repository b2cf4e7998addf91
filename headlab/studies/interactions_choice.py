"""Whose pairs a study of interactions measures: named heads, a layer, or the largest stored scores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headlab.core import (
    Head,
    HeadGrid,
    HeadlabError,
    Ints,
    OptionValue,
    integer_in,
    options_as_words,
    options_in,
    text_in,
)
from headlab.methods import METHODS
from headlab.methods.costs import options_of, select
from headlab.results import HeadScores, Result
from headlab.studies.interactions import head_in, head_text, heads_of_layer
from headlab.studies.run import Pieces
from headlab.studies.table import (
    HEADS,
    LAYER,
    METHOD,
    METHOD_OPTIONS,
    MOST_HEADS,
    OF,
    TOP,
    listed_heads,
    method_with_options,
)


def chosen_heads(pieces: Pieces, language: str, options: Mapping[str, OptionValue]) -> Ints:
    """Flat indices of the heads whose pairs are asked for, ascending.

    Raises:
        HeadlabError: They are not the model's, they are too few, or the scores that they are chosen
            by are not stored.
    """
    grid = pieces.model.grid
    if options.get(HEADS) is not None:
        heads = _named_heads(grid, text_in(options, HEADS))
        return np.array(sorted(grid.index(head) for head in heads))
    if options.get(LAYER) is not None:
        heads = list(heads_of_layer(grid, text_in(options, LAYER)))
        _require_fitting(len(heads), f"layer {options[LAYER]}")
        return np.array([grid.index(head) for head in heads])
    scores = pieces.available_study_scores(options)[language]
    if scores is None:
        raise HeadlabError(
            f"there are no stored {options[METHOD]} scores of {language} on {pieces.task.name} to "
            f"choose the {options[TOP]} heads by{_stored_otherwise(pieces, language, options)}; run "
            "headlab score on it first, or name heads with --heads",
            code="interactions.scores_missing",
        )
    largest = np.argsort(-np.abs(scores.values), kind="stable")[: integer_in(options, TOP)]
    _require_fitting(len(largest), "the model")
    return np.sort(largest)


def _named_heads(grid: HeadGrid, text: str) -> list[Head]:
    """The heads that a text names, each once, however it is spelled."""
    return list(dict.fromkeys(head_in(grid, name) for name in listed_heads(text)))


def _require_fitting(heads: int, subject: str) -> None:
    """Raise HeadlabError for fewer heads than two, or more than a study takes."""
    if heads < 2:
        raise HeadlabError(
            f"{subject} has one head, and interactions are of two", code="interactions.one_head"
        )
    if heads > MOST_HEADS:
        raise HeadlabError(
            f"{subject} has {heads} heads, and interactions are of {MOST_HEADS} at most; name some "
            "of them with --heads",
            code="interactions.heads_too_many",
        )


def settled_options(
    pieces: Pieces, given: Mapping[str, object], options: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """The options with those of the method as the stored scores have them, where none was given.

    Heads get the names that tables give them, so that every spelling of one choice has one report.
    Scores with the method's defaults come first. Without them, the largest heads are chosen by the
    scores that pages would show, `headlab.methods.costs.select`, of those with the seed, the
    examples and the ablation of the study. The options, and with them the report, then name these.

    Args:
        pieces: Of the study.
        given: Options as they were given.
        options: The same, resolved.

    Raises:
        HeadlabError: Heads are not the model's, or have no pairs.
    """
    options = _with_usual_names(pieces.model.grid, options)
    if TOP not in options or all(pieces.available_study_scores(options).values()):
        return dict(options)
    given_options = given.get(METHOD_OPTIONS)
    fixed = set(given_options) if isinstance(given_options, Mapping) else set()
    wanted = options_in(options, METHOD_OPTIONS)
    fitting: list[Result[HeadScores]] = []
    for result in _results_of(pieces, pieces.languages[0], text_in(options, METHOD)):
        stored_options = options_of(result.record)
        if any(stored_options.get(name) != wanted.get(name) for name in fixed):
            continue
        settled = _with_method_options(options, stored_options)
        if all(pieces.available_study_scores(settled).values()):
            fitting.append(result)
    chosen = select(fitting, pieces.languages[:1]).results
    if not chosen:
        return dict(options)
    (result,) = chosen.values()
    return _with_method_options(options, options_of(result.record))


def _with_usual_names(grid: HeadGrid, options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """The options with each named head as tables name it.

    Raises:
        HeadlabError: Heads are not the model's, or have no pairs.
    """
    named = dict(options)
    one_head = None
    if OF in options:
        one_head = head_in(grid, text_in(options, OF))
        named[OF] = head_text(one_head, grid)
    heads = None
    if HEADS in options:
        heads = _named_heads(grid, text_in(options, HEADS))
        names = ",".join(head_text(head, grid) for head in heads)
        named[HEADS] = ",".join(listed_heads(names))
    elif LAYER in options:
        heads = list(heads_of_layer(grid, text_in(options, LAYER)))
    if heads is not None and len({*heads} | ({one_head} - {None})) < 2:
        raise HeadlabError(
            f"interactions are of two heads or more, and these are one, {head_text(heads[0], grid)}; "
            "name more, as in 9.3,9.4",
            code="interactions.one_head",
        )
    return named


def _with_method_options(
    options: Mapping[str, OptionValue], method_options: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """The study's options with these of the method, as reports record them."""
    method = METHODS[text_in(options, METHOD)]
    known = {name: value for name, value in method_options.items() if name in method.options}
    return {**options, METHOD_OPTIONS: method.recorded(method.resolve(known))}


def _results_of(pieces: Pieces, language: str, method: str) -> list[Result[HeadScores]]:
    """Stored scores of a language by a method, of models and tasks with the names of these."""
    if pieces.store is None:
        return []
    subject = (pieces.model.identity()["name"], pieces.task.name, language, method)
    results = []
    for result in pieces.store.scan().results:
        spec = result.record.spec
        if (
            spec.model.name,
            spec.task.name,
            result.record.language,
            result.record.method,
        ) == subject:
            results.append(result)
    return results


def _stored_otherwise(pieces: Pieces, language: str, options: Mapping[str, OptionValue]) -> str:
    """With which settings there are scores instead, in a clause; empty if there are none."""
    method, _ = method_with_options(options)
    option_by_name = METHODS[method].for_task(pieces.task.likelihood).options
    stored = []
    for result in _results_of(pieces, language, method):
        spec = result.record.spec
        words = list(options_as_words("-o", options_of(result.record), option_by_name))
        words += ["--size", str(spec["task"]["size"]), "--seed", str(spec["seed"])]
        words += ["--ablation", str(spec["ablation"])]
        if spec["model"].get("dtype"):
            words += ["--dtype", str(spec["model"]["dtype"])]
        stored.append(" ".join(words))
    listed = sorted(set(stored))
    if not listed:
        return ""
    return f" with these settings (stored: {'; or '.join(listed)})"
