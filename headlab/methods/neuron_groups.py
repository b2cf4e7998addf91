"""Groups of neurons: formed by first-order importance, and a model with any kind of players."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headlab.core import NEURONS, Players, Tick, read_players, run_in_parallel
from headlab.evaluation import Batch, Evaluator
from headlab.hooks import Model, NeuronGroups, groups_by_importance, neurons_of, with_players
from headlab.methods.gradient import gate_gradients
from headlab.tasks import Task

GROUPING_EXAMPLES = 256
"""Examples of dev, at most, on which the importance of neurons is measured."""
GROUPING_LANGUAGE = "en"
"""Their language, where the task has it; else its first. It is the same whatever is scored, so that
players of different languages are the same."""
GROUPING_BATCH = 16
"""Examples of a backward pass."""


def model_with_players(model: Model, task: Task, players: Players | str) -> Model:
    """The same model, of which other things than heads are switched.

    Args:
        model: A model that `headlab.load` returns.
        task: On whose dev examples groups of neurons are formed, where neurons are switched.
        players: What is switched, like "heads,neurons:8".

    Raises:
        HeadlabError: The players are unknown, or the model has none of that kind.
    """
    if isinstance(players, str):
        players = read_players(players)
    groups = None
    if NEURONS in players.kinds:
        groups = player_groups(model, task, players.groups)
    return with_players(model, players, groups)


def grouping_language(task: Task) -> str:
    """The language of the examples that groups of neurons are formed on."""
    languages = task.with_all_languages().languages
    return GROUPING_LANGUAGE if GROUPING_LANGUAGE in languages else languages[0]


def player_groups(model: Model, task: Task, count: int) -> NeuronGroups:
    """The group of every neuron, by layer: the most important neurons of a layer form group 0.

    A neuron's importance is the mean, over examples of dev, of the absolute gradient of an
    example's loss by the neuron's gate (Michel et al. 2019, equation 2, of neurons). Which examples
    these are depends on the task and its seed alone.

    Args:
        model: The model.
        task: The task.
        count: Number of groups of a layer.

    Raises:
        HeadlabError: A layer has fewer neurons than groups, or no feed-forward part was found.
    """
    all_languages = task.with_all_languages()
    language = grouping_language(task)
    examples = all_languages.examples(language, "dev", GROUPING_EXAMPLES)
    neurons = neurons_of(model)
    key = (all_languages.name, all_languages.seed, language, all_languages.data_hash(examples))
    importance = model.variants.importance.get(key)
    if importance is None:
        groups_by_importance([(0.0,) * size for size in neurons], count)  # raises early
        importance = _importance(model, neurons, all_languages, language)
        model.variants.importance[key] = importance
    return groups_by_importance(importance, count)


def _importance(
    model: Model, neurons: tuple[int, ...], task: Task, language: str
) -> list[npt.NDArray[np.float64]]:
    """Importance of every neuron, by layer."""
    single_neurons = tuple(tuple(range(size)) for size in neurons)
    model_of_neurons = with_players(model, Players((NEURONS,)), single_neurons)
    evaluator = Evaluator(model_of_neurons, task, language, "dev", GROUPING_EXAMPLES)
    batches = evaluator.batches(np.arange(len(evaluator.examples)), GROUPING_BATCH)

    def batch_sums(batch: Batch, tick: Tick) -> npt.NDArray[np.float64]:
        tick()
        gradient = gate_gradients(evaluator, batch)
        sums: npt.NDArray[np.float64] = gradient.abs().sum(dim=0).cpu().numpy()
        return sums

    sums = np.zeros((model_of_neurons.grid.layers, model_of_neurons.grid.width))
    for _, sums_of_batch in run_in_parallel(batches, batch_sums, model=model, tick=evaluator.tick):
        sums += sums_of_batch
    return [row[:size] / len(evaluator.examples) for row, size in zip(sums, neurons, strict=True)]
