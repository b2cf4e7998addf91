"""What the stored results say, in a few sentences made by rule, each with the page that shows it.

No streamlit here.

Each is said twice: in a headline of at most fifteen words, and in a sentence that names the
languages, the method and the examples that it is of, as the result itself records them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headlab.core import (
    HEADS,
    HeadGrid,
    HeadlabError,
    Report,
    ablation_title,
    is_number,
    nouns_of_kinds,
    p_equals_text,
    part,
    read_players,
)
from headlab.dashboard.names import (
    FRONT_PARAM,
    SHORT_KEY,
    count_words,
    front_params,
    language_title,
    languages_words,
    report_params,
)
from headlab.dashboard.panels.heads import RoleEffect
from headlab.masks import Mask
from headlab.methods import METHODS, cautions, options_of, spec_of
from headlab.pictures import MINUS, holm_adjusted_p_values
from headlab.results import HeadScores, Result, why_holm_rejects_none
from headlab.roles import Roles
from headlab.studies import BOUND, METHOD, METHOD_OPTIONS, readable_rows
from headlab.studies.agreement import CLEAR, PairAgreement, RhoInterval
from headlab.studies.differences import ALPHA, PointInterval
from headlab.studies.pareto import (
    CHOICE_TABLE,
    CONFIRMED_TABLE,
    FrontAnswer,
    TestedLanguage,
    can_be_chosen,
    chosen_mask,
)
from headlab.studies.targeted import HARMFUL, MEAN, ChoiceEffect

NO_BREAK = "\N{NO-BREAK SPACE}"
MIN_LANGUAGES_TO_COMPARE = 2
"""Languages that the Languages page needs, to compare them."""


@dataclass(frozen=True)
class MaskToOpen:
    """A mask that a finding speaks of, and how the Prune page shows it.

    Attributes:
        mask: The mask.
        link_params: Parameters of the Prune page: the language of its colours, and the examples.
    """

    mask: Mask
    link_params: Mapping[str, str]


@dataclass(frozen=True)
class OverviewFinding:
    """A finding in words, and the view that it is of.

    Attributes:
        headline: At most fifteen words of plain text.
        sentence: The same with what it is based on, in plain text.
        page: Key of the page that shows it, as `headlab.dashboard.names.page_link` takes it.
        label: Text of the link to that page.
        link_params: Parameters of the link, so that it opens what the sentence speaks of.
        mask_to_open: The mask that the headline speaks of; None if it speaks of none.
    """

    headline: str
    sentence: str
    page: str
    label: str
    link_params: Mapping[str, str] = field(default_factory=dict)
    mask_to_open: MaskToOpen | None = None


def findings(
    scores: Mapping[str, HeadScores],
    reports: Mapping[str, Sequence[Result[Report]]],
    selected_languages: Sequence[str] = (),
) -> list[OverviewFinding]:
    """What is found, most telling first; none without results.

    Args:
        scores: By language, as the page shows them.
        reports: Those of each study, the preferred one first (see `by_preference`). The first
            that has something to say is the one that is told.
        selected_languages: Codes of the languages chosen in the sidebar.
    """
    all_findings: list[OverviewFinding] = []
    for study, findings_of in FINDINGS_BY_STUDY.items():
        for result in reports.get(study, ()):
            findings_of_report = [*findings_of(result, selected_languages, scores)]
            if findings_of_report:
                all_findings += findings_of_report
                break
    return [*all_findings, *_findings_of_scores(scores, selected_languages)]


INDUCTION = "induction"
"""The role that is told first, as it is the best known one of decoders."""


def findings_of_roles(
    roles: Roles, language: str, basis: str, effect: RoleEffect | None = None
) -> list[OverviewFinding]:
    """How many induction heads a report on roles finds; none where there are none.

    Args:
        roles: The report.
        language: Code of the language of its sentences.
        basis: What it is on, in words.
        effect: What the chosen task loses without them; None where that is not stored.
    """
    head_count = roles.counts.get(INDUCTION, 0)
    if not head_count:
        return []
    verb, pronoun, others = ("do", "they look", "them")
    if head_count == 1:
        verb, pronoun, others = ("does", "it looks", "it")
    heads = count_words(head_count, "head")
    headline = f"{heads} {verb} induction: {pronoun} at what followed an earlier copy of the token"
    loss = ""
    mask_to_open = None
    if effect is not None:
        induction_heads = count_words(head_count, "induction head")
        headline = f"{induction_heads}: without {others} {effect.task} {effect.accuracies_text}"
        loss = (
            f" Without {others}, {effect.task} {effect.accuracies_text}, {effect.size:,} examples."
        )
        mask_to_open = MaskToOpen(effect.mask, {"split": effect.split})
    return [
        OverviewFinding(
            headline,
            f"{heads} of {roles.grid.size} {verb} induction: in the second copy of repeated sentences {pronoun} at the "
            f"token after the earlier copy, as often as the role asks ({basis}). Roles lists {others} and switches "
            f"{others} off.{loss}",
            "roles",
            "Roles: the induction heads",
            {"role": INDUCTION, "focus": language},
            mask_to_open,
        )
    ]


def by_preference(
    results: Sequence[Result[Report]],
    selected_languages: Sequence[str],
    method: str,
    ablation: str = "zero",
) -> list[Result[Report]]:
    """Reports in the order in which they represent a choice.

    Those of exactly the chosen languages come first, then those that share the largest part of
    them; of equals those by the chosen method, then those of the ablation shown; what is equal in
    all of these keeps its order.

    Args:
        results: Reports of one experiment.
        selected_languages: Codes of the languages chosen in the sidebar.
        method: Key of the method chosen in the sidebar.
        ablation: Of the scores shown beside them.
    """
    selected_codes = set(selected_languages)

    def rank(result: Result[Report]) -> tuple[float, bool, bool]:
        spec = result.record.spec
        languages = set(languages_of(result.record))
        shared_part = len(languages & selected_codes) / len(languages | selected_codes)
        return (
            -shared_part,
            part(spec, "options", METHOD) != method,
            spec.get("ablation", "zero") != ablation,
        )

    return sorted(results, key=rank)


def languages_of(report: Report) -> list[str]:
    """Codes of the languages that a report is on."""
    codes = str(part(report.spec, "task", "language") or "")
    return [code for code in codes.split(",") if code]


# From head scores.


def _findings_of_scores(
    scores: Mapping[str, HeadScores], selected_languages: Sequence[str]
) -> Iterator[OverviewFinding]:
    first_scores = next(iter(scores.values()), None)
    if first_scores is None or first_scores.low is None or not first_scores.signed:
        return
    grid = first_scores.grid
    heads = grid.size
    none_text = "No head has" if grid.has_only_heads else f"None of the {grid.noun} has"
    languages_text = languages_words([*scores], selected_languages)
    basis = _basis_of_scores(scores)
    harmful_counts: dict[str, int] = {}
    helpful_counts = []
    unsettled_counts = []
    for language, language_scores in scores.items():
        harmful_counts[language] = int(language_scores.harmful.sum())
        helpful_counts.append(language_scores.helpful.sum())
        settled = language_scores.helpful | language_scores.harmful
        unsettled_counts.append((~settled).sum())
    worst_language = max(harmful_counts, key=lambda name: harmful_counts[name])
    harmful_count = sum(harmful_counts.values())
    interval = f"{100 * first_scores.level:g} % interval"
    caution_text = "".join(f" Caution: {text}." for text in cautions(scores.values()))
    map_link = ("heads", f"The map of {language_title(worst_language)}", {"focus": worst_language})
    worst_count = harmful_counts[worst_language]
    worst_headline = _harm_headline(worst_language, worst_count, first_scores)
    worst_mask = _mask_of_harmful_heads(scores, worst_language, worst_count)
    if not harmful_count:
        yield OverviewFinding(
            f"{none_text} a {interval} below 0 in {_in_short(scores)}",
            _none_harm_sentence(grid, languages_text, interval) + f" ({basis}).{caution_text}",
            "heads",
            "All maps",
        )
    elif len(scores) == 1:
        sentence = (
            f"{languages_text}: {_share_of_heads(harmful_count, heads, grid.noun)} harm, each by its own "
            f"{interval}{_after_holm(scores)}"
        )
        yield OverviewFinding(
            worst_headline, f"{sentence} ({basis}).{caution_text}", *map_link, worst_mask
        )
    else:
        sentence = (
            f"Of {heads * len(scores):,} {grid.noun} in {languages_text}, {harmful_count} harm, each by "
            f"its own {interval}{_after_holm(scores)}"
        )
        worst = f"{language_title(worst_language)}: {worst_count} of {heads}"
        yield OverviewFinding(
            f"{worst_headline}, the most of {_in_short(scores)}",
            f"{sentence} ({basis}). Most are in {worst}.{caution_text}",
            *map_link,
            worst_mask,
        )
    helpful = float(np.median(helpful_counts))
    unsettled = float(np.median(unsettled_counts))
    subject = languages_text if len(scores) == 1 else f"The median of {languages_text}"
    sentence = (
        f"{subject}: {helpful:g} of {heads} {grid.noun} help, and the sign of {unsettled:g} is not "
        f"settled, each by its own {interval} ({basis})."
    )
    median_words = " in the median language" if len(scores) > 1 else ""
    headline = (
        f"{helpful:g} of {heads} {grid.noun} help{median_words}; {unsettled:g} are not settled"
    )
    if len(scores) >= MIN_LANGUAGES_TO_COMPARE and grid.has_only_heads:
        yield OverviewFinding(headline, sentence, "languages", "What languages share")
    else:
        yield OverviewFinding(headline, sentence, *map_link)


def _none_harm_sentence(grid: HeadGrid, languages_text: str, interval: str) -> str:
    """That no head, or other player, is known to harm, without the full stop."""
    if grid.has_only_heads:
        return f"No head in {languages_text} has a {interval} below 0"
    return f"None of the {grid.noun} has a {interval} below 0 in {languages_text}"


def _harm_headline(language: str, count: int, scores: HeadScores) -> str:
    """How many heads harm a language, and that each is judged by its own interval."""
    harm, own = ("harms", "its own") if count == 1 else ("harm", "their own")
    interval = f"{100 * scores.level:g}{NO_BREAK}% interval{'s' * (count != 1)}"
    return f"{scores.grid.count_words(count)} {harm} {_name_of(language)} by {own} {interval}"


def _name_of(language: str) -> str:
    """A language's name without its code."""
    return language_title(language).partition(" (")[0]


def _in_short(languages: Collection[str]) -> str:
    """Some languages in a headline: a name, or how many they are."""
    if len(languages) == 1:
        return _name_of(next(iter(languages)))
    return count_words(len(languages), "language")


def _mask_of_harmful_heads(
    scores: Mapping[str, HeadScores], language: str, harmful_count: int
) -> MaskToOpen | None:
    """The mask without the heads that harm a language, shown on test.

    Args:
        scores: By language.
        language: Its code.
        harmful_count: How many heads the finding speaks of. If the scores name another number,
            they are not what it is of, and there is no mask.
    """
    language_scores = scores.get(language)
    if language_scores is None or not language_scores.chooses_heads or not harmful_count:
        return None
    mask = language_scores.mask(HARMFUL)
    if len(mask.removed) != harmful_count:
        return None
    link_params = {"split": "test"}
    if len(scores) > 1:
        link_params["from"] = language
    return MaskToOpen(mask, link_params)


def _basis_of_scores(scores: Mapping[str, HeadScores]) -> str:
    """What scores of one variant are by: method, ablation if not the usual one, split, examples."""
    first_scores = next(iter(scores.values()))
    parts = [
        first_scores.method,
        *_ablation_words(first_scores.spec),
        str(spec_of(first_scores, "task", "split")),
        _examples_words(scores.values()),
    ]
    return ", ".join(parts)


def _ablation_words(spec: Mapping[str, Any]) -> list[str]:
    """What a switched-off head gives, where that is not zero; at most one item."""
    ablation = spec.get("ablation", "zero")
    if ablation == "zero":
        return []
    return [f"{ablation_title(ablation)} ablation"]


def _after_holm(scores: Mapping[str, HeadScores]) -> str:
    """How many claims of harm stand when all heads of all languages shown are tested together.

    Empty where the scores have no p values for that.
    """
    p_by_language = holm_adjusted_p_values(scores)
    if len(p_by_language) < len(scores) or why_holm_rejects_none(scores.values()):
        return ""
    confirmed_count = 0
    test_count = 0
    for language, p_values in p_by_language.items():
        confirmed_count += int(((p_values <= ALPHA) & scores[language].harmful).sum())
        test_count += scores[language].test_count
    return f"; {confirmed_count or 'none'} of them after Holm's correction for all {test_count:,}"


def _examples_words(scores: Iterable[HeadScores]) -> str:
    """On how many examples the scores are."""
    sizes = set()
    for language_scores in scores:
        size = spec_of(language_scores, "task", "size")
        if isinstance(size, int):
            sizes.add(size)
    if not sizes:
        return "on examples whose number is not known"
    smallest = min(sizes)
    largest = max(sizes)
    if smallest == largest:
        return f"{smallest:,} examples"
    return f"{smallest:,} to {largest:,} examples"


def _share_of_heads(count: int, heads: int, noun: str = HEADS) -> str:
    return f"{count} of {heads} {noun}"


# From reports. Tables are read as they were stored, maybe by another version or package: rows that
# lack a figure are left out, and a sentence without its figures is none.


def _findings_of_targeted_pruning(
    result: Result[Report],
    selected_languages: Sequence[str],
    scores: Mapping[str, HeadScores],
) -> Iterator[OverviewFinding]:
    """What switching off the harmful heads did on test.

    It names how many languages gain significantly, the clearest one, and the mean.
    """
    report = result.record
    languages = languages_of(report)
    effects: list[ChoiceEffect] = []
    intervals: list[PointInterval] = []
    mean: PointInterval | None = None
    significant_count = 0
    for effect in readable_rows(report, "targeted", ChoiceEffect):
        interval = effect.difference.interval
        if effect.choice != HARMFUL or interval is None:
            continue
        if effect.language == MEAN and mean is None:
            mean = interval
        if effect.language in languages and effect.heads_removed:
            effects.append(effect)
            intervals.append(interval)
            is_significant = effect.p_holm is not None and effect.p_holm <= ALPHA
            significant_count += is_significant and interval.low > 0
    if not effects:
        return
    lower_ends = [interval.low for interval in intervals]
    index = lower_ends.index(max(lower_ends))
    clearest = effects[index]
    languages_text = languages_words(languages, selected_languages)
    accuracies = f"{clearest.untouched_percent:.1f} to {clearest.accuracy_percent:.1f} %"
    sentence = (
        f"Heads that harm on dev by {_method_words(report)}, switched off in {languages_text}: of "
        f"{count_words(len(effects), 'language')} with such heads {significant_count} "
        f"gain{'s' * (significant_count == 1)} significantly on test (Holm-adjusted p at most "
        f"{ALPHA:g}). The clearest is {language_title(clearest.language)}, "
        f"{count_words(clearest.heads_removed or 0, 'head')} off: {accuracies}, "
        f"{_points_words(intervals[index])}{_tested_examples(report, clearest.language)}."
    )
    if mean is not None:
        sentence += f" Mean of {_all_of(languages)}: {_points_words(mean)}."
    yield OverviewFinding(
        _targeted_headline(clearest, intervals[index]),
        sentence,
        "experiments",
        "Targeted pruning",
        report_params("targeted", result.key),
        _mask_of_harmful_heads(
            _scores_of_report(report, scores), clearest.language, clearest.heads_removed or 0
        ),
    )


def _scores_of_report(report: Report, scores: Mapping[str, HeadScores]) -> dict[str, HeadScores]:
    """Those of the scores shown that the report's masks are of.

    They are by its method with its options, its seed and its ablation.
    """
    shared = ("seed", "ablation")
    report_options = part(report.spec, "options", METHOD_OPTIONS) or {}
    report_method = METHODS.get(str(part(report.spec, "options", METHOD)))
    if report_method is not None:
        report_options = report_method.with_unrecorded(report_options)
    fitting_scores: dict[str, HeadScores] = {}
    for language, language_scores in scores.items():
        options = options_of(language_scores)
        has_same_options = all(
            report_options[name] == options[name] for name in report_options.keys() & options
        )
        has_same_options &= all(
            report.spec.get(name) == language_scores.spec.get(name) for name in shared
        )
        if has_same_options and language_scores.method == part(report.spec, "options", METHOD):
            fitting_scores[language] = language_scores
    return fitting_scores


def _targeted_headline(effect: ChoiceEffect, interval: PointInterval) -> str:
    """What switching off a language's harmful heads did on test."""
    count = effect.heads_removed or 0
    heads = count_words(count, "head")
    accuracies = (
        f"{effect.untouched_percent:.1f} → {effect.accuracy_percent:.1f}{NO_BREAK}% on test"
    )
    language = _name_of(effect.language)
    is_proven = effect.p_holm is not None and effect.p_holm <= ALPHA
    if is_proven and interval.high < 0:
        return f"{language} without {heads}: {accuracies}, worse"
    if not is_proven or interval.low <= 0:
        return f"{language} without {heads}: {accuracies}, not proven better"
    if count == 1:
        return f"{heads} hurts {language}: without it {accuracies}"
    return f"{heads} hurt {language}: without them {accuracies}"


def _findings_of_front(
    result: Result[Report],
    selected_languages: Sequence[str],
    scores: Mapping[str, HeadScores],
) -> Iterator[OverviewFinding]:
    """How many heads can be removed in all languages of a front at once within a loss.

    It also says whether test confirms it. Fronts of other players are told in their noun.
    """
    report = result.record
    one, several = nouns_of_kinds(read_players(report.spec.players or HEADS).kinds)
    languages = languages_of(report)
    loss = part(report.spec, "options", "within")
    answer = next(iter(readable_rows(report, CHOICE_TABLE, FrontAnswer)), None)
    if not is_number(loss) or answer is None or not languages:
        return
    kept_count = answer.heads_kept
    removed_count = answer.heads_removed
    limit = f"{loss:g} point{'s' * (loss != 1)}"
    rule_text = "the lower bound" if part(report.spec, "options", "by") == BOUND else "the estimate"
    has_several_languages = len(languages) > 1
    languages_text = (
        languages_words(languages, selected_languages) + " at once" * has_several_languages
    )
    limit_text = (
        f"with a loss of at most {limit}{' in any' * has_several_languages}, by {rule_text} on dev"
    )
    sizes = _sizes_words(report, "dev")
    if removed_count:  # a front that removes nothing is not tested
        sizes = " and ".join(filter(None, (sizes, _sizes_words(report, "test"))))
    examples_text = f"; {sizes} examples{' a language' * has_several_languages}" if sizes else ""
    basis = f"{several} ordered by {_method_words(report)}{examples_text}"
    verdict, short_verdict = _test_verdict(report)
    if removed_count:
        heads_text = _share_of_heads(removed_count, removed_count + kept_count, several)
        sentence = (
            f"{heads_text} can go in {languages_text} {limit_text} ({basis}); "
            f"{verdict}{_mean_on_test(report)}."
        )
        verb = "loses" if len(languages) == 1 else "lose"
        headline = (
            f"{heads_text} can go: "
            f"{_in_short(languages)} {verb} ≤{NO_BREAK}{limit}; "
            f"{short_verdict}"
        )
    else:
        sentence = f"No {one} of {kept_count} can go in {languages_text} {limit_text} ({basis})."
        headline = f"No {one} of {kept_count} can go if dev loses at most {limit} in {_in_short(languages)}"
    link_params = front_params(result.key)
    opened = _mask_of_front(result, scores)
    if opened is not None and not can_be_chosen(opened.mask.grid, opened.mask.kept):
        return  # an earlier version chose a model that cannot be written
    yield OverviewFinding(headline, sentence, "prune", "Smaller models", link_params, opened)


def _mask_of_front(result: Result[Report], scores: Mapping[str, HeadScores]) -> MaskToOpen | None:
    """The mask that answers a front's question, shown on test.

    None if it keeps all heads, or is of other heads than the scores shown.
    """
    first_scores = next(iter(scores.values()), None)
    if first_scores is None:
        return None
    try:
        mask = chosen_mask(result.record, first_scores.grid)
    except HeadlabError:  # the front's own page says what is wrong with it
        return None
    if not mask.removed:
        return None
    link_params = {"split": "test", FRONT_PARAM: result.key[:SHORT_KEY]}
    return MaskToOpen(mask, link_params)


def _test_verdict(report: Report) -> tuple[str, str]:
    """What test says of the loss that a front allows.

    It is a claim only where each of the front's languages was tested.

    Returns:
        The verdict with its p-value and languages, and the same in three words at most.
    """
    languages = languages_of(report)
    p_by_language = {}
    for row in readable_rows(report, CONFIRMED_TABLE, TestedLanguage):
        if row.p_loss is not None:
            p_by_language[row.language] = row.p_loss
    if not p_by_language:
        return "not tested", "not tested"
    untested_languages = [code for code in languages if code not in p_by_language]
    if untested_languages:
        return f"not tested in {languages_words(untested_languages)}", "not all tested"
    p_values = [p_by_language[code] for code in languages]
    unconfirmed_languages = [code for code in languages if p_by_language[code] > ALPHA]
    if not unconfirmed_languages:
        return f"test confirms it ({p_equals_text(max(p_values))})", "confirmed on test"
    languages_text = f" in {languages_words(unconfirmed_languages)}" if len(languages) > 1 else ""
    return f"on test, a larger loss is not ruled out{languages_text}", "unconfirmed on test"


def _mean_on_test(report: Report) -> str:
    """The mean difference on test over a front's languages.

    Empty for a front on one language, or one without these figures.
    """
    languages = languages_of(report)
    if len(languages) < 2:
        return ""
    for row in readable_rows(report, CONFIRMED_TABLE, TestedLanguage):
        if row.language != MEAN:
            continue
        if row.difference is not None and row.low is not None and row.high is not None:
            interval = PointInterval(row.difference, row.low, row.high)
            return f"; mean of {_all_of(languages)} {_points_words(interval)}"
    return ""


def _findings_of_agreement(
    result: Result[Report],
    selected_languages: Sequence[str],
    _scores: Mapping[str, HeadScores],
) -> Iterator[OverviewFinding]:
    """How alike languages rank the heads, beside what noise leaves of equal rankings."""
    report = result.record
    pairs: list[PairAgreement] = []
    intervals: list[RhoInterval] = []
    ceilings = []
    for pair in readable_rows(report, "agreement", PairAgreement):
        interval = pair.correlation.interval
        if interval is not None:
            pairs.append(pair)
            intervals.append(interval)
            ceiling = pair.correlation.ceiling
            if pair.correlation.noise == CLEAR and ceiling is not None:
                ceilings.append(ceiling)
    if not pairs:
        return
    rhos = [interval.rho for interval in intervals]
    lowest_index = rhos.index(min(rhos))
    highest_index = rhos.index(max(rhos))
    lowest = _pair_words(pairs[lowest_index], intervals[lowest_index])
    highest = _pair_words(pairs[highest_index], intervals[highest_index])
    size = _sizes_words(report, "dev")
    examples_text = f"{size} examples a language" if size else "dev"
    by_method = f"by {_method_words(report)}, on {examples_text}"
    lowest_pair = _names_of(pairs[lowest_index])
    lowest_rho = _number_words(min(rhos), ".2f")
    if len(pairs) == 1:
        headline = f"{lowest_pair}: their rankings of the heads correlate by ρ = {lowest_rho}"
        sentence = f"{lowest}: rank correlation of the heads {by_method}"
    else:
        highest_rho = _number_words(max(rhos), ".2f")
        headline = (
            f"{lowest_pair} rank heads least alike (ρ{NO_BREAK}{lowest_rho}), "
            f"{_names_of(pairs[highest_index])} most ({highest_rho})"
        )
        median_rho = float(np.median(rhos))
        sentence = (
            f"Of {languages_words(languages_of(report), selected_languages)}, {lowest} rank the "
            f"heads least alike, {highest} most, the median of {len(pairs):,} pairs is "
            f"{_number_words(median_rho, '.2f')} ({by_method})"
        )
    ceiling_text = ""
    if ceilings:
        median_ceiling = np.median(ceilings)
        ceiling_text = f" With this noise two equal rankings would show about {median_ceiling:.2f}."
    yield OverviewFinding(
        headline,
        f"{sentence}.{ceiling_text}",
        "experiments",
        "Agreement",
        report_params("agreement", result.key),
    )


FINDINGS_BY_STUDY = {
    "targeted": _findings_of_targeted_pruning,
    "front": _findings_of_front,
    "agreement": _findings_of_agreement,
}
"""What says what the reports of a study found, in the order in which the page tells it."""


def _method_words(report: Report) -> str:
    """The method that a report's scores are by, with the ablation where it is not the usual one."""
    method = str(part(report.spec, "options", METHOD) or "the scores")
    return ", ".join([method, *_ablation_words(report.spec)])


def _all_of(languages: Sequence[str]) -> str:
    """A report's languages, where its sentence has named them."""
    if len(languages) == 2:
        return "both"
    return f"these {len(languages)} languages"


def _names_of(pair: PairAgreement) -> str:
    """Two languages in a headline."""
    return f"{_name_of(pair.language)} and {_name_of(pair.other_language)}"


def _pair_words(pair: PairAgreement, interval: RhoInterval) -> str:
    names = f"{language_title(pair.language)} and {language_title(pair.other_language)}"
    rho, low, high = (_number_words(value, ".2f") for value in interval)
    return f"{names} (ρ = {rho} [{low}, {high}])"


def _tested_examples(report: Report, language: str) -> str:
    """', 1,000 examples', from the sizes that the report records; empty without them."""
    languages = languages_of(report)
    sizes = part(report.spec, "task", "sizes", "test")
    if not isinstance(sizes, list) or len(sizes) != len(languages) or language not in languages:
        return ""
    size = sizes[languages.index(language)]
    if isinstance(size, int):
        return f", {size:,} examples"
    return ""


def _sizes_words(report: Report, split: str) -> str:
    """How many examples of a split each language had, like '512 dev' or '500 to 512 dev'.

    Empty where the report does not record it.
    """
    sizes = part(report.spec, "task", "sizes", split)
    if not isinstance(sizes, list) or not sizes or not all(isinstance(size, int) for size in sizes):
        return ""
    smallest = min(sizes)
    largest = max(sizes)
    count = f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
    return f"{count} {split}"


def _points_words(interval: PointInterval) -> str:
    """A difference in points with its interval."""
    value, low, high = (_number_words(number, "+.1f") for number in interval)
    return f"{value} [{low}, {high}] points"


def _number_words(value: float, format_spec: str) -> str:
    return format(value, format_spec).replace("-", MINUS)
