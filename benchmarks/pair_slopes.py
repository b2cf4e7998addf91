"""Whether slopes alone say which of all pairs of heads interact, as they say what heads are worth.

    python benchmarks/pair_slopes.py                   e5-small-intents, German: ten minutes
    python benchmarks/pair_slopes.py --draws 4096 --reference-draws 0    a minute
    python benchmarks/pair_slopes.py --copy 11.8,11.9  with a copy of one head in another's place
    python benchmarks/pair_slopes.py --smoke           few draws

Figures are printed. `pairs_by_presence` estimates the interaction of every pair from the slopes of
`smoothed`, which cost one forward and backward pass a draw (docs/statistics.md, interactions of all
pairs by slopes). Draws have numbers of their own. Estimates of the first and the second half of the
draws are independent, so the mean product of the two is the square of what is more than noise.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, NamedTuple

import numpy as np
import torch

import headlab
from headlab.core import Bools, Floats, Ints, value_function_of
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.methods.interactions import estimate, pair_plan, started_tally
from headlab.methods.joined import CYCLES_BEFORE_SLOPES
from headlab.methods.pair_game import ModelPairGame, all_pairs
from headlab.methods.smoothed import DrawStream, SlopePlan, SlopeTally, measured_first
from headlab.methods.table import SLOPE_BANDWIDTH

LARGEST = 40
"""Pairs that a picture would show."""
REFERENCE_HEADS = 12
"""Heads of the largest mean slopes, whose pairs are measured by interactions too."""
DRAWS_AT_ONCE = 512
WORTH_EXAMPLES = 64


class PairEstimates(NamedTuple):
    """Estimates of the interactions of all pairs.

    Attributes:
        means: float [player, player], symmetric; the diagonal says nothing.
        variances: Of the means, by the draws, float [player, player].
    """

    means: Floats
    variances: Floats


def pairs_by_presence(kept: Bools, gains: Floats) -> PairEstimates:
    """Interactions of all pairs from what each player gains at random coalitions.

    The gain of one player where the other is present, less that where it is absent, weighted so
    that the coalitions of the others have the weights of the Shapley interaction index. The two
    players take both parts in turn.

    Args:
        kept: The players that are present, drawn as for coalitions of all sizes, bool [draw,
            player].
        gains: Each player's gain at the coalition of the others that are present, or a guess at
            it, float [draw, player].
    """
    draws, players = kept.shape
    present = kept.astype(np.float64)
    absent = 1 - present
    others_present = present.sum(axis=1, keepdims=True) - present
    others_absent = players - 1 - others_present
    if_present = players * gains / np.maximum(others_present, 1)
    if_absent = -players * gains / np.maximum(others_absent, 1)
    # One player's sample by another is `if_present` where the other is there, else `if_absent`.
    by_other = if_present.T @ present + if_absent.T @ absent
    squares = (if_present**2).T @ present + (if_absent**2).T @ absent
    # The product of the two samples of a pair, by which of the two are there.
    only_other = (absent * if_present).T @ (present * if_absent)
    products = (
        (present * if_present).T @ (present * if_present)
        + (absent * if_absent).T @ (absent * if_absent)
        + only_other
        + only_other.T
    )
    means = (by_other + by_other.T) / (2 * draws)
    mean_squares = (squares + squares.T + 2 * products) / (4 * draws)
    variances = np.maximum(mean_squares - means**2, 0.0) / max(draws - 1, 1)
    return PairEstimates(means, variances)


def drawn_slopes(game: ModelPairGame, draws: int, seed: int) -> tuple[Bools, Floats]:
    """Coalitions and slopes of so many draws, each [draw, player]."""
    stream = DrawStream(seed, CYCLES_BEFORE_SLOPES * game.examples)
    plan = SlopePlan(draws, game.span, "shapley", 0.95)
    empty = SlopeTally.start(game.players, plan)
    first = measured_first(game, empty, stream, SLOPE_BANDWIDTH, min(WORTH_EXAMPLES, game.examples))
    kept = []
    slopes = []
    for start in range(0, draws, DRAWS_AT_ONCE):
        numbers = range(start, min(start + DRAWS_AT_ONCE, draws))
        drawn = stream.draws(game, numbers, "shapley")
        kept.append(drawn.kept)
        slopes.append(game.slopes(drawn.kept, drawn.examples, np.array(first.bandwidth)))
    return np.concatenate(kept), np.concatenate(slopes)


def plant_copy(model: Model, layer: int, head: int, copy: int) -> None:
    """Make one head of a BERT a copy of another of its layer."""
    attention = model.module.get_submodule(f"bert.encoder.layer.{layer}.attention")
    width = attention.self.attention_head_size
    rows = slice(head * width, (head + 1) * width)
    rows_of_copy = slice(copy * width, (copy + 1) * width)
    with torch.no_grad():
        for part in (attention.self.query, attention.self.key, attention.self.value):
            part.weight[rows_of_copy] = part.weight[rows]
            part.bias[rows_of_copy] = part.bias[rows]
        output = attention.output.dense.weight
        output[:, rows_of_copy] = output[:, rows]


def shrunk_means(estimates: PairEstimates, slopes: Floats) -> Floats:
    """The means, each shrunk to 0 by as much as its error says it is noise, [player, player].

    Interactions of heads with large slopes are taken to be larger: the variance of a pair's before
    it is seen is proportional to the product of the root mean squares of the two heads' slopes.
    """
    upper = np.triu_indices(len(estimates.means), 1)
    sizes = np.sqrt((slopes**2).mean(axis=0))
    shape = np.outer(sizes, sizes)
    more_than_noise = estimates.means[upper] ** 2 - estimates.variances[upper]
    scale = (more_than_noise * shape[upper]).sum() / (shape[upper] ** 2).sum()
    prior_variances = max(float(scale), 0.0) * shape
    return np.asarray(
        estimates.means
        * prior_variances
        / np.maximum(prior_variances + estimates.variances, 1e-300)
    )


def figures_of_noise(kept: Bools, slopes: Floats) -> dict[str, Any]:
    """What the estimates of so many draws hold besides noise, in points.

    The largest pairs of a half of the draws, by each ranking, are looked at in the other half.
    """
    draws, players = kept.shape
    upper = np.triu_indices(players, 1)
    means, variances = (array[upper] for array in pairs_by_presence(kept, slopes))
    halves = (slice(0, draws // 2), slice(draws // 2, draws))
    first, second = (pairs_by_presence(kept[half], slopes[half]) for half in halves)
    first_means, first_variances = first.means[upper], first.variances[upper]
    shrunk = shrunk_means(first, slopes[halves[0]])[upper]
    rankings = {
        "size": (first_means, first_means),
        "errors": (first_means / np.sqrt(first_variances), first_means),
        "shrunk": (shrunk, shrunk),
    }
    found_again = {}
    for name, (ranks, said) in rankings.items():
        largest = np.argsort(-np.abs(ranks), kind="stable")[:LARGEST]
        again = np.sign(first_means[largest]) * second.means[upper][largest]
        found_again[name] = {
            "said_by_half": 100 * float(np.abs(said[largest]).mean()),
            "by_other_half": 100 * float(again.mean()),
            "error": 100 * float(np.sqrt(second.variances[upper][largest].sum())) / LARGEST,
            "same_sign": float((again > 0).mean()),
        }
    deviations = np.abs(means) / np.sqrt(variances)
    return {
        "draws": draws,
        "root_mean_square": 100 * float(np.sqrt((means**2).mean())),
        "standard_error": 100 * float(np.sqrt(variances.mean())),
        "correlation_of_halves": float(np.corrcoef(first_means, second.means[upper])[0, 1]),
        "mean_product_of_halves": 1e4 * float((first_means * second.means[upper]).mean()),
        "share_beyond_2_errors": float((deviations > 2).mean()),
        "share_beyond_3_errors": float((deviations > 3).mean()),
        f"largest_{LARGEST}": found_again,
    }


def figures_against(
    game: ModelPairGame, pairs: Ints, kept: Bools, slopes: Floats, draws: int, seed: int
) -> dict[str, Any]:
    """The estimates beside interactions that are measured, over some pairs, in points."""
    reference = ModelPairGame(game.evaluator, game.ablation, game.value, pairs=pairs)
    plan = pair_plan(game.span, draws)
    *_, tally = estimate(reference, started_tally(reference, plan, 0), seed=seed)
    counts = tally.counts
    measured = 2 * tally.mean(counts)
    mean_squares = 4 * (tally.support**2 @ counts) / counts.sum(axis=0)
    measured_variances = (mean_squares - measured**2) / counts.sum(axis=0)
    first, second = pairs.T
    guesses, variances = (array[first, second] for array in pairs_by_presence(kept, slopes))
    signal = float((guesses**2).mean() - variances.mean())
    return {
        "draws": draws,
        "pairs": len(pairs),
        "measured": 100 * float(np.sqrt((measured**2).mean())),
        "error_of_measured": 100 * float(np.sqrt(measured_variances.mean())),
        "guessed": 100 * float(np.sqrt((guesses**2).mean())),
        "error_of_guessed": 100 * float(np.sqrt(variances.mean())),
        "correlation": float(np.corrcoef(measured, guesses)[0, 1]) if len(pairs) > 2 else None,
        "slope": float((measured * guesses).mean()) / signal if signal > 0 else None,
        "largest": [
            {
                "pair": [str(game.evaluator.model.grid.heads[player]) for player in pairs[index]],
                "measured": 100 * float(measured[index]),
                "error_of_measured": 100 * float(np.sqrt(measured_variances[index])),
                "guessed": 100 * float(guesses[index]),
                "error_of_guessed": 100 * float(np.sqrt(variances[index])),
            }
            for index in np.argsort(-np.abs(guesses), kind="stable")[:6]
        ],
    }


def place_of_pair(kept: Bools, slopes: Floats, pair: Ints) -> dict[str, Any]:
    """A pair's estimate in points, and its place among all: by size, and in standard errors."""
    upper = np.triu_indices(kept.shape[1], 1)
    means, variances = pairs_by_presence(kept, slopes)
    deviations = np.abs(means) / np.sqrt(np.maximum(variances, 1e-300))
    first, second = pair
    return {
        "draws": len(kept),
        "guessed": 100 * float(means[first, second]),
        "error": 100 * float(np.sqrt(variances[first, second])),
        "place_by_size": 1 + int((np.abs(means[upper]) > abs(means[first, second])).sum()),
        "place_by_errors": 1 + int((deviations[upper] > deviations[first, second]).sum()),
    }


def figures_of(args: argparse.Namespace) -> dict[str, Any]:
    """All figures of one model and language."""
    model = headlab.load("e5-small-intents")
    pairs = None
    if args.copy:
        (layer, head), (_, copy) = (map(int, text.split(".")) for text in args.copy.split(","))
        plant_copy(model, layer, head, copy)
        first_of_layer = layer * model.grid.width
        pairs = np.array([sorted((first_of_layer + head, first_of_layer + copy))])
    evaluator = Evaluator(
        model, headlab.task("intents", [args.language]), args.language, "dev", 512
    )
    game = ModelPairGame(evaluator, value=value_function_of("accuracy"))
    started = time.process_time()
    kept, slopes = drawn_slopes(game, args.draws, args.seed)
    figures: dict[str, Any] = {"seconds_of_slopes": time.process_time() - started, "noise": []}
    looks = [draws for draws in (1024, 4096, 16384) if draws <= args.draws] or [args.draws]
    for draws in looks:
        figures["noise"].append(figures_of_noise(kept[:draws], slopes[:draws]))
    if pairs is not None:
        figures["copy"] = [place_of_pair(kept[:draws], slopes[:draws], pairs[0]) for draws in looks]
    else:
        by_size = np.argsort(-np.abs(slopes.mean(axis=0)), kind="stable")
        pairs = all_pairs(np.sort(by_size[:REFERENCE_HEADS]))
    if args.reference_draws:
        started = time.process_time()
        figures["measured"] = figures_against(
            game, pairs, kept, slopes, args.reference_draws, args.seed
        )
        figures["seconds_of_measured"] = time.process_time() - started
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--language", default="de")
    parser.add_argument("--draws", type=int, default=16384)
    parser.add_argument("--reference-draws", type=int, default=3072)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--copy", help="a head and the one that becomes its copy, as 11.8,11.9")
    parser.add_argument("--smoke", action="store_true", help="few draws")
    args = parser.parse_args()
    if args.smoke:
        args.draws, args.reference_draws = 64, 8
    torch.set_num_threads(1)
    print(json.dumps(figures_of(args), indent=1))


if __name__ == "__main__":
    main()
