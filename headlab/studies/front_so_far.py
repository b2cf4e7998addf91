"""A front while it is measured: its models so far, without intervals and without a choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headlab.core import Bools, Ints
from headlab.results import kept_heads_without
from headlab.studies.pareto import NestedOrder
from headlab.studies.savings import Costs


@dataclass(frozen=True)
class LanguageSoFar:
    """A model in one language, on the dev examples answered so far.

    Attributes:
        language: Its code.
        answers: How many there are so far.
        all_answers: How many there will be.
        accuracy: Share of them that is right.
        difference: From the untouched model on the same examples; a share, 0.01 is one point.
    """

    language: str
    answers: int
    all_answers: int
    accuracy: float
    difference: float

    @property
    def is_measured(self) -> bool:
        """Whether all examples are answered."""
        return self.answers == self.all_answers


@dataclass(frozen=True)
class ModelSoFar:
    """A model of the front, as far as it is measured.

    Attributes:
        order: Key of the order along which its heads left.
        heads_removed: Heads removed.
        heads_kept: Heads left.
        parameters: Parameters left; None where heads cannot be removed from the weights.
        languages: The model in each language that has answers so far.
    """

    order: str
    heads_removed: int
    heads_kept: int
    parameters: int | None
    languages: tuple[LanguageSoFar, ...]

    @property
    def weakest(self) -> LanguageSoFar:
        """The language that loses most so far."""
        return min(self.languages, key=lambda language: language.difference)

    @property
    def mean(self) -> float:
        """Mean difference over the languages so far; a share."""
        return sum(language.difference for language in self.languages) / len(self.languages)

    def is_measured(self, languages: Sequence[str]) -> bool:
        """Whether all examples of all these languages are answered."""
        measured_languages = {part.language for part in self.languages if part.is_measured}
        return measured_languages >= set(languages)


@dataclass(frozen=True)
class FrontSoFar:
    """What a running job has measured of a front.

    Nothing is chosen from it: models that are not there yet may be better.

    Attributes:
        languages: Codes of all languages of the front.
        planned: How many models will be measured in each language.
        models: Those that have answers in one language or more, in the order of their measurement.
    """

    languages: tuple[str, ...]
    planned: int
    models: tuple[ModelSoFar, ...]

    @property
    def measured(self) -> int:
        """How many models are measured in all languages."""
        return sum(model.is_measured(self.languages) for model in self.models)

    def measured_in(self, language: str) -> int:
        """How many models are measured in one language.

        Args:
            language: Its code.
        """
        return sum(model.is_measured([language]) for model in self.models)


@dataclass(frozen=True)
class AnswersAlongOrder:
    """The answers of one language along one order, as far as they are there.

    Attributes:
        correct: Whether each answer is right, bool [point, answer]; the first point removes no
            head.
        answered: How many answers each point has, from the first on, int [point].
    """

    correct: Bools
    answered: Ints


ShowFront = Callable[[FrontSoFar], None]


@dataclass
class GrowingFront:
    """Collects answers while a front is measured, and shows what they say after each model.

    Attributes:
        orders: In which heads are removed.
        languages: Codes of all languages.
        removed_counts: Counts of removed heads.
        head_count: Heads of the model.
        costs: Of the model.
        show: Takes the front so far.
    """

    orders: Sequence[NestedOrder]
    languages: Sequence[str]
    removed_counts: Sequence[int]
    head_count: int
    costs: Costs
    show: ShowFront
    _parts: dict[tuple[str, int], dict[str, LanguageSoFar]] = field(
        init=False, default_factory=dict
    )
    _models: dict[tuple[str, int], ModelSoFar] = field(init=False, default_factory=dict)

    def take(self, order: NestedOrder, language: str, answers: AnswersAlongOrder) -> None:
        """Take the answers of one language along one order, and show the front so far.

        Args:
            order: The order.
            language: Code of the language.
            answers: All that there are so far.
        """
        all_answers = answers.correct.shape[1]
        for index, removed in enumerate(self.removed_counts):
            answered = int(answers.answered[index])
            if not answered:
                continue
            accuracy = float(answers.correct[index, :answered].mean())
            baseline = float(answers.correct[0, :answered].mean())
            part = LanguageSoFar(language, answered, all_answers, accuracy, accuracy - baseline)
            self._parts.setdefault((order.key, removed), {})[language] = part
        self.show(self._front())

    def _front(self) -> FrontSoFar:
        models = []
        for order in self.orders:
            for removed in self.removed_counts:
                if (order.key, removed) in self._parts:
                    models.append(self._model(order, removed))
        planned = len(self.orders) * len(self.removed_counts)
        return FrontSoFar(tuple(self.languages), planned, tuple(models))

    def _model(self, order: NestedOrder, removed: int) -> ModelSoFar:
        parts = self._parts[order.key, removed]
        languages = tuple(parts[language] for language in self.languages if language in parts)
        earlier = self._models.get((order.key, removed))
        if earlier is not None and earlier.languages == languages:
            return earlier
        kept_heads = kept_heads_without(order.order[:removed], self.head_count)
        parameters = None
        if earlier is not None:
            parameters = earlier.parameters
        elif self.costs.are_known:
            parameters = self.costs.shrunk(kept_heads).parameters
        model = ModelSoFar(order.key, removed, int(kept_heads.sum()), parameters, languages)
        self._models[order.key, removed] = model
        return model
