"""What the stored results say, in a few sentences made by rule, each with the page that shows it. No streamlit here.

Every sentence names the languages, the method and the examples that it is of, as the result itself records them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headlab.core import Report, is_number, p_is, part
from headlab.dashboard.names import (
    counted,
    front_params,
    language_title,
    languages_words,
    report_params,
)
from headlab.methods import cautions, spec_of
from headlab.pictures import MINUS, adjusted
from headlab.results import HeadScores, Result, coarse
from headlab.studies import BOUND, METHOD, readable_rows
from headlab.studies.agreement import CLEAR, PairAgreement, RhoInterval
from headlab.studies.differences import ALPHA, PointInterval
from headlab.studies.pareto import CHOICE, CONFIRMED, FrontAnswer, TestedLanguage
from headlab.studies.targeted import HARMFUL, MEAN, ChoiceEffect

LANGUAGE_PAGE = 2  # languages that the page Languages needs, to compare them


@dataclass(frozen=True)
class Finding:
    """A sentence, and the view that it is of.

    Attributes:
        sentence: In plain text.
        page: Key of the page that shows it, as `headlab.dashboard.names.page_link` takes it.
        label: Text of the link to that page.
        more: Parameters of the link, so that it opens what the sentence speaks of.
    """

    sentence: str
    page: str
    label: str
    more: Mapping[str, str] = field(default_factory=dict)


def findings(
    scores: Mapping[str, HeadScores],
    reports: Mapping[str, Sequence[Result[Report]]],
    chosen: Sequence[str] = (),
) -> list[Finding]:
    """What is found, most telling first; none without results.

    Args:
        scores: By language, as the page shows them.
        reports: Those of each study, the preferred one first (see `preferred`). The first
            that has something to say is the one that is told.
        chosen: Codes of the languages chosen in the sidebar.
    """
    sentences = [*_of_scores(scores, chosen)]
    for key, sentences_of in (
        ("targeted", _targeted),
        ("front", _front),
        ("agreement", _agreement),
    ):
        told = ([*sentences_of(result, chosen)] for result in reports.get(key, ()))
        sentences += next(filter(None, told), [])
    return sentences


def preferred(
    results: Sequence[Result[Report]], chosen: Sequence[str], method: str, ablation: str = "zero"
) -> list[Result[Report]]:
    """Reports in the order in which they represent a choice.

    Those of exactly the chosen languages come first, then those that share the largest part of them; of equals those
    by the chosen method, then those of the ablation shown; what is equal in all of these keeps its order.

    Args:
        results: Reports of one experiment.
        chosen: Codes of the languages chosen in the sidebar.
        method: Key of the method chosen in the sidebar.
        ablation: Of the scores shown beside them.
    """

    def rank(result: Result[Report]) -> tuple[float, bool, bool]:
        spec, languages = result.record.spec, set(languages_of(result.record))
        shared = len(languages & set(chosen)) / len(languages | set(chosen))
        return (
            -shared,
            part(spec, "options", METHOD) != method,
            spec.get("ablation", "zero") != ablation,
        )

    return sorted(results, key=rank)


def languages_of(report: Report) -> list[str]:
    """Codes of the languages that a report is on."""
    return [code for code in str(part(report.spec, "task", "language") or "").split(",") if code]


# From head scores.


def _of_scores(scores: Mapping[str, HeadScores], chosen: Sequence[str]) -> Iterator[Finding]:
    first = next(iter(scores.values()), None)
    if first is None or first.low is None or not first.signed:
        return
    heads = first.grid.size
    where = languages_words([*scores], chosen)
    basis = _basis_of_scores(scores)
    harmful = {name: int(s.harmful.sum()) for name, s in scores.items()}
    worst = max(harmful, key=lambda name: harmful[name])
    total = sum(harmful.values())
    interval = f"{100 * first.level:g} % interval"
    why = "".join(f" Caution: {text}." for text in cautions(scores.values()))
    map_link = "heads", f"The map of {language_title(worst)}", {"focus": worst}
    if not total:
        yield Finding(
            f"No head in {where} has a {interval} below 0 ({basis}).{why}", "heads", "All maps"
        )
    elif len(scores) == 1:
        sentence = (
            f"{where}: {_many(total, heads)} harm, each by its own {interval}{_after_holm(scores)}"
        )
        yield Finding(f"{sentence} ({basis}).{why}", *map_link)
    else:
        sentence = (
            f"Of {heads * len(scores):,} heads in {where}, {total} harm, each by its own {interval}"
        )
        most = f"Most are in {language_title(worst)}: {harmful[worst]} of {heads}."
        yield Finding(f"{sentence}{_after_holm(scores)} ({basis}). {most}{why}", *map_link)
    helpful = float(np.median([s.helpful.sum() for s in scores.values()]))
    neither = float(np.median([(~(s.helpful | s.harmful)).sum() for s in scores.values()]))
    whose = where if len(scores) == 1 else f"The median of {where}"
    sentence = (
        f"{whose}: {helpful:g} of {heads} heads help, and the sign of {neither:g} is not settled, each by its own "
        f"{interval} ({basis})."
    )
    if len(scores) >= LANGUAGE_PAGE:
        yield Finding(sentence, "languages", "What languages share")
    else:
        yield Finding(sentence, *map_link)


def _basis_of_scores(scores: Mapping[str, HeadScores]) -> str:
    """Method, ablation where it is not the usual one, split and number of examples of scores of one variant."""
    first = next(iter(scores.values()))
    words = [first.method, *_ablation_words(first.spec), str(spec_of(first, "task", "split"))]
    return ", ".join([*words, _examples(scores.values())])


def _ablation_words(spec: Mapping[str, Any]) -> list[str]:
    """What a switched-off head gives, where that is not zero; at most one item."""
    ablation = spec.get("ablation", "zero")
    return [] if ablation == "zero" else [f"{ablation} ablation"]


def _after_holm(scores: Mapping[str, HeadScores]) -> str:
    """How many of these claims of harm stand when all heads of all languages on view are tested together."""
    p_by_language = adjusted(scores)
    if len(p_by_language) < len(scores) or coarse(scores.values()):
        return ""
    standing = sum(
        int(((p <= ALPHA) & scores[name].harmful).sum()) for name, p in p_by_language.items()
    )
    tests = sum(map(len, p_by_language.values()))
    return f"; {standing or 'none'} of them after Holm's correction for all {tests:,}"


def _examples(scores: Iterable[HeadScores]) -> str:
    """On how many examples the scores are."""
    sizes = sorted({size for s in scores if isinstance(size := spec_of(s, "task", "size"), int)})
    if not sizes:
        return "on examples whose number is not known"
    return (
        f"{sizes[0]:,} examples" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,} examples"
    )


def _many(count: int, heads: int) -> str:
    return f"{count} of {heads} heads"


# From reports. Tables are read as they were stored, maybe by another version or package: rows that lack a figure are
# left out, and a sentence without its figures is none.


def _targeted(result: Result[Report], chosen: Sequence[str]) -> Iterator[Finding]:
    """What switching off the harmful heads did on test: the clearest, how many gain significantly, the mean."""
    report = result.record
    languages = languages_of(report)
    harmful = [
        effect
        for effect in readable_rows(report, "targeted", ChoiceEffect)
        if effect.choice == HARMFUL
    ]
    effects, intervals = list[ChoiceEffect](), list[PointInterval]()
    for effect in harmful:
        interval = effect.difference.interval
        if effect.language in languages and effect.heads_removed and interval is not None:
            effects.append(effect)
            intervals.append(interval)
    if not effects:
        return
    lower_ends = [interval.low for interval in intervals]
    index = lower_ends.index(max(lower_ends))
    clearest, interval = effects[index], intervals[index]
    significant = sum(
        effect.p_holm is not None and effect.p_holm <= ALPHA and low > 0
        for effect, low in zip(effects, lower_ends, strict=True)
    )
    where = languages_words(languages, chosen)
    accuracies = f"{clearest.untouched_percent:.1f} to {clearest.accuracy_percent:.1f} %"
    sentence = (
        f"Heads that harm on dev by {_method_words(report)}, switched off in {where}: of "
        f"{counted(len(effects), 'language')} with such heads {significant} gain{'s' * (significant == 1)} significantly "
        f"on test (Holm-adjusted p at most {ALPHA:g}). The clearest is {language_title(clearest.language)}, "
        f"{counted(clearest.heads_removed or 0, 'head')} off: {accuracies}, "
        f"{_points(interval)}{_tested(report, clearest.language)}."
    )
    means = [effect.difference.interval for effect in harmful if effect.language == MEAN]
    mean = next((interval for interval in means if interval is not None), None)
    if mean is not None:
        sentence += f" Mean of {_all_of(languages)}: {_points(mean)}."
    yield Finding(
        sentence, "experiments", "Targeted pruning", report_params("targeted", result.key)
    )


def _front(result: Result[Report], chosen: Sequence[str]) -> Iterator[Finding]:
    """How many heads can go in all languages of a front at once within a loss, and whether test confirms it."""
    report = result.record
    languages = languages_of(report)
    loss = part(report.spec, "options", "within")
    answer = next(iter(readable_rows(report, CHOICE, FrontAnswer)), None)
    if not is_number(loss) or answer is None or not languages:
        return
    kept, removed = answer.kept, answer.removed
    limit = f"{loss:g} point{'s' * (loss != 1)}"
    rule = "the lower bound" if part(report.spec, "options", "by") == BOUND else "the estimate"
    several = len(languages) > 1
    where = languages_words(languages, chosen) + " at once" * several
    within = f"with a loss of at most {limit}{' in any' * several}, by {rule} on dev"
    splits = ("dev", "test") if removed else ("dev",)  # a front that removes nothing is not tested
    sizes = " and ".join(filter(None, (_sizes(report, split) for split in splits)))
    examples = f"; {sizes} examples{' a language' * several}" if sizes else ""
    basis = f"heads ordered by {_method_words(report)}{examples}"
    if removed:
        sentence = f"{_many(removed, removed + kept)} can go in {where} {within} ({basis}); {_verdict(report)}"
        sentence += f"{_mean_on_test(report)}."
    else:
        sentence = f"No head of {kept} can go in {where} {within} ({basis})."
    yield Finding(sentence, "prune", "Smaller models", front_params(result.key))


def _verdict(report: Report) -> str:
    """What test says of the loss that a front allows; a claim only where each of its languages was tested."""
    languages = languages_of(report)
    p_by_language = {
        row.language: row.p_loss
        for row in readable_rows(report, CONFIRMED, TestedLanguage)
        if row.p_loss is not None
    }
    if not p_by_language:
        return "not tested"
    untested = [code for code in languages if code not in p_by_language]
    if untested:
        return f"not tested in {languages_words(untested)}"
    p_values = [p_by_language[code] for code in languages]
    unconfirmed = [code for code in languages if p_by_language[code] > ALPHA]
    if not unconfirmed:
        return f"test confirms it ({p_is(max(p_values))})"
    where = f" in {languages_words(unconfirmed)}" if len(languages) > 1 else ""
    return f"on test, a larger loss is not ruled out{where}"


def _mean_on_test(report: Report) -> str:
    """The mean difference on test over a front's languages; empty for one language, or without its figures."""
    languages = languages_of(report)
    if len(languages) < 2:
        return ""
    for row in readable_rows(report, CONFIRMED, TestedLanguage):
        if row.language != MEAN:
            continue
        if row.difference is not None and row.low is not None and row.high is not None:
            interval = PointInterval(row.difference, row.low, row.high)
            return f"; mean of {_all_of(languages)} {_points(interval)}"
    return ""


def _agreement(result: Result[Report], chosen: Sequence[str]) -> Iterator[Finding]:
    """How alike languages rank the heads, beside what their noise would leave of the same ranking."""
    report = result.record
    pairs, intervals = list[PairAgreement](), list[RhoInterval]()
    for pair in readable_rows(report, "agreement", PairAgreement):
        interval = pair.correlation.interval
        if interval is not None:
            pairs.append(pair)
            intervals.append(interval)
    if not pairs:
        return
    rhos = [interval.rho for interval in intervals]
    lowest, highest = (
        _pair(pairs[index], intervals[index])
        for index in (rhos.index(min(rhos)), rhos.index(max(rhos)))
    )
    size = _sizes(report, "dev")
    by_method = f"by {_method_words(report)}, on {f'{size} examples a language' if size else 'dev'}"
    if len(pairs) == 1:
        sentence = f"{lowest}: rank correlation of the heads {by_method}"
    else:
        middle = float(np.median(rhos))
        sentence = (
            f"Of {languages_words(languages_of(report), chosen)}, {lowest} rank the heads least alike, "
            f"{highest} most, the median of {len(pairs):,} pairs is {_written(middle, '.2f')} ({by_method})"
        )
    correlations = [pair.correlation for pair in pairs]
    ceilings = [
        one.ceiling for one in correlations if one.noise == CLEAR and one.ceiling is not None
    ]
    limit = (
        f" With this noise two equal rankings would show about {np.median(ceilings):.2f}."
        if ceilings
        else ""
    )
    yield Finding(
        f"{sentence}.{limit}", "experiments", "Agreement", report_params("agreement", result.key)
    )


def _method_words(report: Report) -> str:
    """The method that a report's scores are by, with the ablation where it is not the usual one."""
    method = str(part(report.spec, "options", METHOD) or "the scores")
    return ", ".join([method, *_ablation_words(report.spec)])


def _all_of(languages: Sequence[str]) -> str:
    """A report's languages, where its sentence has named them."""
    return "both" if len(languages) == 2 else f"these {len(languages)} languages"


def _pair(pair: PairAgreement, interval: RhoInterval) -> str:
    names = f"{language_title(pair.language)} and {language_title(pair.other)}"
    rho, low, high = (_written(value, ".2f") for value in interval)
    return f"{names} (ρ = {rho} [{low}, {high}])"


def _tested(report: Report, language: str) -> str:
    """', 1,000 examples', from the sizes that the report records; empty where they cannot be told."""
    languages = languages_of(report)
    sizes = part(report.spec, "task", "sizes", "test")
    if not isinstance(sizes, list) or len(sizes) != len(languages) or language not in languages:
        return ""
    size = sizes[languages.index(language)]
    return f", {size:,} examples" if isinstance(size, int) else ""


def _sizes(report: Report, split: str) -> str:
    """How many examples of a split each language had: '512 dev', '500 to 512 dev'; empty where it is not told."""
    sizes = part(report.spec, "task", "sizes", split)
    if not isinstance(sizes, list) or not sizes or not all(isinstance(size, int) for size in sizes):
        return ""
    smallest, largest = min(sizes), max(sizes)
    count = f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
    return f"{count} {split}"


def _points(interval: PointInterval) -> str:
    """A difference in points with its interval."""
    value, low, high = (_written(number, "+.1f") for number in interval)
    return f"{value} [{low}, {high}] points"


def _written(value: float, form: str) -> str:
    return format(value, form).replace("-", MINUS)
