"""Groups of neurons: formed by first-order importance, and a model with any kind of players."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headlab.core import (
    NEURONS,
    Json,
    Players,
    Tick,
    content_key,
    read_players,
    run_in_parallel,
)
from headlab.evaluation import Batch, Evaluator, classes_for_spec
from headlab.hooks import Model, NeuronGroups, groups_by_importance, neurons_of, with_players
from headlab.methods.gradient import gate_gradients
from headlab.results import Store
from headlab.tasks import Task

GROUPING_EXAMPLES = 256
"""Examples of dev, at most, on which the importance of neurons is measured."""
GROUPING_LANGUAGE = "en"
"""Their language, where the task has it; else its first. It is the same whatever is scored, so that
players of different languages are the same."""
GROUPING_BATCH = 16
"""Examples of a backward pass."""


def model_with_players(
    model: Model,
    task: Task,
    players: Players | str,
    *,
    store: Store | None = None,
    tick: Tick | None = None,
) -> Model:
    """The same model, of which other things than heads are switched.

    Args:
        model: A model that `headlab.load` returns.
        task: On whose dev examples groups of neurons are formed, where neurons are switched.
        players: What is switched, like "heads,neurons:8".
        store: Where the importance of neurons is looked up and kept; None to measure it here.
        tick: Called between batches while it is measured; may raise to stop.

    Raises:
        HeadlabError: The players are unknown, or the model has none of that kind.
    """
    if isinstance(players, str):
        players = read_players(players)
    groups = None
    if NEURONS in players.kinds:
        groups = player_groups(model, task, players.groups, store=store, tick=tick)
    return with_players(model, players, groups)


def grouping_language(task: Task) -> str:
    """The language of the examples that groups of neurons are formed on."""
    languages = task.with_all_languages().languages
    return GROUPING_LANGUAGE if GROUPING_LANGUAGE in languages else languages[0]


def players_to_time(model: Model, players: Players | str) -> Model:
    """The same model with as many players, to time its passes: neurons are grouped as they stand.

    Args:
        model: A model that `headlab.load` returns.
        players: What is switched, like "heads,neurons:8".

    Raises:
        HeadlabError: The players are unknown, or the model has none of that kind.
    """
    if isinstance(players, str):
        players = read_players(players)
    groups = None
    if NEURONS in players.kinds:
        falling = [-np.arange(size, dtype=np.float64) for size in neurons_of(model)]
        groups = groups_by_importance(falling, players.groups)
    return with_players(model, players, groups)


def player_groups(
    model: Model,
    task: Task,
    count: int,
    *,
    store: Store | None = None,
    tick: Tick | None = None,
) -> NeuronGroups:
    """The group of every neuron, by layer: the most important neurons of a layer form group 0.

    A neuron's importance is the mean, over examples of dev, of the absolute gradient of an
    example's loss by the neuron's gate (Michel et al. 2019, equation 2, of neurons). Which examples
    these are depends on the task and its seed alone.

    Args:
        model: The model.
        task: The task.
        count: Number of groups of a layer.
        store: As of `model_with_players`.
        tick: As of `model_with_players`.

    Raises:
        HeadlabError: A layer has fewer neurons than groups, or no feed-forward part was found.
    """
    all_languages = task.with_all_languages()
    language = grouping_language(task)
    neurons = neurons_of(model)
    groups_by_importance([(0.0,) * size for size in neurons], count)  # raises early
    spec = _importance_spec(model, all_languages, language)
    key = content_key(spec)
    importance = model.variants.importance.get(key)
    if importance is None and store is not None:
        importance = store.importance(spec, neurons)
    if importance is None:
        importance = measured_importance(model, neurons, all_languages, language, tick)
        if store is not None:
            store.keep_importance(spec, importance)
    model.variants.importance[key] = importance
    return groups_by_importance(importance, count)


def _importance_spec(model: Model, task: Task, language: str) -> dict[str, Json]:
    """All that the importance of neurons depends on."""
    examples = task.examples(language, "dev", GROUPING_EXAMPLES)
    return {
        "model": {"fingerprint": model.fingerprint, "dtype": model.dtype},
        "task": {
            "name": task.name,
            "seed": task.seed,
            "language": language,
            "size": len(examples),
            "data_hash": task.data_hash(examples),
            **classes_for_spec(model, task),
        },
    }


def measured_importance(
    model: Model, neurons: tuple[int, ...], task: Task, language: str, tick: Tick | None
) -> list[npt.NDArray[np.float64]]:
    """Importance of every neuron, by layer."""
    single_neurons = tuple(tuple(range(size)) for size in neurons)
    model_of_neurons = with_players(model, Players((NEURONS,)), single_neurons)
    evaluator = Evaluator(model_of_neurons, task, language, "dev", GROUPING_EXAMPLES)
    evaluator.tick = tick or evaluator.tick
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
