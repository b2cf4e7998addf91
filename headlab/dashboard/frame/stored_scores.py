"""Which cached result represents a language, and what its scores suggest switching off. No streamlit here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headlab.core import HeadGrid, content_key, fingerprint_of, part
from headlab.dashboard.names import language_title
from headlab.methods import METHODS, costs
from headlab.methods.costs import PRECISION, settings, spec_of
from headlab.results import HeadScores, Listing, Result
from headlab.tasks import notes_of_record, same_classes

# Which cached result represents a language, and in words: pure functions of a store listing.


@dataclass(frozen=True)
class StoredScores:
    """The results of one choice, all of one variant, so that languages can be compared.

    scores: by language, in the order asked for.  missing: languages without a result of this
    variant.  variant: what they share, in words.  others: the other variants, in words.  like: a result of the variant,
    in another language if need be, for the settings of what is computed next.  notes: what was counted of equal texts
    beside these results, in sentences without their full stop.
    """

    scores: Mapping[str, HeadScores] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    variant: str = ""
    others: tuple[str, ...] = ()
    like: HeadScores | None = None
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> HeadScores | None:
        """One of the scores, for what they all share (grid, unit, estimand)."""
        return next(iter(self.scores.values()), None)

    @property
    def grid(self) -> HeadGrid | None:
        """The head grid of these scores."""
        return self.first.grid if self.first else None


def stored_subjects(specs: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """How many stored results there are, by model and task. specs: of all of them."""
    pairs = ((part(spec, "model", "name"), part(spec, "task", "name")) for spec in specs)
    return Counter(
        (model, name) for model, name in pairs if isinstance(model, str) and isinstance(name, str)
    )


def best_method(results: Iterable[Result[HeadScores]], wanted_method: str) -> str | None:
    """The method to show of these results: the wanted one, else the one of the most results; None without any."""
    counts = Counter(result.record.method for result in results)
    return max(counts, key=lambda method: (method == wanted_method, counts[method]), default=None)


def languages_with_results(specs: Iterable[Mapping[str, Any]], task: str) -> list[str]:
    """The languages of the stored results of a task, in order of their codes."""
    language_lists = (
        part(spec, "task", "language") for spec in specs if part(spec, "task", "name") == task
    )
    return sorted(
        {
            code
            for language_list in language_lists
            if isinstance(language_list, str)
            for code in language_list.split(",")
            if code
        }
    )


def of_own_heads(listing: Listing[Any], grids: Mapping[str, HeadGrid]) -> Listing[Any]:
    """A listing without the results that are of other heads than their model's; these are problems.

    Earlier versions of headlab found fewer heads in some architectures, or numbered the layers otherwise.

    grids: heads of known models, by fingerprint.  Of a model that is not known, the newest result has the right ones.
    """
    known_grids, problem_by_key = dict[str, HeadGrid](grids), dict[str, str]()
    results_with_grid = (
        r for r in listing.results if isinstance(getattr(r.record, "grid", None), HeadGrid)
    )
    for result in sorted(
        results_with_grid, key=lambda result: str(result.meta.get("created", "")), reverse=True
    ):
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
    """The results of a model, task, method and label map; None matches all."""
    wanted_values = (
        (model, ("model", "name")),
        (task, ("task", "name")),
        (method, ("method", "name")),
    )
    return [
        result for result in results
        if all(value is None or spec_of(result.record, *path) == value for value, path in wanted_values)
        and same_classes(result.record.spec.get("task", {}), label_map)
    ]  # fmt: skip


def describe_variant(scores: Iterable[HeadScores]) -> str:
    """What results of one variant share, in words."""
    all_scores = list(scores)
    first_scores = all_scores[0]
    options = {name: value for name, value in settings(first_scores).items() if name != "estimand"}
    options_of_each = [spec_of(s, "method", "options") or {} for s in all_scores]
    shared_precision = [
        name
        for name in PRECISION
        if all(g.get(name) == options_of_each[0].get(name) for g in options_of_each)
    ]
    options |= {name: options_of_each[0].get(name) for name in shared_precision if name != "round"}
    parts = [
        first_scores.estimand,
        f"{spec_of(first_scores, 'ablation')} ablation",
        f"{spec_of(first_scores, 'task', 'split')} split",
    ]
    parts += [str(dtype)] if (dtype := spec_of(first_scores, "model", "dtype")) else []
    parts += [f"{key} {value}" for key, value in sorted(options.items()) if value is not None]
    if classes := spec_of(first_scores, "task", "classes"):
        parts.append(", ".join(f"{label} = {class_name}" for label, class_name in classes.items()))
    parts.append(f"seed {spec_of(first_scores, 'seed')}")
    parts += [costs.EARLIER] if costs.superseded(first_scores.spec) else []
    return ", ".join(parts) + (
        "" if len(shared_precision) == len(PRECISION) else "; how precise differs by language"
    )


def variants(results: Iterable[Result[HeadScores]]) -> dict[str, str]:
    """{name: key} of the variants of one model, task and method, the one shown by default first.

    A name says the estimand and what differs from the method's defaults. Of two with one name, as of two sets of
    weights, the better keeps it, so that a link to it stays.
    """
    all_results = list(results)
    selection = costs.select(
        all_results, sorted({result.record.language for result in all_results})
    )
    key_by_name: dict[str, str] = {}
    for scores in (
        result.record for result in (*list(selection.results.values())[:1], *selection.others)
    ):
        name, key = variant_name(scores), costs.variant(scores)
        key_by_name[f"{name}, {content_key([key])[:8]}" if name in key_by_name else name] = key
    return key_by_name


def variant_of(results: Iterable[Result[HeadScores]], keys: Iterable[str]) -> str:
    """The name of the variant that a result with one of these keys is of; empty if there is none."""
    all_results, wanted_keys = list(results), set(keys)
    variant_keys = {
        costs.variant(result.record) for result in all_results if result.key in wanted_keys
    }
    return next((name for name, key in variants(all_results).items() if key in variant_keys), "")


def variant_name(scores: HeadScores) -> str:
    """The estimand, and what differs from the method's defaults."""
    known_method = METHODS.get(scores.method)
    defaults = (
        {}
        if known_method is None
        else {name: option.default for name, option in known_method.options.items()}
    )
    options = {
        name: value
        for name, value in settings(scores).items()
        if name != "estimand" and name in defaults
    }
    parts = [
        f"{name} {value}" for name, value in sorted(options.items()) if value != defaults[name]
    ]
    parts += (
        [f"{spec_of(scores, 'ablation')} ablation"] if spec_of(scores, "ablation") != "zero" else []
    )
    parts += [f"{split} split"] if (split := spec_of(scores, "task", "split")) != "dev" else []
    parts += [str(dtype)] if (dtype := spec_of(scores, "model", "dtype")) else []
    parts += [f"seed {seed}"] if (seed := spec_of(scores, "seed")) else []
    parts += [costs.EARLIER] if costs.superseded(scores.spec) else []
    return ", ".join([scores.estimand, *parts])


def comparable_scores(
    results: Iterable[Result[HeadScores]], languages: Sequence[str], variant: str = ""
) -> StoredScores:
    """The results that represent these languages; the rule is `headlab.methods.costs.select`.

    variant: a name of `variants`, in place of the variant that the rule chooses; ignored if there is none of it.
    """
    all_results = list(results)
    key = variants(all_results).get(variant) if variant else None
    selection = costs.select(all_results, languages, key)
    variant_scores = (
        result.record for result in all_results if costs.variant(result.record) == key
    )
    other_variants = tuple(describe_variant([result.record]) for result in selection.others)
    if not selection.results:
        return StoredScores(
            missing=tuple(languages), others=other_variants, like=next(variant_scores, None)
        )
    return StoredScores(
        scores={name: result.record for name, result in selection.results.items()},
        missing=tuple(name for name in languages if name not in selection.results),
        variant=describe_variant(result.record for result in selection.results.values()),
        others=other_variants,
        like=next(iter(selection.results.values())).record,
        notes=tuple(
            f"{language_title(name)}: {note}"
            for name, result in selection.results.items()
            for note in notes_of_record(result.meta, str(spec_of(result.record, "task", "split")))
        ),
    )


def samples_note(scores: Mapping[str, HeadScores]) -> str:
    """How many examples and samples the values are based on, in words."""
    examples = sorted({int(n) for s in scores.values() if (n := spec_of(s, "task", "size"))})
    samples = sorted({int(np.median(s.samples)) for s in scores.values() if s.samples is not None})
    words = [f"{_span(examples)} examples"] if examples else []
    words += [f"{_span(samples)} samples a head"] if samples else []
    return f"From {', '.join(words)}." if words else ""


def _span(numbers: list[int]) -> str:
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"
