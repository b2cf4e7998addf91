"""Intervals that hold on average over many heads, around estimates that lean on a guess.

An estimate that lies between a mean of samples and a guess is biased by an unknown amount, which
differs from head to head. What all heads' samples say together is how large the biases are on
average. An interval of Armstrong, Kolesár & Plagborg-Møller 2022 ("Robust empirical Bayes confidence
intervals", Econometrica 90) is long enough that 95 % of the heads' true values lie in theirs,
however the biases of that average size are distributed. It says nothing about one head.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import scipy

from headlab.core import Bools, Floats

SMALLEST_SQUARE = 1e-4
LARGEST_SQUARE = 1e4
SQUARES_SOLVED = 81
"""Mean squares of the biases, in variances of the noise, for which the reach is solved, at equal
ratios."""
LARGEST_RATIO = 20.0
"""Of a bias to the root of the mean square, as far as is searched; larger ones are too rare."""
RATIOS_SEARCHED = 241
CHANCE_ABOVE = 0.05
"""That the biases' mean square is above the end that is used, given that it is not below 0."""


def chance_to_miss(reach: float, mean_square: float) -> float:
    """Largest chance that an interval misses, over all distributions of the bias.

    It is attained where the bias is 0 or of one size, as only its mean square is given.

    Args:
        reach: Half-width of the interval, in standard deviations of the noise.
        mean_square: Of the bias, in variances of the noise.
    """
    biases = np.sqrt(mean_square) * np.geomspace(1.0, LARGEST_RATIO, RATIOS_SEARCHED)
    shares = mean_square / biases**2
    misses = scipy.stats.norm.sf(reach - biases) + scipy.stats.norm.cdf(-reach - biases)
    without_bias = 2 * scipy.stats.norm.sf(reach)
    return float((shares * misses + (1 - shares) * without_bias).max())


def _squares_solved() -> Floats:
    """Mean squares of the biases for which the reach is solved, ascending."""
    return np.geomspace(SMALLEST_SQUARE, LARGEST_SQUARE, SQUARES_SOLVED)


@cache
def _reaches(level: float) -> Floats:
    """The shortest reach that misses no more often than it may, at each mean square solved."""
    reaches = []
    for mean_square in _squares_solved():
        longest = float(np.sqrt((1 + mean_square) / (1 - level))) + 1  # by Chebyshev's inequality
        reaches.append(
            scipy.optimize.brentq(
                lambda reach, square: chance_to_miss(reach, square) - (1 - level),
                0.0,
                longest,
                args=(float(mean_square),),
            )
        )
    return np.array(reaches)


def reach_of(mean_squares: Floats, level: float) -> Floats:
    """Half-width in standard deviations of the noise that holds on average over the heads.

    Args:
        mean_squares: Mean square of the bias, in variances of the noise, float [head].
        level: Share of the heads whose true value lies within it.
    """
    reaches = _reaches(level)
    log_squares = np.log(np.clip(mean_squares, SMALLEST_SQUARE, LARGEST_SQUARE))
    inside = np.interp(log_squares, np.log(_squares_solved()), reaches)
    beyond = reaches[-1] * np.sqrt(np.maximum(mean_squares / LARGEST_SQUARE, 1.0))
    return np.asarray(np.where(mean_squares > LARGEST_SQUARE, beyond, inside))


def upper_end(estimate: float, standard_error: float) -> float:
    """The end below which a mean square lies with a chance of 95 %, as it is not below 0.

    An estimate may be: noise is taken off in it, and the variances of samples are rather too large
    than too small.

    Args:
        estimate: Of the mean square, normal around it.
        standard_error: Of the estimate.
    """
    if not standard_error:
        return max(estimate, 0.0)
    distance = max(estimate / standard_error, -30.0)  # where its tail is still a number
    log_chance = np.log(CHANCE_ABOVE) + scipy.stats.norm.logsf(-distance)
    return float(standard_error * (distance + scipy.stats.norm.isf(np.exp(log_chance))))


def average_half_widths(
    values: Floats,
    means: Floats,
    variances: Floats,
    guess_shares: Floats,
    guess_variances: Floats,
    squares: Floats,
    level: float,
) -> Floats:
    """Half-width of each head's interval around its value, [head]; infinite without samples.

    The interval is one around an estimate that trusts the guess no more than the samples of all
    heads allow, and is then made as long as it takes to be centred on the value.

    Args:
        values: The estimates: `guess_shares` of a guess and the rest of a mean, float [head].
        means: Mean of each head's samples, float [head].
        variances: Variance of these means, float [head]; infinite for a head without samples.
        guess_shares: Weight of the guess in each value, from 0 to 1, float [head].
        guess_variances: Variance of the guesses by their own sampling, float [head].
        squares: Expected square of a sample of each head, float [head]; only ratios count.
        level: Share of the heads whose true value lies in their interval.
    """
    has_samples = np.isfinite(variances)
    if not has_samples.any():
        return np.full(len(values), np.inf)
    noise = np.where(has_samples, variances, 0.0)
    relative_squares = squares / max(float(squares.mean()), 1e-300)
    offset_squares = relative_squares * _scale_of_offsets(
        values - means, noise, guess_shares, relative_squares, has_samples
    )
    best_shares = noise / np.maximum(noise + offset_squares, 1e-300)
    trusted_shares = np.minimum(guess_shares, best_shares)
    parts_trusted = trusted_shares / np.where(guess_shares > 0, guess_shares, 1.0)
    distances = np.abs((1 - parts_trusted) * (values - means))
    own_variances = (1 - trusted_shares) ** 2 * noise + trusted_shares**2 * guess_variances
    own_variances = np.maximum(own_variances, 1e-300)
    reaches = reach_of(trusted_shares**2 * offset_squares / own_variances, level)
    return np.where(has_samples, distances + reaches * np.sqrt(own_variances), np.inf)


def _scale_of_offsets(
    distances: Floats,
    noise: Floats,
    guess_shares: Floats,
    relative_squares: Floats,
    has_samples: Bools,
) -> float:
    """Upper end of how far the guesses are off: their mean square a unit of a head's square.

    The square of a guess's distance from the true mean is taken to grow with the mean square of the
    head's samples, as in `headlab.stats.join_means`; how large it is in all, the samples say.

    Args:
        distances: Of the values from the means of samples, float [head].
        noise: Variance of these means, float [head].
        guess_shares: Weight of the guess in each value, float [head].
        relative_squares: Expected square of a sample over the mean of all heads', float [head].
        has_samples: The heads that count, bool [head].
    """
    # A distance has the guess's offset in it, and the noise of the mean.
    sizes = guess_shares**2 * relative_squares
    noise_in_distances = guess_shares**2 * noise
    # Heads whose value owes little to the guess say little of it.
    weights = np.where(has_samples, relative_squares / np.maximum(noise**2, 1e-300), 0.0)
    total = float((weights * sizes).sum())
    if not total:
        return 0.0
    estimate = float((weights * (distances**2 - noise_in_distances)).sum()) / total
    deviations = np.sqrt(2.0) * (noise_in_distances + max(estimate, 0.0) * sizes)
    standard_error = float(np.sqrt(((weights * deviations) ** 2).sum())) / total
    return upper_end(estimate, standard_error)
