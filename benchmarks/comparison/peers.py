"""Captum, SHAP and shapiq around headlab's game: all have the same model, examples and batches.

`ModelGame.values` computes any rows of (coalition, example): full forward passes in batches sorted by
length, padded to the longest of the batch. So no peer is slowed down by padding or by batches of one.

There are two wrappings. "one example": each order (or, for a regression, each coalition) is played on
one dev example, drawn in balanced cycles, and the estimates are averaged; the mean of the examples'
Shapley values is the Shapley value of the mean. "whole dev set": a coalition's value is the accuracy
on all examples, as when the library is given the accuracy as its function.
"""

from __future__ import annotations

import importlib.util
import subprocess
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from comparison import shapiq_process
from comparison.estimates import Estimate, examples_of, mean_values, running_mean
from comparison.shapiq_process import NAMES, OF_EQUAL_RUNS, receive, send
from headlab.core import Bools, Floats, HeadlabError
from headlab.methods.game import Game

ONE_EXAMPLE = "one example"
WHOLE_SET = "whole dev set"
EXAMPLES_OF_ENDS = 32
PACKAGES = ("captum", "shap", "shapiq", "matplotlib")
Start = Callable[[Game, int], Iterator[Estimate]]
Values = Callable[[Bools], Floats]


def require() -> None:
    """Raise a HeadlabError that names the packages which are not installed."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise HeadlabError(
            f"the comparison needs {', '.join(missing)}, not installed here; "
            "run: pip install -r requirements-bench.txt",
            code="package.missing",
        )


@dataclass(frozen=True)
class Peer:
    """One estimator in one wrapping.

    Attributes:
        name: Of the library and its method.
        wrapping: `ONE_EXAMPLE` or `WHOLE_SET`.
        settings: Of the method, in words.
        start: Gives its estimates, of a game and a seed.
        first: Coalitions that it evaluates before its first estimate, of the number of players.
    """

    name: str
    wrapping: str
    settings: str
    start: Start
    first: Callable[[int], int]

    @property
    def title(self) -> str:
        """Name and wrapping."""
        return f"{self.name} ({self.wrapping})"


def values_on_example(game: Game, example: int) -> Values:
    """Value of coalitions on one example: bool [coalition, player] -> float [coalition]."""
    return lambda coalitions: game.values(coalitions, np.full(len(coalitions), example))


def captum_order(values: Values, players: int) -> Floats:
    """One random order, from no head to all; random numbers are torch's."""
    from captum.attr import ShapleyValueSampling

    def forward(present: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(values(present.numpy() > 0.5))

    sampling = ShapleyValueSampling(forward)
    attributions = sampling.attribute(
        torch.ones(1, players), n_samples=1, perturbations_per_eval=players
    )
    return np.asarray(attributions[0].numpy(), dtype=np.float64)


def captum_one(game: Game, seed: int) -> Iterator[Estimate]:
    """ShapleyValueSampling, an order for each example."""
    torch.manual_seed(seed)
    return running_mean(
        captum_order(values_on_example(game, example), game.players)
        for example in examples_of(game, seed)
    )


def captum_whole(game: Game, seed: int) -> Iterator[Estimate]:
    """ShapleyValueSampling, orders walked with all examples."""
    torch.manual_seed(seed)
    return running_mean(
        captum_order(lambda coalitions: mean_values(game, coalitions), game.players)
        for _ in iter(int, 1)
    )


def shap_pair(values: Values, players: int) -> Callable[[], Floats]:
    """A function that gives one order and the same order backwards; random numbers are NumPy's."""
    import shap

    def mask(present: Bools, row: Floats) -> tuple[Floats]:
        return ((present * row)[None],)

    mask.shape = (1, players)  # type: ignore[attr-defined] # how shap asks a masker for its size
    max_evaluations = 2 * players + 1
    explainer = shap.explainers.Permutation(lambda rows: values(rows > 0.5), mask)

    def pair() -> Floats:
        explanation = explainer(
            np.ones((1, players)),
            max_evals=max_evaluations,
            batch_size=max_evaluations,
            silent=True,
        )
        return np.asarray(explanation.values[0], dtype=np.float64)

    return pair


def shap_one(game: Game, seed: int) -> Iterator[Estimate]:
    """The permutation explainer, an order and its reverse for each example."""
    current = {"example": 0}
    pair = shap_pair(
        lambda coalitions: values_on_example(game, current["example"])(coalitions), game.players
    )

    def samples() -> Iterator[Floats]:
        for current["example"] in examples_of(game, seed):
            yield pair()

    np.random.seed(seed)
    return running_mean(samples())


def shap_whole(game: Game, seed: int) -> Iterator[Estimate]:
    """The permutation explainer, orders and their reverses walked with all examples."""
    pair = shap_pair(lambda coalitions: mean_values(game, coalitions), game.players)
    np.random.seed(seed)
    return running_mean(pair() for _ in iter(int, 1))


def single_player_values(interaction_values: Any, players: int) -> Floats:
    """Values of single players from shapiq's result."""
    return np.array([interaction_values[(player,)] for player in range(players)])


def shapiq_order(values: Values, players: int, sampler: Any) -> Floats:
    """One random order."""
    interaction_values = sampler.approximate(
        players + 1, lambda coalitions: values(np.atleast_2d(coalitions)), batch_size=1
    )
    return single_player_values(interaction_values, players)


def shapiq_permutation_one(game: Game, seed: int) -> Iterator[Estimate]:
    """PermutationSamplingSV, an order for each example."""
    from shapiq.approximator import PermutationSamplingSV

    sampler = PermutationSamplingSV(game.players, random_state=seed)
    return running_mean(
        shapiq_order(values_on_example(game, e), game.players, sampler)
        for e in examples_of(game, seed)
    )


def regression_size(players: int) -> int:
    """Coalitions of one regression: the most with which shapiq still samples all of them.

    With more of them it would list every coalition of a single head once and for all; each of those
    would be on one example, and its error would never fall.
    """
    share = players / (players - 1) / (2 * (1 / np.arange(1, players)).sum())
    return int(0.9 * players / share)


def values_on_fresh_examples(game: Game, seed: int) -> Values:
    """Values of coalitions, each on the next example.

    The values of all heads and of none, which regressions take as exact, are means over
    `EXAMPLES_OF_ENDS` examples.
    """
    examples = examples_of(game, seed)

    def values(coalitions: Bools) -> Floats:
        sizes = coalitions.sum(axis=1)
        times = np.where((sizes == 0) | (sizes == game.players), EXAMPLES_OF_ENDS, 1)
        rows = np.repeat(np.arange(len(coalitions)), times)
        example_values = game.values(coalitions[rows], np.array([next(examples) for _ in rows]))
        return np.asarray(np.bincount(rows, example_values) / times)

    return values


def shapiq_kernel_one(game: Game, seed: int) -> Iterator[Estimate]:
    """KernelSHAP with paired sampling, an example a coalition; the mean of many regressions."""
    from shapiq.approximator import KernelSHAP

    values = values_on_fresh_examples(game, seed)
    sampler = KernelSHAP(game.players, pairing_trick=True, random_state=seed)
    budget = regression_size(game.players)
    return running_mean(
        single_player_values(sampler.approximate(budget, values), game.players)
        for _ in iter(int, 1)
    )


def shapiq_kernel_whole(game: Game, seed: int) -> Iterator[Estimate]:
    """KernelSHAP with paired sampling on the accuracy of all examples: ever larger regressions."""
    from shapiq.approximator import KernelSHAP

    budget = 2 * (game.players + 1)
    while True:
        sampler = KernelSHAP(game.players, pairing_trick=True, random_state=seed)
        with warnings.catch_warnings():
            # that small games are nearly listed in full
            warnings.simplefilter("ignore", UserWarning)
            interaction_values = sampler.approximate(
                budget, lambda coalitions: mean_values(game, coalitions)
            )
        yield Estimate(single_player_values(interaction_values, game.players))
        budget *= 2


def newer(python: Path | None) -> tuple[Peer, ...]:
    """Shapiq's newest approximators, run by an interpreter that has them; none without one."""
    if python is None:
        return ()
    larger_runs = "defaults, ever larger runs, weighted by their coalitions"
    equal_runs = "pairing_trick, max_terms=coalitions / 2, mean of regressions"
    return tuple(
        Peer(
            f"shapiq {name}",
            ONE_EXAMPLE,
            equal_runs if name in OF_EQUAL_RUNS else larger_runs,
            partial(_estimates_of_ready_process, python, name),
            regression_size,
        )
        for name in NAMES
    )


def _estimates_of_ready_process(
    python: Path, name: str, game: Game, seed: int
) -> Iterator[Estimate]:
    """Estimates by a process, which has imported what it needs before this returns."""
    estimates = _estimates_by_process(python, name, game, seed)
    next(estimates)
    return estimates


def _estimates_by_process(python: Path, name: str, game: Game, seed: int) -> Iterator[Estimate]:
    """An estimate of zeros as soon as the process is ready, then those that the process sends."""
    values = values_on_fresh_examples(game, seed)
    size = regression_size(game.players)
    numbers = [str(number) for number in (game.players, seed, size)]
    command = [str(python), shapiq_process.__file__, name, *numbers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        total = np.zeros(game.players)
        weight = 0
        rows = 0
        try:
            _next_array(process, name)
            yield Estimate(total)
            while True:
                array = _next_array(process, name)
                if array.dtype == bool:
                    rows += len(array)
                    send(process.stdin, values(array))
                    continue
                total = total + rows * array
                weight = weight + rows
                rows = 0
                yield Estimate(total / weight)
        finally:
            process.kill()


def _next_array(process: subprocess.Popen[bytes], name: str) -> Floats:
    assert process.stdout is not None
    array = receive(process.stdout)
    if array is None:
        raise HeadlabError(
            f"the process of shapiq's {name} ended (its message is above); "
            "it needs Python 3.12 or newer with requirements-bench-shapiq.txt installed",
            code="benchmark.process_ended",
        )
    return array


PEERS = (
    Peer(
        "captum ShapleyValueSampling",
        ONE_EXAMPLE,
        "n_samples=1, perturbations_per_eval=heads",
        captum_one,
        lambda n: n + 1,
    ),
    Peer(
        "shap Permutation",
        ONE_EXAMPLE,
        "max_evals=2 heads + 1, batch_size=max_evals",
        shap_one,
        lambda n: 2 * n + 1,
    ),
    Peer(
        "shapiq PermutationSamplingSV",
        ONE_EXAMPLE,
        "budget=heads + 1",
        shapiq_permutation_one,
        lambda n: n + 1,
    ),
    Peer(
        "shapiq KernelSHAP",
        ONE_EXAMPLE,
        "pairing_trick, mean of regressions",
        shapiq_kernel_one,
        regression_size,
    ),
    Peer(
        "captum ShapleyValueSampling",
        WHOLE_SET,
        "n_samples=1, perturbations_per_eval=heads",
        captum_whole,
        lambda n: n + 1,
    ),
    Peer(
        "shapiq KernelSHAP",
        WHOLE_SET,
        "pairing_trick, budget=2 heads + 2",
        shapiq_kernel_whole,
        lambda n: 2 * n + 2,
    ),
    Peer(
        "shap Permutation",
        WHOLE_SET,
        "max_evals=2 heads + 1, batch_size=max_evals",
        shap_whole,
        lambda n: 2 * n + 1,
    ),
)
