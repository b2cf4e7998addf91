"""The studies, and the settings of jobs.

Read by the command line, pages and documents, and no model is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headlab.core import (
    LAYERS,
    PLAYERS_WORDS,
    VALUE_FUNCTIONS,
    HeadlabError,
    Json,
    KeysWhere,
    Option,
    OptionValue,
    Registry,
    options_in,
    read_players,
    require_known_options,
    resolve_options,
    text_in,
    wrong_key_text,
    wrong_kind_text,
)
from headlab.methods import DEFAULT_METHOD, METHODS, ORDERINGS, RANDOM_METHOD, RIVALS, Method
from headlab.methods import method as method_of

HOME = "headlab.studies"  # package of the modules that the table names by one word
METHOD = "method"
METHOD_OPTIONS = "method_options"
METHOD_VERSIONS = (
    "method_versions"  # of a report's spec: of renewed settings only, {name in its tables: version}
)
EXPERIMENT = (
    "experiment"  # the kind of job, and the command, that runs a study without one of its own
)
SaySentence = Callable[[str], None]  # takes a sentence on where the work is


@dataclass(frozen=True)
class Experiment:
    """One analysis.

    No module is imported before its result or figures are asked for.

    Attributes:
        key: Names it in commands and reports.
        title: For people.
        question: What it answers.
        paper: Its source.
        options: By name.
        module: Of its `run` and `cost`, relative to headlab.studies or as a full dotted path.
        version: Raised when its tables change, so that stored reports are made again.
        least_languages: Minimum number of languages.
        options_of: {option: the method whose options it holds}, if that is not the chosen method.
        lists: {option: names allowed in it, comma-separated}.
        fewest: {option: minimum number of names in it}, 1 by default.
        always: Scores taken whatever the options, {name in its tables: (method, its options)}.
        result: The class of what `run` returns, as "module:Class", a
            `headlab.studies.result.StudyResult`; empty where `run` returns tables and notes.
        figures: Module of `figures(result)`, which gives {name: chart}, relative to
            headlab.charts.studies or as a full dotted path; empty for a study without figures.
        job: The key of the kind of job that runs it, whose page shows it; another than the default
            if it has a command and a page of its own.
        complete: Takes all options, each valid by itself, and returns them with what one says of
            another filled in; raises HeadlabError for those that exclude each other.
        settles: Module of `settled_options(pieces, given, options)`, which gives the resolved options
            with what the store says of those that were not given; empty if it says nothing.
        versions_of_kinds: {kind of players: the version of reports on such players}, where those
            alone have changed since `version`.
    """

    key: str
    title: str
    question: str
    paper: str
    options: Mapping[str, Option]
    module: str
    version: int = 1
    least_languages: int = 1
    options_of: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fewest: Mapping[str, int] = field(default_factory=dict)
    always: Mapping[str, tuple[str, Mapping[str, OptionValue]]] = field(default_factory=dict)
    result: str = ""
    figures: str = ""
    job: str = EXPERIMENT
    complete: Callable[[Mapping[str, OptionValue]], dict[str, OptionValue]] = dict
    settles: str = ""
    versions_of_kinds: Mapping[str, int] = field(default_factory=dict)

    def version_on(self, kinds: Iterable[str]) -> int:
        """The version of a report on these kinds of players."""
        return max([self.version, *(self.versions_of_kinds.get(kind, 0) for kind in kinds)])

    def renewed(self, options: Mapping[str, object]) -> dict[str, tuple[Method, int]]:
        """The scores taken whose settings have meant something else before.

        Args:
            options: Of the experiment, resolved or as a stored report has them.

        Returns:
            {name in the tables: (the method, the version since which the settings mean what they
            do)}.
        """
        settings_by_name: dict[str, tuple[str, Mapping[str, object]]] = dict(self.always)
        method = options.get(METHOD)
        settings = options.get(METHOD_OPTIONS)
        if isinstance(method, str):
            settings_by_name[method] = method, settings if isinstance(settings, Mapping) else {}
        listed_names = [
            name for option in self.lists for name in str(options.get(option) or "").split(",")
        ]
        settings_by_name |= {name: ORDERINGS[name] for name in listed_names if name in ORDERINGS}
        renewed_methods = {}
        for name, (key, settings) in settings_by_name.items():
            version = METHODS[key].renewed_in(settings) if key in METHODS else 1
            if version > 1:
                renewed_methods[name] = METHODS[key], version
        return renewed_methods

    def check_languages(self, language_count: int) -> None:
        """Check that there are enough languages.

        Raises:
            HeadlabError: There are too few.
        """
        if language_count < self.least_languages:
            raise HeadlabError(
                f"experiment {self.key} compares languages; it needs {self.least_languages} or "
                f"more, given {language_count}",
                code="experiment.languages_too_few",
            )

    def resolve(self, given: Mapping[str, object], likelihood: str = "") -> dict[str, OptionValue]:
        """All options: given ones checked, the rest at their defaults.

        Options of methods are completed too.

        Args:
            given: The given ones by name.
            likelihood: Of the task, which options of methods may have other defaults on.

        Raises:
            HeadlabError: An option is unknown, a value is invalid, or options exclude each other.
        """
        require_known_options(
            self.options, given, f"experiment {self.key} has", code="experiment.option_unknown"
        )
        options: dict[str, OptionValue] = resolve_options(
            self.options, given, f"experiment {self.key}", code="experiment.option_invalid"
        )
        if METHOD in options:
            scoring_method = method_of(text_in(options, METHOD)).for_task(likelihood)
            given_options = options_in(options, METHOD_OPTIONS) if METHOD_OPTIONS in options else {}
            options[METHOD] = scoring_method.key
            options[METHOD_OPTIONS] = scoring_method.recorded(scoring_method.resolve(given_options))
        for name, key in self.options_of.items():
            method_of_option = METHODS[key].for_task(likelihood)
            resolved_options = method_of_option.resolve(options_in(options, name))
            options[name] = method_of_option.recorded(resolved_options)
        for name in self.lists:
            options[name] = self._list(name, text_in(options, name))
        return self.complete(options)

    def _list(self, name: str, text: str) -> str:
        """A comma-separated text with each name once.

        Raises HeadlabError for unknown, missing or too few names.
        """
        names = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
        unknown = [word for word in names if word not in self.lists[name]]
        if unknown or not names:
            raise HeadlabError(
                f"experiment {self.key}: {name} has {', '.join(unknown) or 'none'}; "
                f"name some of {', '.join(self.lists[name])}, comma-separated",
                code="experiment.list_item_unknown",
            )
        if len(names) < self.fewest.get(name, 1):
            raise HeadlabError(
                f"experiment {self.key}: {name} has {', '.join(names)} only; name "
                f"{self.fewest[name]} or more of {', '.join(self.lists[name])}, comma-separated",
                code="experiment.list_too_short",
            )
        return ",".join(names)


WITH_SIGN = Option(
    DEFAULT_METHOD,
    "method whose scores are used; it needs a sign and intervals",
    KeysWhere(METHODS, lambda m: m.signed),
)
ANY_METHOD = Option(DEFAULT_METHOD, "method whose scores are used", KeysWhere(METHODS))
OF_METHOD = Option({}, "the method's own options", kind=dict)
HARMFUL_OR_K = Option(
    None,
    "heads to remove; none removes the harmful ones, those whose interval lies below 0",
    kind=int,
    low=1,
    optional=True,
)
SCORES = tuple(name for name in ORDERINGS if name != RANDOM_METHOD)
RUNS = Option(10, "random choices of heads", kind=int, low=1)
POINTS = Option(25, "counts of removed heads; none for every one", kind=int, low=2, optional=True)
LOSS = Option(1.0, "points of accuracy that may be lost", kind=float, low=0)
HELD_AND_YANG = "Held & Yang, EACL 2023"

BOUND = "bound"
ESTIMATE = "estimate"  # by which a front measures a loss
DEFAULT_WITHIN = (
    1.0  # points that a front may lose, where it is asked neither that nor for a number of heads
)
KEEP = "keep"
CUT = "cut"
VOCABULARY_CHOICES = (KEEP, CUT)
"""What becomes of a model's vocabulary: it stays, or pieces of other languages leave."""
VOCABULARY = "vocabulary"  # the option of a front that says it
PLAYERS = "players"  # the option of a front that says what is switched, where that is not heads
ORDERS: Mapping[str, str] = {
    "mean": "by the mean score over the languages",
    "weakest": "by the best rank in any language, so that what one language needs stays",
    "own": "by each language's own scores, an order a language",
    "cost": "by the mean score per parameter, where these differ",
}


def one_question(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """The options of a front, with `within` at its default where needed.

    It is needed if neither `within` nor `heads` is given. A vocabulary that stays is left out, and
    so are players that are heads: fronts keep the names they had before there was anything else.

    Raises:
        HeadlabError: Both are given, or players are unknown.
    """
    options_with_default = dict(options)
    if options_with_default["within"] is not None and options_with_default["heads"] is not None:
        raise HeadlabError(
            "a front answers one question: give within (points that may be lost) or heads (how "
            "many to keep), not both",
            code="front.two_questions",
        )
    if options_with_default["within"] is None and options_with_default["heads"] is None:
        options_with_default["within"] = DEFAULT_WITHIN
    if options_with_default[VOCABULARY] == KEEP:
        del options_with_default[VOCABULARY]
    players = read_players(text_in(options_with_default, PLAYERS))
    if players.are_heads:
        del options_with_default[PLAYERS]
    else:
        options_with_default[PLAYERS] = str(players)
    return options_with_default


INTERACTIONS = "interactions"
HEADS = "heads"
TOP = "top"
LAYER = "layer"
OF = "of"
"""The option of interactions that leaves the pairs of one head only."""
CHOICES_OF_HEADS = (HEADS, TOP, LAYER)
"""The options of interactions that say whose pairs are asked for; one of them is given."""
DEFAULT_TOP = 20
MOST_HEADS = 64
"""Heads whose pairs a study of interactions takes at most: 2,016 pairs."""


def one_choice_of_heads(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """The options of interactions, with those left out that say nothing.

    Heads stand in the order of their layers. Only those with the largest scores need a method.

    Raises:
        HeadlabError: Heads are chosen in two ways, or are too few or too many, or malformed.
    """
    given = [name for name in CHOICES_OF_HEADS if options.get(name) is not None]
    if len(given) > 1:
        raise HeadlabError(
            f"interactions are of one choice of heads; given {' and '.join(given)}",
            code="interactions.two_choices",
        )
    chosen = dict(options)
    if not given:
        chosen[TOP] = DEFAULT_TOP
    for name in CHOICES_OF_HEADS:
        if chosen.get(name) is None:
            chosen.pop(name, None)
    chosen = _with_one_head(chosen)
    if TOP not in chosen:
        chosen.pop(METHOD, None)
        chosen.pop(METHOD_OPTIONS, None)
    if HEADS in chosen:
        heads = listed_heads(text_in(chosen, HEADS))
        if len(heads) < (1 if OF in chosen else 2) or list(heads) == [chosen.get(OF)]:
            raise HeadlabError(
                f"interactions are of two heads or more, given {heads[0] if heads else 'none'}; name "
                "more, as in 9.3,9.4",
                code="interactions.one_head",
            )
        if len(heads) > MOST_HEADS:
            raise HeadlabError(
                f"interactions are of {MOST_HEADS} heads at most, given {len(heads)}",
                code="interactions.heads_too_many",
            )
        chosen[HEADS] = ",".join(heads)
    return chosen


def _with_one_head(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """The options with the one head in its usual form, or without it where none is named."""
    chosen = dict(options)
    one_head = chosen.pop(OF, None)
    if one_head is None:
        return chosen
    named = listed_heads(str(one_head))
    if len(named) != 1:
        raise HeadlabError(
            f"{OF} names one head, given {str(one_head)[:40]!r}; write layer.head, as in 9.3",
            code="interactions.of_malformed",
        )
    return {**chosen, OF: named[0]}


HEAD_TEXT = re.compile(r"(?:([a-z]+)\.)?(\d{1,6})\.(\d{1,6})")
"""A head as commands name it: its stack, where a model has several, its layer and its number."""


def listed_heads(text: str) -> tuple[str, ...]:
    """The heads of a comma-separated text, each once and in the order of their layers.

    Raises:
        HeadlabError: One of them is malformed.
    """
    heads = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        match = HEAD_TEXT.fullmatch(word)
        if match is None:
            raise HeadlabError(
                f"{word[:40]!r} is no head; write layer.head, both counted from 0, as in "
                "9.3,9.4,10.6",
                code="interactions.head_malformed",
            )
        stack, layer, number = match[1] or "", int(match[2]), int(match[3])
        prefix = f"{stack}." if stack else ""
        heads[stack, layer, number] = f"{prefix}{layer}.{number}"
    return tuple(heads[key] for key in sorted(heads))


BUILT_IN: dict[str, Experiment] = {
    experiment.key: experiment
    for experiment in (
        Experiment(
            "agreement",
            "Agreement between languages",
            "Do two languages agree on which heads help, as far as noise lets them?",
            f"{HELD_AND_YANG}, figures 1 and 2",
            {METHOD: ANY_METHOD, METHOD_OPTIONS: OF_METHOD},
            "agreement",
            least_languages=2,
            result="agreement:AgreementResult",
            figures="agreement",
        ),
        Experiment(
            "targeted",
            "Targeted pruning",
            "Does removing the heads that harm a language on dev raise its accuracy on test?",
            f"{HELD_AND_YANG}, table 2",
            {
                METHOD: WITH_SIGN,
                METHOD_OPTIONS: OF_METHOD,
                "k": HARMFUL_OR_K,
                "runs": RUNS,
                "leave_one_out": Option(
                    True, "also the lowest heads by leave-one-out, the most expensive", kind=bool
                ),
            },
            "targeted",
            always=RIVALS,
            result="targeted:TargetedResult",
            figures="targeted",
        ),
        Experiment(
            "transfer",
            "Transfer of masks",
            "What does a mask that was chosen on one language do to the others?",
            f"{HELD_AND_YANG}, table 3",
            {
                METHOD: WITH_SIGN,
                METHOD_OPTIONS: OF_METHOD,
                "k": HARMFUL_OR_K,
                "source": Option("en", "language whose mask is the zero-shot one"),
            },
            "transfer",
            least_languages=2,
            result="transfer:TransferResult",
            figures="transfer",
        ),
        Experiment(
            "iterative",
            "Iterative pruning",
            "How many heads can go, lowest score first, before accuracy is lost?",
            f"{HELD_AND_YANG}, figure 3; Michel, Levy & Neubig, NeurIPS 2019",
            {
                "orderings": Option(
                    "random,monte-carlo,shapley,gradient,leave-one-out",
                    "what orders the heads, comma-separated; also gradient-token, gradient-batch, "
                    "confidence and relevance",
                ),
                "points": POINTS,
                "runs": RUNS,
                "loss": LOSS,
                "monte_carlo_options": Option({}, "options of the ordering monte-carlo", kind=dict),
                METHOD_OPTIONS: Option({}, "options of the ordering shapley", kind=dict),
            },
            "iterative",
            result="iterative:IterativeResult",
            figures="iterative",
            options_of={"monte_carlo_options": "monte-carlo", METHOD_OPTIONS: "shapley"},
            lists={"orderings": tuple(ORDERINGS)},
        ),
        Experiment(
            "methods",
            "Agreement of the methods",
            "Do the methods agree on which heads matter, and which score is to be trusted for "
            "this model?",
            "Voita et al., ACL 2019, section 4; Michel, Levy & Neubig, NeurIPS 2019",
            {
                "methods": Option(
                    "shapley,gradient,leave-one-out,confidence",
                    "what scores the heads, two or more, comma-separated; also monte-carlo, "
                    "gradient-token, gradient-batch and relevance",
                ),
                "top": Option(20, "highest, and lowest, heads of every method", kind=int, low=1),
                "points": POINTS,
                "runs": Option(10, "random orders", kind=int, low=1),
                "loss": LOSS,
                "monte_carlo_options": Option({}, "options of monte-carlo", kind=dict),
                METHOD_OPTIONS: Option({}, "options of shapley", kind=dict),
            },
            "methods",
            result="methods:MethodsResult",
            figures="methods",
            options_of={"monte_carlo_options": "monte-carlo", METHOD_OPTIONS: "shapley"},
            lists={"methods": SCORES},
            fewest={"methods": 2},
        ),
        Experiment(
            "heads",
            "Heads of all languages and of one",
            "Which heads matter in every language, and which have the opposite sign in some?",
            f"{HELD_AND_YANG}, section 5",
            {
                METHOD: WITH_SIGN,
                METHOD_OPTIONS: OF_METHOD,
                "top": Option(20, "highest heads of every language", kind=int, low=1),
                "few": Option(3, "languages that a head may be positive in", kind=int, low=1),
            },
            "heads",
            least_languages=2,
            result="heads:HeadsResult",
            figures="heads",
        ),
        Experiment(
            "separators",
            "Attention to separators",
            "In how many sentences does every token of a head look mostly at a separator?",
            f"{HELD_AND_YANG}, section 5",
            {
                METHOD: ANY_METHOD,
                METHOD_OPTIONS: OF_METHOD,
                "tokens": Option("separator", "tokens that count", ("separator", "special")),
                "top": Option(20, "highest heads of every language", kind=int, low=1),
            },
            "separators",
            result="separators_result:SeparatorsResult",
            figures="separators",
        ),
        Experiment(
            "gap",
            "Dev against test",
            "How much of a gain on dev is there on test, and which heads stay harmful when all "
            "are tested together?",
            "the winner's curse; Holm 1979; Benjamini & Hochberg 1995",
            {METHOD: WITH_SIGN, METHOD_OPTIONS: OF_METHOD, "k": HARMFUL_OR_K},
            "gap",
            result="gap:GapResult",
            figures="gap",
        ),
        Experiment(
            "front",
            "Front of smaller models",
            "What is the smallest model that is good enough in every language, or the best one "
            "with so many heads?",
            "nested masks; intersection-union and fixed-sequence tests (Berger 1982; Maurer et "
            "al. 1995); Holm 1979",
            {
                METHOD: ANY_METHOD,
                METHOD_OPTIONS: OF_METHOD,
                "orders": Option(
                    "mean,weakest,cost",
                    "orders in which heads are removed, comma-separated; own is each language's",
                ),
                "points": Option(
                    25,
                    "how many numbers of removed heads to measure, 0 and all included",
                    kind=int,
                    low=2,
                    optional=True,
                ),
                "within": Option(
                    None,
                    f"points of accuracy that may be lost in any language ({DEFAULT_WITHIN} if heads is "
                    "not given)",
                    kind=float,
                    low=0,
                    high=100,
                    optional=True,
                ),
                "heads": Option(
                    None,
                    "number of heads to keep, in place of within",
                    kind=int,
                    low=0,
                    optional=True,
                ),
                "by": Option(
                    BOUND,
                    "whether a loss is measured by the lower bound or the estimate",
                    (BOUND, ESTIMATE),
                ),
                VOCABULARY: Option(
                    KEEP,
                    "keep the vocabulary, or count every model with it cut to the languages",
                    VOCABULARY_CHOICES,
                ),
                PLAYERS: Option(
                    HEADS,
                    f"what is removed: {PLAYERS_WORDS}, or several, as heads,neurons:8",
                ),
            },
            "pareto_run",
            version=2,
            versions_of_kinds={LAYERS: 3},  # since then a model without a layer is never chosen
            lists={"orders": tuple(ORDERS)},
            settles="pareto_run",
            result="pareto:FrontResult",
            figures="front",
            job="front",
            complete=one_question,
        ),
        Experiment(
            INTERACTIONS,
            "Interactions of heads",
            "Which heads stand in for each other, and which need each other?",
            "Shapley interaction index, Grabisch & Roubens 1999",
            {
                METHOD: ANY_METHOD,
                METHOD_OPTIONS: OF_METHOD,
                HEADS: Option(
                    None,
                    "heads whose pairs are measured, comma-separated, as 9.3,9.4,10.6",
                    optional=True,
                    label="Heads",
                    tip="Layer and number, both counted from 0: 9.3, 9.4, 10.6",
                ),
                TOP: Option(
                    None,
                    "heads of the largest stored scores, in place of heads "
                    f"({DEFAULT_TOP} if none are named)",
                    kind=int,
                    low=2,
                    high=MOST_HEADS,
                    optional=True,
                    label="Number of heads",
                    tip="Those whose values are furthest from 0, either way.",
                    empty=str(DEFAULT_TOP),
                ),
                LAYER: Option(
                    None,
                    "layer whose heads are taken, in place of heads, as 9",
                    optional=True,
                    label="Layer",
                    tip="Its number, counted from 0.",
                ),
                OF: Option(
                    None,
                    "one head, whose pairs with the others alone are measured",
                    optional=True,
                    label="Only pairs with head",
                    tip="A head, as 10.6. Empty: all pairs of the heads above.",
                ),
                "value": Option(
                    "accuracy",
                    "how an answer is valued",
                    tuple(VALUE_FUNCTIONS),
                    label="Value of an answer",
                    tip="accuracy: whether it is right, which is what removing several heads costs.",
                ),
                "samples": Option(
                    16384,
                    "coalitions that every pair is measured at, at most",
                    kind=int,
                    low=1,
                    label="Samples a pair, at most",
                    tip="A sample is an example with a random set of heads removed.",
                ),
                "target": Option(
                    0.01,
                    "half-width at which a pair is done, in the value's unit, once each example has come equally often",
                    kind=float,
                    low=0,
                    open=True,
                    label="Half-width to reach",
                    tip="Of each pair's interval; 0.01 is a point of accuracy. Wider takes less time.",
                ),
            },
            "interactions_run",
            result="interactions:InteractionsResult",
            figures="interactions",
            job=INTERACTIONS,
            complete=one_choice_of_heads,
            settles="interactions_choice",
        ),
    )
}


TAKEN_NAMES = ("roles",)  # names of reports that are of no study


def _misfit(key: str, entry: object) -> str:
    """Why a package's entry is no study of this key that `headlab experiment` runs.

    Empty if it is one.
    """
    if not isinstance(entry, Experiment):
        return wrong_kind_text(entry, "an Experiment of headlab.studies.table")
    if entry.job != EXPERIMENT:
        return f"its job is {entry.job!r:.60}, and only headlab's own studies have another than {EXPERIMENT!r}"
    return wrong_key_text(entry.key, key)


STUDIES: Registry[Experiment] = Registry(
    BUILT_IN, "headlab.studies", _misfit, reserved_keys=TAKEN_NAMES
)


def studies_of(job: str) -> dict[str, Experiment]:
    """The studies that a kind of job runs, by key.

    Args:
        job: Key of the kind of job.
    """
    return {key: experiment for key, experiment in STUDIES.items() if experiment.job == job}


def offered_experiments() -> dict[str, Experiment]:
    """The studies that `headlab experiment` and the Experiments page offer, by key."""
    return studies_of(EXPERIMENT)


def study(key: str) -> Experiment:
    """A study by its key, whatever runs it. Raises HeadlabError for an unknown one."""
    if key not in STUDIES:
        raise HeadlabError(
            f"unknown experiment {key!r}; choose from {', '.join(offered_experiments())}",
            code="experiment.unknown",
        )
    return STUDIES[key]


def study_run_by(job: str, key: str) -> Experiment:
    """A study that this kind of job runs.

    Args:
        job: Key of the kind of job, which is its command too.
        key: Of the study.

    Raises:
        HeadlabError: The study is unknown, or another kind of job runs it.
    """
    experiment = study(key)
    if experiment.job != job:
        raise HeadlabError(
            f"{key!r} is no experiment; it has a command of its own: headlab {experiment.job}",
            code="experiment.unknown",
        )
    return experiment


def earlier_scores_sentence(spec: Mapping[str, Json]) -> str:
    """Which scores of a stored report are older than their settings, in a sentence.

    It says how these differ.

    Args:
        spec: Of the report. One that another version or package wrote may lack anything.

    Returns:
        The sentence, empty where there are none.
    """
    experiment = STUDIES.get(str(spec.get("experiment")))
    options = spec.get("options")
    if experiment is None or not isinstance(options, Mapping):
        return ""
    recorded_versions = spec.get(METHOD_VERSIONS)
    versions = recorded_versions if isinstance(recorded_versions, Mapping) else {}
    earlier = {
        name: renewed_method
        for name, (renewed_method, version) in experiment.renewed(options).items()
        if versions.get(name, 1) != version
    }
    if not earlier:
        return ""
    differences = "; ".join(
        dict.fromkeys(renewed_method.renewal for renewed_method in earlier.values())
    )
    return f"Made with an earlier version of {', '.join(earlier)}: {differences}."


def method_with_options(
    options: Mapping[str, OptionValue],
) -> tuple[str, Mapping[str, OptionValue]]:
    """The method that a study's resolved options name, and the method's own options."""
    return text_in(options, METHOD), options_in(options, METHOD_OPTIONS)
