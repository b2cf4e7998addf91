"""Means of few samples joined with a guess of them: an empirical-Bayes estimate of many means.

Every head has a mean of samples, which is right on average and noisy, and a guess, which has little
noise and is off by an unknown amount. The guess is trusted as far as it agrees with the samples of
all heads together (docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from headlab.core import Floats

USUAL_OFFSET = 0.14
"""How far off a good guess is, in its own size: the median of the prior."""
LOG_SPREAD_OF_OFFSET = 0.35
"""Standard deviation of the logarithm of a good guess's offset."""
BELIEF = 0.9
"""Probability, before any sample, that the guess is a good one."""
SMALLEST_OFFSET = 0.05
LARGEST_OFFSET = 4.0
OFFSETS_TRIED = 30
"""At equal ratios. Where the guess is not good, all of them are equally likely."""
DEVIATION_OF_GOOD_SLOPE = 0.1
"""Standard deviation of the factor by which a good guess is too large or too small, around 1."""
DEVIATION_OF_WILD_SLOPE = 1.0
"""The same where the guess is not good."""
COMMON_NOISE = 0.07
"""Correlation of two heads' sampling errors, as they are measured at the same coalitions."""
SMALLEST_VARIANCE = 1e-18
"""Variances below are rounding."""


class JoinedMeans(NamedTuple):
    """Posterior means, and how much they owe to the guess.

    Attributes:
        values: Posterior mean of each head, float [head].
        guess_shares: Weight of the guess in each value, from 0 to 1; the rest is that of the
            samples; float [head].
    """

    values: Floats
    guess_shares: Floats


class _Hypothesis(NamedTuple):
    """One way in which the guess may be wrong.

    Attributes:
        prior: Its probability before any sample.
        slope_deviation: Standard deviation of the slope around 1.
        offset_variances: Variance of a true mean around slope times guess, float [head].
    """

    prior: float
    slope_deviation: float
    offset_variances: Floats


def join_means(
    means: Floats,
    variances: Floats,
    guesses: Floats,
    guess_variances: Floats,
    squares: Floats,
    deviation_of_slope: float = 0.0,
) -> JoinedMeans:
    """Posterior means of the heads' true means.

    A true mean is the guess times a slope that all heads share, plus an offset of the head's own.
    A mean of samples is the true mean plus noise, a part of which all heads share. The offset's
    variance grows with the mean square of the head's samples: a head whose samples are nearly all 0
    has a true mean near 0, so that a guess that is right is right about it to within little. How
    large offsets are in all is averaged over, with a prior that believes in the guess and leaves a
    chance that it says nothing.

    Args:
        means: Mean of each head's samples, float [head].
        variances: Variance of these means, float [head]; infinite for a head without samples.
        guesses: The guess of each head's mean, float [head].
        guess_variances: Variance of the guesses by their own sampling, float [head].
        squares: Expected square of a sample of each head, float [head]; only ratios count.
        deviation_of_slope: Standard deviation of what is unknown of the guesses' common factor,
            beyond `DEVIATION_OF_GOOD_SLOPE`.

    Returns:
        The guesses themselves where no head has a sample.
    """
    square_of_guesses = _square_of_size(guesses, guess_variances)
    has_samples = np.isfinite(variances)
    square_of_means = 0.0
    if has_samples.any():
        square_of_means = float((means**2 - variances)[has_samples].mean())
    hypotheses = [
        *_good_hypotheses(guess_variances, squares, square_of_guesses, deviation_of_slope),
        *_wild_hypotheses(guess_variances, squares, max(square_of_guesses, square_of_means)),
    ]
    log_weights = np.empty(len(hypotheses))
    values = np.empty((len(hypotheses), len(means)))
    guess_shares = np.empty_like(values)
    for index, hypothesis in enumerate(hypotheses):
        log_likelihood, values[index], guess_shares[index] = _joined_under(
            hypothesis, means, variances, guesses
        )
        log_weights[index] = np.log(hypothesis.prior) + log_likelihood
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    return JoinedMeans(weights @ values, np.clip(weights @ guess_shares, 0.0, 1.0))


def _square_of_size(guesses: Floats, guess_variances: Floats) -> float:
    """Mean square of what is guessed, without the guesses' noise.

    At least a quarter of the guesses' mean square, as that noise is itself known by few draws.
    """
    mean_square = float((guesses**2).mean())
    return max(mean_square - float(guess_variances.mean()), mean_square / 4)


def _good_hypotheses(
    guess_variances: Floats, squares: Floats, square_of_size: float, deviation_of_slope: float
) -> Iterator[_Hypothesis]:
    """Offsets of a guess that is about right, with their probabilities.

    Args:
        guess_variances: As in `join_means`.
        squares: As in `join_means`.
        square_of_size: Mean square of what is guessed.
        deviation_of_slope: As in `join_means`.
    """
    slope_deviation = float(np.hypot(DEVIATION_OF_GOOD_SLOPE, deviation_of_slope))
    offsets = _offsets()
    by_square = _relative(squares)
    priors = np.exp(-((np.log(offsets / USUAL_OFFSET) / LOG_SPREAD_OF_OFFSET) ** 2) / 2)
    priors *= BELIEF / priors.sum()
    for offset, prior in zip(offsets, priors, strict=True):
        offset_variances = offset**2 * square_of_size * by_square + guess_variances
        yield _Hypothesis(float(prior), slope_deviation, offset_variances)


def _wild_hypotheses(
    guess_variances: Floats, squares: Floats, square_of_size: float
) -> Iterator[_Hypothesis]:
    """Offsets of a guess that says nothing, all equally likely.

    The offset is then the true mean itself. Its variance is proportional to the square, or its size
    is: a mean of gains of -1, 0 and 1 is a share of their mean square.

    Args:
        guess_variances: As in `join_means`.
        squares: As in `join_means`.
        square_of_size: Mean square of the true means, or of what is guessed if that is larger.
    """
    prior = (1 - BELIEF) / (2 * OFFSETS_TRIED)
    by_square = _relative(squares)
    by_fourth_power = _relative(by_square**2)
    for offset in _offsets():
        for relative_variances in (by_square, by_fourth_power):
            offset_variances = offset**2 * square_of_size * relative_variances + guess_variances
            yield _Hypothesis(prior, DEVIATION_OF_WILD_SLOPE, offset_variances)


def _offsets() -> Floats:
    """The offsets that are tried, float [offset]."""
    return np.geomspace(SMALLEST_OFFSET, LARGEST_OFFSET, OFFSETS_TRIED)


def _relative(squares: Floats) -> Floats:
    """Numbers of which none is negative, divided by their mean."""
    return squares / max(float(squares.mean()), SMALLEST_VARIANCE)


def _joined_under(
    hypothesis: _Hypothesis, means: Floats, variances: Floats, guesses: Floats
) -> tuple[float, Floats, Floats]:
    """Log-likelihood of the means, the posterior means, and the guess's shares.

    The covariance of the means around the guesses is a diagonal plus two outer products, one of
    the noise that heads share and one of the slope; it is inverted by Woodbury's formula. A
    constant of the likelihood that all hypotheses share is left out.

    Args:
        hypothesis: How the guess may be wrong.
        means: As in `join_means`.
        variances: As in `join_means`.
        guesses: As in `join_means`.
    """
    has_samples = np.isfinite(variances)
    noise_variances = np.where(has_samples, variances, 0.0)
    own_variances = (1 - COMMON_NOISE) * noise_variances + hypothesis.offset_variances
    precisions = np.where(has_samples, 1 / np.maximum(own_variances, SMALLEST_VARIANCE), 0.0)
    surprises = np.where(has_samples, means - guesses, 0.0)
    shared_directions = np.stack(
        [np.sqrt(COMMON_NOISE * noise_variances), hypothesis.slope_deviation * guesses]
    )
    weighted_directions = shared_directions * precisions
    shared_precision = np.eye(2) + weighted_directions @ shared_directions.T
    projections = weighted_directions @ surprises
    shared_effects = np.linalg.solve(shared_precision, projections)
    explained = precisions * surprises - shared_effects @ weighted_directions
    log_determinant = float(np.linalg.slogdet(shared_precision)[1]) - float(
        np.log(precisions[has_samples]).sum()
    )
    log_likelihood = -0.5 * (log_determinant + float(surprises @ explained))
    slope_change = hypothesis.slope_deviation**2 * float(guesses @ explained)
    values = (1 + slope_change) * guesses + hypothesis.offset_variances * explained
    guess_shares = np.where(
        has_samples, 1 - np.minimum(hypothesis.offset_variances * precisions, 1.0), 1.0
    )
    return log_likelihood, values, guess_shares
