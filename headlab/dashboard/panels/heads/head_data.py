"""All that stored results say of a model's heads: values by every method, roles, attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from headlab.charts.head_measures import (
    LAYER,
    HeadMeasure,
    KnownMeasure,
    layer_measure,
    measures_of_roles,
    rank_measure,
    value_measure,
)
from headlab.core import HeadGrid, Json, fingerprint_of, is_same_model
from headlab.dashboard.frame import (
    Choice,
    StoredScores,
    comparable_scores,
    describe_variant,
    known_grid,
    matching_scores,
    results_of,
    scores_of,
    stored_results,
    task_languages,
    variant_of,
    variants,
)
from headlab.dashboard.panels.stored import StoredRoles, current_weights, stored_roles_reports
from headlab.methods import remarks, spec_of
from headlab.results import HeadScores, Result


class ScoresSubject(NamedTuple):
    """What some scores are of, and by which method they are."""

    model: str
    task: str
    method: str


@dataclass(frozen=True)
class HeadData:
    """All that is stored of the heads of a choice.

    Attributes:
        grid: The heads.
        spec: Of a result that names their model.
        scores: The choice's own scores of all languages of its task, which say the heads' signs.
        roles: The best report on roles of each language.
        measures: By name, in the order in which they are offered.
    """

    grid: HeadGrid
    spec: Mapping[str, Json]
    scores: StoredScores
    roles: Mapping[str, StoredRoles]
    measures: Mapping[str, KnownMeasure]

    @property
    def fingerprint(self) -> str:
        """Of the model's weights."""
        return str(fingerprint_of(self.spec))


def head_data_of(choice: Choice) -> HeadData | None:
    """All that is stored of the heads of a choice's model; None if nothing is.

    Results of the model with other weights than the shown ones are left out.

    Args:
        choice: The sidebar's.
    """
    choice = _with_shown_variant(choice)
    all_languages = replace(choice, languages=tuple(task_languages(choice.task)))
    scores = scores_of(all_languages)
    reports = stored_roles_reports(all_languages).by_language
    subject = _subject_of(choice, scores, reports)
    if subject is None:
        return None
    grid, spec = subject
    fingerprint = fingerprint_of(spec)
    roles: dict[str, StoredRoles] = {}
    for language, reports_of_language in reports.items():
        for report in reports_of_language:
            if fingerprint_of(report.result.record.spec) == fingerprint:
                roles.setdefault(language, report)
    measures = {
        measure.name: measure
        for measure in (
            *_measures_of_scores(choice, grid, str(fingerprint)),
            *_measures_of_reports(roles, grid),
            KnownMeasure(LAYER, {"": partial(layer_measure, grid)}),
        )
    }
    return HeadData(grid, spec, scores, roles, measures)


def _with_shown_variant(choice: Choice) -> Choice:
    """The choice with the name of the results that pages show of its own languages.

    Of all languages another variant, or other weights, might be the better choice.

    Args:
        choice: The sidebar's.
    """
    shown_scores = scores_of(choice).first_scores
    if shown_scores is None:
        return choice
    results = results_of(choice)
    shown_keys = [result.key for result in results if result.record is shown_scores]
    return replace(choice, variant=variant_of(results, shown_keys))


def _subject_of(
    choice: Choice, scores: StoredScores, reports: Mapping[str, Sequence[StoredRoles]]
) -> tuple[HeadGrid, Mapping[str, Json]] | None:
    """The heads that are shown, and the spec of a result of them; None if nothing is stored.

    They are those of the choice's own scores, else of other scores of the model, those of its
    current weights first, else of a report on roles, which may lack some heads.
    """
    if scores.first_scores is not None:
        return scores.first_scores.grid, scores.first_scores.spec
    weights = current_weights(choice.model)
    of_model = matching_scores(stored_results(HeadScores).results, choice.model)
    of_model.sort(key=lambda result: not is_same_model(fingerprint_of(result.record.spec), weights))
    for result in of_model:
        return result.record.grid, result.record.spec
    for reports_of_language in reports.values():
        for report in reports_of_language:
            spec = report.result.record.spec
            return known_grid(str(fingerprint_of(spec))) or report.roles.grid, spec
    return None


# Measures of scores: of the choice's method first, then of other methods, tasks and models.


def _measures_of_scores(choice: Choice, grid: HeadGrid, fingerprint: str) -> list[KnownMeasure]:
    """Values by every stored result on the same heads, then the ranks by them.

    Args:
        choice: The sidebar's.
        grid: The heads.
        fingerprint: Of the choice's model; results of other weights of it are left out.
    """
    results_by_subject: dict[ScoresSubject, list[Result[HeadScores]]] = {}
    for result in stored_results(HeadScores).results:
        scores = result.record
        subject = ScoresSubject(
            str(spec_of(scores, "model", "name")),
            str(spec_of(scores, "task", "name")),
            scores.method,
        )
        has_weights = subject.model != choice.model or fingerprint_of(scores.spec) == fingerprint
        if scores.grid == grid and has_weights:
            results_by_subject.setdefault(subject, []).append(result)

    def distance(subject: ScoresSubject) -> tuple[bool, bool, bool, ScoresSubject]:
        return (
            subject.model != choice.model,
            subject.task != choice.task,
            subject.method != choice.method,
            subject,
        )

    values: list[KnownMeasure] = []
    ranks: list[KnownMeasure] = []
    for subject in sorted(results_by_subject, key=distance):
        scores_by_name = _scores_by_name(choice, subject, results_by_subject[subject])
        for name, scores_by_language in scores_by_name.items():
            makers_of_values = {}
            makers_of_ranks = {}
            for language, scores in scores_by_language.items():
                makers_of_values[language] = partial(
                    _with_basis, value_measure, scores, f"value by {name}"
                )
                makers_of_ranks[language] = partial(
                    _with_basis, rank_measure, scores, rank_name(name)
                )
            is_of_other_model = subject.model != choice.model
            values.append(
                KnownMeasure(f"value by {name}", makers_of_values, name, is_of_other_model)
            )
            ranks.append(
                KnownMeasure(rank_name(name), makers_of_ranks, is_of_other_model=is_of_other_model)
            )
    return [*values, *ranks]


def rank_name(method: str) -> str:
    """The name of the measure of ranks by the values of a method.

    Args:
        method: As of `KnownMeasure`.
    """
    return f"rank by {method}"


def _with_basis(
    measure_of: Callable[[HeadScores, str], HeadMeasure], scores: HeadScores, name: str
) -> HeadMeasure:
    """A measure of scores that says what it rests on: settings, examples and cautions."""
    size = spec_of(scores, "task", "size")
    sentences = [f"{describe_variant([scores])}, {size} examples"]
    sentences += [f"caution: {remark}" for remark in remarks([scores])]
    return replace(measure_of(scores, name), basis="; ".join(sentences))


def _scores_by_name(
    choice: Choice, subject: ScoresSubject, results: Sequence[Result[HeadScores]]
) -> dict[str, Mapping[str, HeadScores]]:
    """{name: scores by language} of every variant of one method's results.

    A name says what differs from the choice.

    Args:
        choice: The sidebar's.
        subject: What the results are of.
        results: All of them.
    """
    is_own_task = (subject.model, subject.task) == (choice.model, choice.task)
    label_map = choice.label_map if is_own_task else None
    results = matching_scores(results, label_map=label_map)
    languages = list(dict.fromkeys([*choice.languages, *task_languages(subject.task)]))
    variant_names = list(variants(results))
    if is_own_task and subject.method == choice.method and choice.variant in variant_names:
        variant_names.remove(choice.variant)
        variant_names.insert(0, choice.variant)
    scores_by_name = {}
    for number, variant_name in enumerate(variant_names):
        name = subject.method
        if number:
            name += f" ({variant_name})"
        if subject.task != choice.task:
            name += f" on {subject.task}"
        if subject.model != choice.model:
            name += f" of {subject.model}"
        scores = comparable_scores(results, languages, variant_name).scores
        if scores:
            scores_by_name[name] = scores
    return scores_by_name


# Measures of reports on roles.


def _measures_of_reports(roles: Mapping[str, StoredRoles], grid: HeadGrid) -> list[KnownMeasure]:
    """What reports on roles say of every head, by the name of the measure."""
    makers_by_name: dict[str, dict[str, Callable[[], HeadMeasure]]] = {}
    for language, report in roles.items():
        for name, maker in measures_of_roles(report.roles, grid, language).items():
            makers_by_name.setdefault(name, {})[language] = maker
    return [KnownMeasure(name, makers) for name, makers in makers_by_name.items()]
