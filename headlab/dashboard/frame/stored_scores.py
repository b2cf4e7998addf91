"""Which cached result represents a language, and what its scores suggest switching off.

No streamlit here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headlab.core import HeadGrid, ablation_title, content_key, fingerprint_of, part
from headlab.dashboard.names import language_title
from headlab.methods import METHODS, costs
from headlab.methods.costs import PRECISION, settings, spec_of
from headlab.results import HeadScores, Listing, Result
from headlab.tasks import has_classes_of_map, notes_of_record

# Which cached result represents a language, and in words: pure functions of a store listing.


@dataclass(frozen=True)
class StoredScores:
    """The results of one choice, all of one variant, so that languages can be compared.

    Attributes:
        scores: By language, in the order asked for.
        missing: Languages without a result of this variant.
        variant: What they share, in words.
        other_variants: The other variants, in words.
        template: A result of the variant, in another language if need be, for the settings of what
            is computed next.
        notes: What was counted of equal texts beside these results, in sentences without their full
            stop.
    """

    scores: Mapping[str, HeadScores] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    variant: str = ""
    other_variants: tuple[str, ...] = ()
    template: HeadScores | None = None
    notes: tuple[str, ...] = ()

    @property
    def first_scores(self) -> HeadScores | None:
        """One of the scores, for what they all share (grid, unit, estimand)."""
        return next(iter(self.scores.values()), None)

    @property
    def grid(self) -> HeadGrid | None:
        """The head grid of these scores."""
        if self.first_scores:
            return self.first_scores.grid
        return None


def stored_subjects(specs: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """How many stored results there are, by model and task.

    Args:
        specs: Of all stored results.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for spec in specs:
        model = part(spec, "model", "name")
        task = part(spec, "task", "name")
        if isinstance(model, str) and isinstance(task, str):
            counts[model, task] += 1
    return counts


def best_method(results: Iterable[Result[HeadScores]], wanted_method: str) -> str | None:
    """The method to show of these results: the wanted one, else the one of the most results.

    None without any.
    """
    counts = Counter(result.record.method for result in results)
    return max(counts, key=lambda method: (method == wanted_method, counts[method]), default=None)


def languages_with_results(specs: Iterable[Mapping[str, Any]], task: str) -> list[str]:
    """The languages of the stored results of a task, in order of their codes."""
    languages: set[str] = set()
    for spec in specs:
        language_list = part(spec, "task", "language")
        if part(spec, "task", "name") == task and isinstance(language_list, str):
            languages.update(language_list.split(","))
    return sorted(languages - {""})


def of_own_heads(listing: Listing[Any], grids: Mapping[str, HeadGrid]) -> Listing[Any]:
    """A listing without the results that are of other heads than their model's; these are problems.

    Earlier versions of headlab found fewer heads in some architectures, or numbered the layers
    otherwise.

    Args:
        listing: Of results.
        grids: Heads of known models, by fingerprint. Of a model that is not known, the newest
            result has the right ones.
    """
    known_grids = dict(grids)
    problem_by_key: dict[str, str] = {}
    newest_first = sorted(
        listing.results, key=lambda result: str(result.meta.get("created", "")), reverse=True
    )
    for result in newest_first:
        if not isinstance(getattr(result.record, "grid", None), HeadGrid):
            continue
        weights = str(fingerprint_of(result.record.spec))
        if known_grids.setdefault(weights, result.record.grid) != result.record.grid:
            problem_by_key[result.key] = (
                f"the result in {result.folder} is of other heads than its model's: an earlier version of headlab "
                "missed some of them or numbered their layers otherwise; delete that folder and compute it again"
            )
    if not problem_by_key:
        return listing
    right_results = tuple(result for result in listing.results if result.key not in problem_by_key)
    return Listing(right_results, (*listing.problems, *problem_by_key.values()))


def matching_scores(
    results: Iterable[Result[HeadScores]],
    model: str | None = None,
    task: str | None = None,
    method: str | None = None,
    label_map: Mapping[str, str] | None = None,
) -> list[Result[HeadScores]]:
    """The results of a model, task and method, with a label map.

    None matches all but a label map.
    """
    wanted_names = {"model": model, "task": task, "method": method}
    matches = []
    for result in results:
        has_names = all(
            name is None or spec_of(result.record, subject, "name") == name
            for subject, name in wanted_names.items()
        )
        if has_names and has_classes_of_map(result.record.spec.get("task", {}), label_map):
            matches.append(result)
    return matches


def describe_variant(scores: Iterable[HeadScores]) -> str:
    """What results of one variant share, in words."""
    all_scores = list(scores)
    first_scores = all_scores[0]
    options = {name: value for name, value in settings(first_scores).items() if name != "estimand"}
    stored_options = [spec_of(scores, "method", "options") or {} for scores in all_scores]
    first_options = stored_options[0]
    shared_precision = [
        name
        for name in PRECISION
        if all(options.get(name) == first_options.get(name) for options in stored_options)
    ]
    options |= {name: first_options.get(name) for name in shared_precision if name != "round"}
    parts = [
        first_scores.estimand,
        f"{ablation_title(str(spec_of(first_scores, 'ablation')))} ablation",
        f"{spec_of(first_scores, 'task', 'split')} split",
    ]
    dtype = spec_of(first_scores, "model", "dtype")
    if dtype:
        parts.append(str(dtype))
    parts += [f"{key} {value}" for key, value in sorted(options.items()) if value is not None]
    if classes := spec_of(first_scores, "task", "classes"):
        parts.append(", ".join(f"{label} = {class_name}" for label, class_name in classes.items()))
    parts.append(f"seed {spec_of(first_scores, 'seed')}")
    if costs.renewal_of(first_scores.spec):
        parts.append(costs.EARLIER_VERSION)
    text = ", ".join(parts)
    if len(shared_precision) < len(PRECISION):
        text += "; how precise differs by language"
    return text


def variants(results: Iterable[Result[HeadScores]]) -> dict[str, str]:
    """{name: key} of the variants of one model, task and method, the one shown by default first.

    A name says the estimand and what differs from the method's defaults. Of two with one name, as
    of two sets of weights, the better keeps it, so that a link to it stays.
    """
    all_results = list(results)
    languages = sorted({result.record.language for result in all_results})
    selection = costs.select(all_results, languages)
    shown_by_default = list(selection.results.values())[:1]
    key_by_name: dict[str, str] = {}
    for result in (*shown_by_default, *selection.others):
        name = variant_name(result.record)
        key = costs.variant(result.record)
        if name in key_by_name:
            name = f"{name}, {content_key([key])[:8]}"
        key_by_name[name] = key
    return key_by_name


def variant_of(results: Iterable[Result[HeadScores]], keys: Iterable[str]) -> str:
    """The name of the variant that a result with one of these keys is of.

    Empty if there is none.
    """
    all_results = list(results)
    wanted_keys = set(keys)
    variant_keys = {
        costs.variant(result.record) for result in all_results if result.key in wanted_keys
    }
    for name, key in variants(all_results).items():
        if key in variant_keys:
            return name
    return ""


def variant_name(scores: HeadScores) -> str:
    """The estimand, and what differs from the method's defaults."""
    known_method = METHODS.get(scores.method)
    known_options = {} if known_method is None else known_method.options
    parts = [scores.estimand]
    for name, value in sorted(settings(scores).items()):
        is_listed = name != "estimand" and name in known_options
        if is_listed and value != known_options[name].default:
            parts.append(f"{name} {value}")
    ablation = spec_of(scores, "ablation")
    if ablation != "zero":
        parts.append(f"{ablation} ablation")
    split = spec_of(scores, "task", "split")
    if split != "dev":
        parts.append(f"{split} split")
    dtype = spec_of(scores, "model", "dtype")
    if dtype:
        parts.append(str(dtype))
    seed = spec_of(scores, "seed")
    if seed:
        parts.append(f"seed {seed}")
    if costs.renewal_of(scores.spec):
        parts.append(costs.EARLIER_VERSION)
    return ", ".join(parts)


def comparable_scores(
    results: Iterable[Result[HeadScores]], languages: Sequence[str], variant: str = ""
) -> StoredScores:
    """The results that represent these languages; the rule is `headlab.methods.costs.select`.

    Args:
        results: Of one model, task and method.
        languages: Their codes.
        variant: A name of `variants`, in place of the variant that the rule chooses; ignored if
            there is none of it.
    """
    all_results = list(results)
    key = variants(all_results).get(variant) if variant else None
    selection = costs.select(all_results, languages, key)
    other_variants = tuple(describe_variant([result.record]) for result in selection.others)
    if not selection.results:
        of_variant = (r.record for r in all_results if costs.variant(r.record) == key)
        return StoredScores(
            missing=tuple(languages), other_variants=other_variants, template=next(of_variant, None)
        )
    notes = []
    for language, result in selection.results.items():
        split = str(spec_of(result.record, "task", "split"))
        for note in notes_of_record(result.meta, split):
            notes.append(f"{language_title(language)}: {note}")
    return StoredScores(
        scores={language: result.record for language, result in selection.results.items()},
        missing=tuple(language for language in languages if language not in selection.results),
        variant=describe_variant(result.record for result in selection.results.values()),
        other_variants=other_variants,
        template=next(iter(selection.results.values())).record,
        notes=tuple(notes),
    )


def samples_note(scores: Mapping[str, HeadScores]) -> str:
    """How many examples and samples the values are based on, in words."""
    example_counts: set[int] = set()
    sample_counts: set[int] = set()
    for language_scores in scores.values():
        size = spec_of(language_scores, "task", "size")
        if size:
            example_counts.add(int(size))
        if language_scores.samples is not None:
            sample_counts.add(int(np.median(language_scores.samples)))
    parts = []
    if example_counts:
        parts.append(f"{_span(sorted(example_counts))} examples")
    if sample_counts:
        grid = next(iter(scores.values())).grid
        one_words = "a head" if grid.has_only_heads else "each"
        parts.append(f"{_span(sorted(sample_counts))} samples {one_words}")
    if parts:
        return f"From {', '.join(parts)}."
    return ""


def _span(numbers: list[int]) -> str:
    """The first and the last of sorted numbers, or the only one."""
    if len(numbers) == 1:
        return f"{numbers[0]:,}"
    return f"{numbers[0]:,} to {numbers[-1]:,}"
