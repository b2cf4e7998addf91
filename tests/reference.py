"""Slow second derivations: each formula of headlab again, in another way.

The package never imports this module.
"""

from __future__ import annotations

from itertools import combinations, permutations, product
from math import comb, exp, factorial, log
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from scipy import optimize, stats


def full_shapley(value: Any, players: int) -> np.ndarray:
    """Average marginal gain over all orders, by enumeration.

    Args:
        value: Frozenset of players present -> float.
    """
    total = np.zeros(players)
    for order in permutations(range(players)):
        present = set(range(players))
        for player in order:
            value_with_player = value(frozenset(present))
            present.remove(player)
            total[player] += value_with_player - value(frozenset(present))
    return total / factorial(players)


def top_half_shapley(value: Any, players: int) -> np.ndarray:
    """Average gain of a player over the orders that remove it in their first half.

    With an odd number of players the middle one belongs to the first half.
    """
    total = np.zeros(players)
    count = np.zeros(players)
    for order in permutations(range(players)):
        present = set(range(players))
        for player in order[: (players + 1) // 2]:
            value_with_player = value(frozenset(present))
            present.remove(player)
            total[player] += value_with_player - value(frozenset(present))
            count[player] += 1
    return total / count


def interaction_index(value: Any, players: int, first: int, second: int) -> float:
    """Shapley interaction index of two players, by enumeration.

    The two join as one, which takes its turn in every order of the n - 1 that there are then.

    Args:
        value: Frozenset of players present -> float.
    """
    others = [player for player in range(players) if player not in (first, second)]
    total = 0.0
    for order in permutations([None, *others]):
        before = frozenset(order[: order.index(None)])
        total += value(before | {first, second}) - value(before | {first})
        total -= value(before | {second}) - value(before)
    return total / factorial(players - 1)


def interaction_by_presence(kept: list[bool], gains: list[float], first: int, second: int) -> float:
    """One draw's sample of an interaction, by weights that turn its law into that of the index.

    A coalition of t of the other n - 2 players has the weight t! (n - 2 - t)! / (n - 1)! in the
    index. Among draws of all sizes it is seen with the one player present, whether the other's gain
    was taken present or absent, from two of the coalitions; the weight is divided by their chance.

    Args:
        kept: Which players the draw kept.
        gains: Of each player.
        first: One player of the pair.
        second: The other.
    """
    players = len(kept)

    def chance(size: int) -> float:
        return 1 / ((players + 1) * comb(players, size))

    others = sum(kept) - kept[first] - kept[second]
    weight = factorial(others) * factorial(players - 2 - others) / factorial(players - 1)
    total = 0.0
    for gaining, other in ((first, second), (second, first)):
        if kept[other]:
            total += gains[gaining] * weight / (chance(others + 1) + chance(others + 2))
        else:
            total -= gains[gaining] * weight / (chance(others) + chance(others + 1))
    return total / 2


def smoothed_slopes(
    logits_under: Any, gates: np.ndarray, label: int, bandwidth: float, step: float = 1e-4
) -> np.ndarray:
    """Slope of Phi(margin / bandwidth) by each gate, by central differences, of the shape of gates.

    The margin is the right label's lead over the others' smoothed maximum, 0.2 * log(sum(exp(x /
    0.2))).

    Args:
        logits_under: Gates -> logits, a list of floats.
        gates: Where the slopes are taken.
        label: The right one.
        bandwidth: In logits.
        step: By which a gate is moved up and down.
    """

    def smoothed(moved_gates: np.ndarray) -> float:
        logits = logits_under(moved_gates)
        others = [x / 0.2 for index, x in enumerate(logits) if index != label]
        highest = max(others)
        smooth_maximum = 0.2 * (highest + log(sum(exp(x - highest) for x in others)))
        return NormalDist().cdf((logits[label] - smooth_maximum) / bandwidth)

    slopes = np.zeros(gates.shape)
    for index in np.ndindex(gates.shape):
        above, below = gates.copy(), gates.copy()
        above[index] += step
        below[index] -= step
        slopes[index] = (smoothed(above) - smoothed(below)) / (2 * step)
    return slopes


def worth(key: str, logits: list[float], label: int) -> float:
    """What one answer is worth, as a share of the value's range, from the definition of softmax."""
    if key == "accuracy":
        return float(logits[label] == max(logits))
    highest = max(logits)
    denominator = sum(exp(x - highest) for x in logits)
    if key == "probability":
        return exp(logits[label] - highest) / denominator
    nats = logits[label] - highest - log(denominator)
    return (max(nats, -10.0) + 10.0) / 10.0


def margin(logits: list[float], label: int) -> float:
    """How far the right answer is ahead of the best other one."""
    return logits[label] - max(logit for index, logit in enumerate(logits) if index != label)


def soft_distance(rows: list[list[float]], labels: list[int], warmth: float) -> float:
    """Smoothed smallest distance of an answer from changing between right and wrong.

    The distance is the margin of a right answer, and minus the margin of a wrong one.
    """
    distances = []
    for logits, label in zip(rows, labels, strict=True):
        other_logits = [logit for index, logit in enumerate(logits) if index != label]
        runner_up = warmth * log(sum(exp(logit / warmth) for logit in other_logits))
        sign = 1 if margin(logits, label) >= 0 else -1
        distances.append((logits[label] - runner_up) * sign)
    return -warmth * log(sum(exp(-x / warmth) for x in distances))


def log_capital(
    support: np.ndarray,
    counts: np.ndarray,
    mean: float,
    fractions: tuple[float, ...],
    shares: tuple[float, ...],
) -> float:
    """Wealth of the mixture bettor, draw by draw, for one head; share k of 1 is put on fraction k."""
    wealth = list(shares)
    for value, count in zip(support, counts, strict=True):
        for _ in range(int(count)):
            wealth = [
                w * (1 - f + f * (1 + value) / (1 + mean))
                for w, f in zip(wealth, fractions, strict=True)
            ]
    return float(np.log(sum(wealth)))


def learned_shares(
    support: np.ndarray,
    counts: np.ndarray,
    width: float,
    fractions: tuple[float, ...],
    default_shares: tuple[float, ...],
) -> list[float]:
    """Share of the capital that each fraction gets, for one head.

    It depends on how much a unit grows with the draws and with the mirrored draws, against a mean
    `width` below 0: a fraction whose log growth is a share g of the best one's is weighted with
    e^(8 (g - 1)), and a twentieth stays in the default shares.
    """
    draws_and_mirrors = [*zip(support, counts, strict=True), *zip(-support, counts, strict=True)]
    growths = [
        sum(
            log_capital(np.array([v]), np.array([c]), -width, (fraction,), (1.0,))
            for v, c in draws_and_mirrors
        )
        for fraction in fractions
    ]
    weights = [np.exp(8 * (g / max(growths) - 1)) for g in growths]
    return [
        0.95 * weight / sum(weights) + 0.05 * share
        for weight, share in zip(weights, default_shares, strict=True)
    ]


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rho from its definition: Pearson of average ranks."""

    def ranks(v: np.ndarray) -> np.ndarray:
        return np.array([(np.sum(v < value) + np.sum(v <= value) - 1) / 2 for value in v])

    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def finite_difference(loss: Any, gates: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """d loss / d gate by central differences, one gate at a time.

    Args:
        loss: Gates [layer, head] -> float.
    """
    slopes = np.zeros_like(gates)
    for index in np.ndindex(*gates.shape):
        gates_above = gates.copy()
        gates_below = gates.copy()
        gates_above[index] += step
        gates_below[index] -= step
        slopes[index] = (loss(gates_above) - loss(gates_below)) / (2 * step)
    return slopes


def token_importance(
    module: Any,
    sentences: list[dict[str, torch.Tensor]],
    labels: list[int],
    projections: list[Any],
    heads: int,
) -> np.ndarray:
    """Head importance [layer, head] as in the BERT code of Michel et al. (2019), by sentence.

    For each token, the absolute dot product of a head's output with the gradient of the loss with
    respect to it; summed over the tokens of all sentences and divided by the number of tokens, in
    the last layer by the number of sentences.

    Args:
        projections: The linear map of each layer that takes the heads' outputs.
    """
    total = np.zeros((len(projections), heads))
    tokens = 0
    for inputs, label in zip(sentences, labels, strict=True):
        outputs: list[torch.Tensor] = []

        def keep(
            _: Any, args: tuple[torch.Tensor, ...], outputs: list[torch.Tensor] = outputs
        ) -> None:
            outputs.append(args[0])

        handles = [projection.register_forward_pre_hook(keep) for projection in projections]
        with torch.enable_grad():
            loss = torch.nn.functional.cross_entropy(module(**inputs).logits, torch.tensor([label]))
            slopes = torch.autograd.grad(loss, outputs)
        for handle in handles:
            handle.remove()
        length = inputs["input_ids"].shape[1]
        for layer, (output, slope) in enumerate(zip(outputs, slopes, strict=True)):
            for token in range(length):
                parts = zip(
                    output[0, token].chunk(heads), slope[0, token].chunk(heads), strict=True
                )
                total[layer] += [
                    abs(float(head_output.detach() @ head_slope))
                    for head_output, head_slope in parts
                ]
        tokens += length
    total[:-1] /= tokens
    total[-1] /= len(sentences)
    return total


def confidence(weights: torch.Tensor, ids: list[int], skipped_ids: set[int]) -> tuple[float, int]:
    """Sum over tokens of the largest weight on a token that is not skipped, and number of tokens.

    It is of one head in one sentence.
    """
    total = 0.0
    for query in range(len(ids)):
        total += max(
            (float(weights[query, key]) for key in range(len(ids)) if ids[key] not in skipped_ids),
            default=0.0,
        )
    return total, len(ids)


def gains(baseline: list[bool], runs: list[list[bool]]) -> list[float]:
    """What each answer gains by a change, averaged over runs of it, by counting."""
    return [
        sum(run_answers[i] - baseline_answer for run_answers in runs) / len(runs)
        for i, baseline_answer in enumerate(baseline)
    ]


def holm_by_steps(p: list[float]) -> list[float]:
    """Holm's adjusted p-values from the step-down procedure: the level that first rejects each."""
    adjusted_p_values = []
    for p_value in p:
        smaller = [x for x in p if x <= p_value]
        steps = [min(1.0, x * sum(other_p_value >= x for other_p_value in p)) for x in smaller]
        adjusted_p_values.append(max(steps))
    return adjusted_p_values


def resampled_difference(
    values: list[list[float]], groups: list[list[str]], draws: int, seed: int
) -> tuple[float, float]:
    """95 % interval of the mean over languages of their means, by a loop over draws.

    Groups of the same name are drawn together in all languages.
    """
    rng = np.random.default_rng(seed)
    names = sorted({g for language_groups in groups for g in language_groups})
    resampled_values = []
    for _ in range(draws):
        counts = rng.multinomial(len(names), np.full(len(names), 1 / len(names)))
        count_by_name = dict(zip(names, counts, strict=True))
        means = []
        for row, language_groups in zip(values, groups, strict=True):
            weights = [count_by_name[g] for g in language_groups]
            weighted_sum = sum(w * v for w, v in zip(weights, row, strict=True))
            means.append(weighted_sum / max(1, sum(weights)))
        resampled_values.append(sum(means) / len(means))
    low, high = np.quantile(resampled_values, [0.025, 0.975])
    return float(low), float(high)


def resampled_apart(
    values: list[list[float]],
    groups: list[list[str]],
    draws: int,
    seed: int,
    made_up: tuple[float, float],
) -> np.ndarray:
    """Resampled means over languages [draw], by a loop over draws.

    Each language is drawn from its own groups and the made-up values.
    """
    rng = np.random.default_rng(seed)
    resampled_values = []
    pools = []
    for row, language_groups in zip(values, groups, strict=True):
        pool = []
        for name in sorted(set(language_groups)):
            pool.append([v for v, g in zip(row, language_groups, strict=True) if g == name])
        pools.append(pool + [[v] for v in made_up])
    for _ in range(draws):
        means = []
        for pool in pools:
            drawn_values: list[float] = []
            for pool_index in rng.integers(len(pool), size=len(pool)):
                drawn_values += pool[pool_index]
            means.append(sum(drawn_values) / len(drawn_values))
        resampled_values.append(sum(means) / len(means))
    return np.array(resampled_values)


def resampled_means(
    values: np.ndarray, groups: tuple[str, ...], made_up: tuple[float, float]
) -> np.ndarray:
    """The mean of every possible resample of the groups and made-up values, with replacement."""
    pool = [values[[g == name for g in groups]] for name in sorted(set(groups))]
    pool += [np.array([v]) for v in made_up]
    return np.array(
        [np.concatenate(resample).mean() for resample in product(pool, repeat=len(pool))]
    )


def margin_ends(
    gains: np.ndarray, groups: tuple[str, ...], claims: int, level: float
) -> tuple[float, float]:
    """The ends of an interval for a margin, from every possible resample.

    The lower end is the smallest mean that is exceeded by all but a tail of the resamples of the
    groups and two that lose everything; the upper end mirrors it, with the tail shared out among
    the claims. Made-up groups are as large as the mean group.
    """
    members = [
        [gain for gain, g in zip(gains, groups, strict=True) if g == name] for name in set(groups)
    ]
    mean_size = len(gains) / len(members)
    ends = []
    for sign, share_out in ((-1, 1), (1, claims)):
        pool = [(sum(member), len(member)) for member in members]
        pool += 2 * [(sign * mean_size, mean_size)]
        outcomes = [
            sign * sum(total for total, _ in resample) / sum(size for _, size in resample)
            for resample in product(pool, repeat=len(pool))
        ]
        tail = (1 - level) / 2 / share_out
        ends.append(sign * float(np.quantile(outcomes, 1 - tail)))
    return ends[0], ends[1]


def left_out_interval(
    sums: np.ndarray, weights: list[float], groups: list[str], statistic: Any, level: float = 0.95
) -> list[tuple[float, float]]:
    """Jackknife interval of each number of `statistic(mean)`, by t on the scale of logarithms.

    The mean is computed anew without each group.
    """
    from scipy.stats import t

    def mean(rows: list[int]) -> np.ndarray:
        return np.asarray(statistic(sum(sums[r] for r in rows) / sum(weights[r] for r in rows)))

    rows = [r for r, weight in enumerate(weights) if weight]
    names = sorted({groups[r] for r in rows})
    jackknife = [mean([r for r in rows if groups[r] != name]) for name in names]
    intervals = []
    for index, value in enumerate(mean(rows)):
        middle = sum(values[index] for values in jackknife) / len(names)
        variance = (
            (len(names) - 1)
            / len(names)
            * sum((values[index] - middle) ** 2 for values in jackknife)
        )
        log_width = t.ppf((1 + level) / 2, len(names) - 1) * variance**0.5 / value if value else 0.0
        intervals.append((value * np.exp(-log_width), value * np.exp(log_width)))
    return intervals


def bca(
    point: float, resampled_points: np.ndarray, jackknife: np.ndarray, level: float = 0.95
) -> list[float]:
    """Efron's BCa interval of one number, by the book (Efron & Tibshirani 1993, section 14.3)."""
    normal = NormalDist()
    share_below = np.mean([(r < point) + (r == point) / 2 for r in resampled_points])
    z0 = normal.inv_cdf((share_below * len(resampled_points) + 0.5) / (len(resampled_points) + 1))
    mean = float(np.mean(jackknife))
    acceleration = sum((mean - j) ** 3 for j in jackknife) / (
        6 * sum((mean - j) ** 2 for j in jackknife) ** 1.5
    )
    ends = [normal.inv_cdf(share) for share in ((1 - level) / 2, (1 + level) / 2)]
    return [
        float(
            np.quantile(resampled_points, normal.cdf(z0 + (z0 + z) / (1 - acceleration * (z0 + z))))
        )
        for z in ends
    ]


def stepped_up(halves: np.ndarray) -> float:
    """Spearman-Brown: reliability of a sum of two parts of equal variance and correlation r."""
    r = spearman(*halves)
    true = 2 * 2 * r
    noise = 2 * (1 - r)  # variances of a sum of two parts r + (1 - r) each
    return min(1.0, max(0.0, true / (true + noise)))


def average_linkage(distance: np.ndarray) -> list[tuple[frozenset[int], float]]:
    """Merges of average linkage, nearest first: rows, and mean distance between the two parts."""
    parts = [frozenset({i}) for i in range(len(distance))]
    merges = []
    while len(parts) > 1:
        pairs = [
            (
                np.mean([distance[i, j] for i in first_part for j in second_part]),
                first_part,
                second_part,
            )
            for first_part, second_part in combinations(parts, 2)
        ]
        height, first_part, second_part = min(pairs, key=lambda pair: pair[0])
        parts = [p for p in parts if p not in (first_part, second_part)] + [
            first_part | second_part
        ]
        merges.append((first_part | second_part, float(height)))
    return merges


def looks_at(
    weights: np.ndarray, looking: list[bool], ids: list[int], real: list[bool], target_ids: set[int]
) -> float:
    """Share of the looking tokens whose largest weight [query, key] is on target ids alone."""
    hits = 0
    for query in (q for q, looks in enumerate(looking) if looks):
        largest = max(weights[query, key] for key in range(len(ids)) if real[key])
        hits += all(
            ids[key] in target_ids
            for key in range(len(ids))
            if real[key] and weights[query, key] == largest
        )
    return hits / sum(looking)


def area(correct: list[bool], removed_counts: list[int]) -> float:
    """One answer's area under a curve, whose horizontal axis is the share of the last count.

    It is the sum of a trapezoid between every two neighbouring counts.
    """
    total = 0.0
    steps = zip(removed_counts, removed_counts[1:], correct, correct[1:], strict=False)
    for start, end, start_correct, end_correct in steps:
        base = (end - start) / removed_counts[-1]
        total += base * (int(start_correct) + int(end_correct)) / 2
    return total


class Neuron:
    """One number of a network, with the weight ratio w of each of its inputs.

    As in Voita et al. (2019), appendix A.2.
    """

    def __init__(self, value: float, ratios: list[tuple[Neuron, float]] | None = None) -> None:
        self.value = value
        self.ratios = ratios or []

    @staticmethod
    def weighted_sum(inputs: list[Neuron], weights: Any, bias: float = 0.0) -> Neuron:
        """v = Σ W u + b, w = W u / v: what the bias takes goes to nobody."""
        value = sum(float(w) * u.value for u, w in zip(inputs, weights, strict=True)) + float(bias)
        return Neuron(
            value, [(u, float(w) * u.value / value) for u, w in zip(inputs, weights, strict=True)]
        )

    @staticmethod
    def product_sum(
        left_factors: list[Neuron],
        right_factors: list[Neuron],
        left_share: float,
        scale: float = 1.0,
    ) -> Neuron:
        """v = c Σ a b; w of a product is c a b / v, shared between its two factors.

        The left factor takes `left_share` of it and the right one the rest.
        """
        value = scale * sum(
            left_neuron.value * right_neuron.value
            for left_neuron, right_neuron in zip(left_factors, right_factors, strict=True)
        )
        ratios = []
        for left_neuron, right_neuron in zip(left_factors, right_factors, strict=True):
            share = scale * left_neuron.value * right_neuron.value / value
            ratios += [(left_neuron, left_share * share), (right_neuron, (1 - left_share) * share)]
        return Neuron(value, ratios)

    @staticmethod
    def softmax(scores: list[Neuron]) -> list[Neuron]:
        """Weights A of scores s, w = s_j (δ_jk - A_j): the first order at s; nobody takes the rest."""
        total = sum(exp(s.value) for s in scores)
        weights = [exp(s.value) / total for s in scores]
        return [
            Neuron(
                weight,
                [(s, s.value * ((s is scores[k]) - weights[j])) for j, s in enumerate(scores)],
            )
            for k, weight in enumerate(weights)
        ]

    @staticmethod
    def layer_norm(inputs: list[Neuron], weight: Any, bias: Any, eps: float) -> list[Neuron]:
        """Layer norm as a sum over its inputs, W_ij = γ_i / σ (δ_ij - 1/n), with σ a number."""
        size = len(inputs)
        values = np.array([u.value for u in inputs])
        scale = 1 / np.sqrt(values.var() + eps)
        row = [(np.arange(size) == i) - 1 / size for i in range(size)]
        return [
            Neuron.weighted_sum(inputs, float(weight[i]) * scale * row[i], bias[i])
            for i in range(size)
        ]

    def relevance(self) -> dict[int, float]:
        """Relevance r of every neuron for this one, by id, from the last neuron to the first.

        r_u is the sum of w_uz r_z over all neurons z that have u as an input.
        """
        order: list[Neuron] = []
        visited_ids: set[int] = set()

        def visit(neuron: Neuron) -> None:
            if id(neuron) not in visited_ids:
                visited_ids.add(id(neuron))
                for source, _ in neuron.ratios:
                    visit(source)
                order.append(neuron)

        visit(self)
        relevance_by_id = dict.fromkeys(map(id, order), 0.0) | {id(self): self.value}
        for neuron in reversed(order):
            for source, ratio in neuron.ratios:
                relevance_by_id[id(source)] += ratio * relevance_by_id[id(neuron)]
        return relevance_by_id


def shared_by_chance(heads: int, top_count: int, choice_size: int) -> list[float]:
    """Probability of each size of overlap between the top heads and a random choice of heads.

    It is counted over all choices.
    """
    overlaps = [
        sum(head < top_count for head in choice)
        for choice in combinations(range(heads), choice_size)
    ]
    return [
        overlaps.count(number) / len(overlaps) for number in range(min(top_count, choice_size) + 1)
    ]


def mean_correlation(languages: list[list[np.ndarray]], drawn_heads: list[int]) -> float:
    """Mean over languages of Spearman's rho of two methods' scores of the drawn heads.

    Args:
        languages: The two methods' scores for each language.
        drawn_heads: Indices of heads, which may repeat.
    """
    correlations = []
    for first_scores, second_scores in languages:
        correlations.append(spearman(first_scores[drawn_heads], second_scores[drawn_heads]))
    return float(np.mean(correlations))


def word_looks(weights: np.ndarray, word_of_token: list[int], causal: bool) -> dict[int, int]:
    """The word that each word looks at most: rows of a word's tokens averaged, columns added.

    Args:
        weights: [query, key].
    """
    target_by_word = {}
    words = sorted(set(word_of_token) - {-1})
    for looker in words:
        looker_tokens = [t for t, word in enumerate(word_of_token) if word == looker]
        best_target = -1
        best_weight = -1.0
        for target in words:
            target_tokens = [t for t, word in enumerate(word_of_token) if word == target]
            weight = sum(
                sum(float(weights[q, k]) for k in target_tokens) for q in looker_tokens
            ) / len(looker_tokens)
            if weight > best_weight and not (causal and target > looker):
                best_target = target
                best_weight = weight
        target_by_word[looker] = best_target
    return target_by_word


def word_weights(weights: np.ndarray, word_of_token: list[int]) -> list[list[float]]:
    """Attention between words, entry by entry.

    An entry is the sum over the pieces of the key word, averaged over those of the query word.

    Args:
        word_of_token: The word of each token, -1 for none; such a token is a unit of its own.
    """
    units: list[list[int]] = []
    for token, word in enumerate(word_of_token):
        if word >= 0 and word in word_of_token[:token]:
            next(unit for unit in units if word_of_token[unit[0]] == word).append(token)
        else:
            units.append([token])
    return [
        [
            sum(sum(weights[query][key] for key in key_unit) for query in unit) / len(unit)
            for key_unit in units
        ]
        for unit in units
    ]


def largest_link(weights: np.ndarray, fits: Any) -> tuple[float, int, int] | None:
    """The largest weight, with its query and key, among the pairs that fit; None without any.

    Of equal weights it is the first.
    """
    largest = None
    for query, row in enumerate(weights):
        for key, weight in enumerate(row):
            if fits(query, key) and (largest is None or weight > largest[0]):
                largest = (float(weight), query, key)
    return largest


def mean_of_links(weights: np.ndarray, fits: Any) -> tuple[float, int] | None:
    """What the tokens that have a link give to all their links, on average, and how many they are.

    None without any.
    """
    sums = []
    for query, row in enumerate(weights):
        link_weights = [float(weight) for key, weight in enumerate(row) if fits(query, key)]
        if link_weights:
            sums.append(sum(link_weights))
    if not sums:
        return None
    return sum(sums) / len(sums), len(sums)


def token_looks(weights: np.ndarray, may_look: Any) -> dict[int, tuple[int, list[int]]]:
    """{query: (the allowed key of the largest weight, all allowed keys)}.

    Args:
        allowed: (query, key) -> bool.
    """
    looks = {}
    for query in range(weights.shape[0]):
        keys = [key for key in range(weights.shape[1]) if may_look(query, key)]
        if keys:
            looks[query] = (max(keys, key=lambda k: float(weights[query, k])), keys)
    return looks


def role_tally(
    looks: dict[int, tuple[int, list[int]]], special: list[bool], is_hit: Any
) -> tuple[int, int, float]:
    """(hits, asked, hits by chance) of one sentence and head.

    Args:
        right: (query, key) -> bool.
    """
    hits = tokens = 0
    chance = 0.0
    for query, (largest_key, keys) in looks.items():
        hit_keys = [key for key in keys if is_hit(query, key)]
        if not special[query] and 0 < len(hit_keys) < len(keys):
            hits = hits + (largest_key in hit_keys)
            tokens = tokens + 1
            chance = chance + len(hit_keys) / len(keys)
    return hits, tokens, chance


def clustered_share(hits: list[int], tokens: list[int], level: float) -> tuple[float, float, float]:
    """Share and its Clopper-Pearson bounds at the effective sample size, by bisection."""
    from scipy.special import betainc
    from scipy.stats import t

    pairs = [(h, n) for h, n in zip(hits, tokens, strict=True) if n]
    total = sum(n for _, n in pairs)
    sentences = len(pairs)
    share = sum(h for h, _ in pairs) / total
    size: float = sentences
    if 0 < share < 1:
        variance = (
            sentences / (sentences - 1) * sum((h - share * n) ** 2 for h, n in pairs) / total**2
        )
        tail = (1 + level) / 2
        t_correction = (t.ppf(tail, total - 1) / t.ppf(tail, sentences - 1)) ** 2
        size = min(total, share * (1 - share) / variance * t_correction)
    x = share * size
    alpha = (1 - level) / 2

    def bisect(root_is_above: Any) -> float:
        low = 0.0
        high = 1.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (low, middle) if root_is_above(middle) else (middle, high)
        return low

    low = bisect(lambda p: betainc(x, size - x + 1, p) > alpha) if x else 0.0
    high = bisect(lambda p: 1 - betainc(x + 1, size - x, p) < alpha) if x < size else 1.0
    return share, low, high


def greedy(
    module: Any,
    source: torch.Tensor,
    *,
    start: int,
    end: int,
    limit: int,
    first_token: int | None = None,
) -> list[int]:
    """Greedy translation of one source: each token from a pass over all tokens before it.

    Args:
        first: Token that the translation begins with, whatever the model finds likely.
    """
    tokens = [start] if first_token is None else [start, first_token]
    while len(tokens) <= limit and tokens[-1] != end:
        scores = module(
            input_ids=source, decoder_input_ids=torch.tensor([tokens]), use_cache=False
        ).logits[0, -1]
        tokens.append(end if len(tokens) == limit else int(scores.argmax()))
    return tokens[1:]


def bleu(texts: list[str], references: list[str]) -> float:
    """BLEU of words between spaces from its definition, with an unseen order's precision halved."""
    matches_by_order = [0] * 4
    grams_by_order = [0] * 4
    words = 0
    reference_words = 0
    for text, reference in zip(texts, references, strict=True):
        text_tokens = text.split()
        reference_tokens = reference.split()
        words = words + len(text_tokens)
        reference_words = reference_words + len(reference_tokens)
        for n in range(1, 5):
            unmatched_grams = [
                reference_tokens[i : i + n] for i in range(len(reference_tokens) - n + 1)
            ]
            for gram in (text_tokens[i : i + n] for i in range(len(text_tokens) - n + 1)):
                grams_by_order[n - 1] += 1
                if gram in unmatched_grams:
                    unmatched_grams.remove(gram)
                    matches_by_order[n - 1] += 1
    if not any(matches_by_order) or not all(grams_by_order):
        return 0.0
    score = min(1.0, exp(1 - reference_words / words))
    unseen_matches = 1.0
    for matches, grams in zip(matches_by_order, grams_by_order, strict=True):
        unseen_matches = unseen_matches if matches else unseen_matches / 2
        score *= ((matches or unseen_matches) / grams) ** 0.25
    return 100 * score


def hard_concrete(
    log_alpha: float, temperature: float, low: float, high: float, cells: int = 200_000
) -> Any:
    """P(gate ≠ 0), P(gate = 1), mean and variance of a hard concrete gate, by a sum over u.

    As in Louizos et al. (2018), equations 10 and 11.
    """
    u = (np.arange(cells) + 0.5) / cells
    concrete = 1 / (1 + ((1 - u) / (u * np.exp(log_alpha))) ** (1 / temperature))
    stretched_gates = (high - low) * concrete + low
    gates = np.minimum(1.0, np.maximum(0.0, stretched_gates))
    return (gates > 0).mean(), (gates == 1).mean(), gates.mean(), gates.var()


def all_attention(
    hidden: Any, weights: dict[str, Any], heads: int, distances: Any, persistent: tuple[Any, Any]
) -> Any:
    """One All-attention part, number by number: hidden [token, width] -> [token, width].

    Args:
        weights: Query, key, value [heads * size, width] and out [width, heads * size].
        distances: [distance, size], the last one for all farther; None: positions do not count.
        persistent: The vectors themselves, [head, vector, size]. Sukhbaatar et al. (2019), section
            4, with Shaw et al. (2018), equation 4.
    """
    size = len(weights["query"]) // heads
    context = np.zeros((len(hidden), heads * size))
    for head in range(heads):
        head_rows = slice(head * size, (head + 1) * size)
        query, key, value = (
            hidden @ weights[name][head_rows].T for name in ("query", "key", "value")
        )
        for t in range(len(hidden)):
            scores = []
            values = []
            for c in range(t + 1):
                distance_score = (
                    0.0
                    if distances is None
                    else query[t] @ distances[min(t - c, len(distances) - 1)]
                )
                scores.append((query[t] @ key[c] + distance_score) / size**0.5)
                values.append(value[c])
            for n in range(persistent[0].shape[1]):
                scores.append(query[t] @ persistent[0][head, n] / size**0.5)
                values.append(persistent[1][head, n])
            shares = np.exp(np.array(scores) - max(scores))
            context[t, head_rows] = shares / shares.sum() @ np.array(values)
    return context @ weights["out"].T


def median_rank(n: int, level: float) -> int:
    """Largest k whose k-th values from either end enclose the median with probability `level`."""
    rank = 0
    for k in range(1, n // 2 + 1):
        tail_probability = (
            sum(factorial(n) / (factorial(i) * factorial(n - i)) for i in range(k)) / 2**n
        )
        if 1 - 2 * tail_probability >= level:
            rank = k
    return rank


def encoder_macs(
    layers: list[int],
    size: int,
    width: int,
    inner: int,
    labels: int,
    pooler_width: int,
    tokens: int,
) -> int:
    """Multiplications of a BERT-like classifier, one by one.

    Args:
        layers: Heads of each.
        pooled: Its inner width.
    """
    total = 0
    for heads in layers:
        for _ in range(heads):
            total += 3 * tokens * width * size  # query, key, value
            total += tokens * tokens * size  # every query with every key
            total += tokens * tokens * size  # weights with values
            total += tokens * size * width  # back to the width
        total += tokens * width * inner + tokens * inner * width
    return total + width * pooler_width + pooler_width * labels


def jaccard(first_set: set[Any], second_set: set[Any]) -> float:
    """Members of both sets by members of either, counted one by one; 1 for two empty sets."""
    union = list(first_set) + [x for x in second_set if x not in first_set]
    if union:
        return sum(x in first_set and x in second_set for x in union) / len(union)
    return 1.0


def removed_by_most(sets: list[set[Any]]) -> set[Any]:
    """Heads that more of the sets hold than lack."""
    return {
        x for x in set().union(*sets) if sum(x in s for s in sets) > sum(x not in s for s in sets)
    }


def between_colours(scale: tuple[tuple[float, str], ...], share: float) -> str:
    """The colour at a share of a scale, each channel by numpy's interpolation."""
    positions = [position for position, _ in scale]
    channels = [
        np.interp(share, positions, [int(c[i : i + 2], 16) for _, c in scale]) for i in (1, 3, 5)
    ]
    return "#" + "".join(f"{round(float(channel)):02x}" for channel in channels)


def is_undominated(points: list[tuple[float, float]]) -> list[bool]:
    """Which points (cost, value) no other point dominates, pair by pair.

    A point dominates another if it is as cheap and as good, and better in one of the two.
    """
    return [
        not any(c <= cost and v >= value and (c < cost or v > value) for c, v in points)
        for cost, value in points
    ]


def leaving_by_best_rank(scores: list[list[float]]) -> list[int]:
    """Heads in the order in which they are removed, the least needed first.

    They are ordered by the best rank that any language gives them, then by their mean rank.

    Args:
        scores: [language][head], all different within a language.
    """
    heads = range(len(scores[0]))
    remaining = set(range(len(scores[0])))
    rank = {
        (i, h): 1 + sum(row[g] > row[h] for g in heads)
        for i, row in enumerate(scores)
        for h in heads
    }
    order = []
    while remaining:
        best_rank = {h: min(rank[i, h] for i in range(len(scores))) for h in remaining}
        mean_rank = {
            h: sum(rank[i, h] for i in range(len(scores))) / len(scores) for h in remaining
        }
        order.append(max(remaining, key=lambda h: (best_rank[h], mean_rank[h], h)))
        remaining.remove(order[-1])
    return order


def parameters_of_attention(hidden: int, size: int, heads: int) -> int:
    """Number of weights of one attention with biases, counted one by one."""
    rows = [[1] * hidden + [1] for _ in range(3 * heads * size)]  # with its bias
    output_rows = [[1] * (heads * size) + [1] for _ in range(hidden)]
    return sum(map(sum, rows)) + sum(map(sum, output_rows))


def silenced_projection(
    weight: Any, bias: Any, means: Any, is_kept: Any
) -> tuple[list[list[float]], list[float]]:
    """Weight [output][input] and bias [output] of a projection with some heads silenced.

    A removed head's inputs meet zeros, and what its mean output [head][number] would add to an
    output is added to the bias, one product at a time.
    """
    head_width = len(weight[0]) // len(is_kept)
    new_weight = [[float(number) for number in row] for row in weight]
    new_bias = [float(number) for number in bias]
    for output in range(len(weight)):
        for head in range(len(is_kept)):
            if is_kept[head]:
                continue
            for number in range(head_width):
                column = head * head_width + number
                new_bias[output] += float(weight[output][column]) * float(means[head][number])
                new_weight[output][column] = 0.0
    return new_weight, new_bias


def perplexity_interval(nats: Any, words: Any) -> tuple[float, float]:
    """95 % interval of exp(Σ nats / Σ words) by the jackknife over passages.

    The quantile is Student's t with S - 1 degrees of freedom for S passages.
    """
    count = len(nats)
    middle = sum(nats) / sum(words)
    left_out_rates = [(sum(nats) - nats[i]) / (sum(words) - words[i]) for i in range(count)]
    mean = sum(left_out_rates) / count
    error = ((count - 1) / count * sum((rate - mean) ** 2 for rate in left_out_rates)) ** 0.5
    width = stats.t.ppf(0.975, count - 1) * error
    return exp(middle - width), exp(middle + width)


def log_probabilities(
    module: Any, source: torch.Tensor, prefix: list[int], tokens: list[int]
) -> list[float]:
    """Log-probability of each token after a prefix and the tokens before it, a pass for each."""
    token_log_probabilities = []
    preceding = list(prefix)
    for token in tokens:
        with torch.no_grad():
            scores = module(
                input_ids=source, decoder_input_ids=torch.tensor([preceding]), use_cache=False
            ).logits[0, -1]
        likely = scores.double().exp()
        token_log_probabilities.append(float((likely[token] / likely.sum()).log()))
        preceding.append(token)
    return token_log_probabilities


def next_token_log_probabilities(module: Any, context: list[int], tokens: list[int]) -> list[float]:
    """Log-probability of each token after a context and the tokens before it, a pass for each."""
    token_log_probabilities = []
    preceding = list(context)
    for token in tokens:
        with torch.no_grad():
            likely = (
                module(input_ids=torch.tensor([preceding]), use_cache=False)
                .logits[0, -1]
                .double()
                .exp()
            )
        token_log_probabilities.append(float((likely[token] / likely.sum()).log()))
        preceding.append(token)
    return token_log_probabilities


def orders_compared(counts: list[list[int]]) -> tuple[float, float, float]:
    """Shares of right answers of the best and the second-best order, and the best one's p-value.

    The p-value is the largest one of sign tests against all other orders, times their number; each
    test sums binomial coefficients.

    Args:
        counts: Number of examples by [class][label].
    """
    examples = [
        (class_index, label)
        for class_index, row in enumerate(counts)
        for label, count in enumerate(row)
        for _ in range(count)
    ]
    hits = [
        [order[label] == answer for answer, label in examples]
        for order in permutations(range(len(counts)))
    ]
    best_index = max(range(len(hits)), key=lambda index: sum(hits[index]))
    p_values = []
    for other_hits in (*hits[:best_index], *hits[best_index + 1 :]):
        pairs = list(zip(hits[best_index], other_hits, strict=True))
        wins = sum(best_hit and not other_hit for best_hit, other_hit in pairs)
        losses = sum(other_hit and not best_hit for best_hit, other_hit in pairs)
        n = wins + losses
        p_values.append(sum(comb(n, k) for k in range(wins, n + 1)) / 2**n)
    total = max(1, len(examples))
    second = max(sum(row) for index, row in enumerate(hits) if index != best_index)
    return sum(hits[best_index]) / total, second / total, min(1.0, max(p_values) * len(p_values))


def joined_means(
    means: np.ndarray,
    variances: np.ndarray,
    guesses: np.ndarray,
    guess_variances: np.ndarray,
    squares: np.ndarray,
    deviation_of_slope: float,
) -> np.ndarray:
    """Posterior means of normal means, by conditioning the joint normal distribution of all.

    Every hypothesis gives the true means and the means of samples one normal distribution with a
    full covariance matrix; posterior probabilities weigh the hypotheses' conditional means.

    Args:
        means: Of the samples, all heads with samples.
        variances: Of these means.
        guesses: Of the true means.
        guess_variances: Of the guesses.
        squares: Expected squares of samples.
        deviation_of_slope: What is unknown of the guesses' common factor.
    """
    offsets = [0.05 * 80 ** (step / 29) for step in range(30)]
    good = [exp(-((log(offset / 0.14) / 0.35) ** 2) / 2) for offset in offsets]
    size = max((guesses**2).mean() - guess_variances.mean(), (guesses**2).mean() / 4)
    wild_size = max(size, (means**2 - variances).mean())
    by_square = squares / squares.mean()
    by_fourth = by_square**2 / (by_square**2).mean()
    hypotheses = []
    for offset, probability in zip(offsets, good, strict=True):
        narrow = (0.01 + deviation_of_slope**2) ** 0.5
        hypotheses.append((0.9 * probability / sum(good), narrow, offset**2 * size * by_square))
        for form in (by_square, by_fourth):
            hypotheses.append((0.1 / 60, 1.0, offset**2 * wild_size * form))
    noise = 0.93 * np.diag(variances) + 0.07 * np.outer(variances**0.5, variances**0.5)
    weights = []
    conditional_means = []
    for prior, slope_deviation, offset_variances in hypotheses:
        of_truth = np.diag(offset_variances + guess_variances)
        of_truth = of_truth + slope_deviation**2 * np.outer(guesses, guesses)
        of_means = of_truth + noise
        density = stats.multivariate_normal(guesses, of_means).logpdf(means)
        weights.append(log(prior) + density)
        conditional_means.append(guesses + of_truth @ np.linalg.inv(of_means) @ (means - guesses))
    shares = np.exp(np.array(weights) - max(weights))
    return shares / shares.sum() @ np.array(conditional_means)


def rows_of_gguf(weight: Any, head_width: int) -> list[list[float]]:
    """Rows of a projection of queries or keys in the order of GGUF, one row at a time.

    Of a head, number i turns with number i + half of the width; in GGUF these are neighbours.
    """
    half = head_width // 2
    rows: list[list[float]] = [[] for _ in weight]
    for head in range(len(weight) // head_width):
        first = head * head_width
        for pair in range(half):
            rows[first + 2 * pair] = [float(number) for number in weight[first + pair]]
            rows[first + 2 * pair + 1] = [float(number) for number in weight[first + pair + half]]
    return rows


def q8_0(numbers: Any) -> list[float]:
    """What is left of numbers that were stored in q8_0: 8 bits each, 32 of them share a factor.

    The factor is the largest size over 127, in half precision; numbers are rounded half away from
    zero before it is.
    """
    kept: list[float] = []
    for start in range(0, len(numbers), 32):
        block = [np.float32(number) for number in numbers[start : start + 32]]
        factor = max(abs(number) for number in block) / np.float32(127)
        steps_of_one = np.float32(0) if factor == 0 else np.float32(1) / factor
        for number in block:
            steps = float(np.floor(abs(number) * steps_of_one + np.float32(0.5)))
            kept.append(float(np.float16(factor)) * (steps if number >= 0 else -steps))
    return kept


def llama3_slowing(
    theta: float, head_width: int, factor: float, low: float, high: float, context: int
) -> list[float]:
    """By how much each rotary frequency is slowed down by the rule of Llama 3.1.

    Waves that fit `high` times or more into the context that the model was first trained on stay;
    those that fit fewer than `low` times are slowed down by the factor; in between frequencies are
    mixed in proportion.
    """
    slowing = []
    for number in range(head_width // 2):
        frequency = theta ** (-2 * number / head_width)
        waves = context * frequency / (2 * np.pi)
        share_kept = min(1.0, max(0.0, (waves - low) / (high - low)))
        slowed = (1 - share_kept) * frequency / factor + share_kept * frequency
        slowing.append(float(frequency / slowed))
    return slowing


def sentencepiece_pieces(text: str, scores: dict[str, float]) -> list[str]:
    """Pieces of a text: of all neighbours that make a piece, the best-scored are put together.

    Of equal scores the first pair comes first.
    """
    pieces = list(text)
    while True:
        best_place = None
        for place in range(len(pieces) - 1):
            score = scores.get(pieces[place] + pieces[place + 1])
            if score is None:
                continue
            if best_place is None or score > scores[pieces[best_place] + pieces[best_place + 1]]:
                best_place = place
        if best_place is None:
            return pieces
        pieces[best_place : best_place + 2] = [pieces[best_place] + pieces[best_place + 1]]


def parameters_with_pieces(shapes, pieces, pieces_left):
    """Parameters of a model with fewer pieces: in every shape, that number of pieces stands instead.

    No other dimension may have as many entries.
    """
    parameters = 0
    for shape in shapes:
        entries = 1
        for length in shape:
            entries *= pieces_left if length == pieces else length
        parameters += entries
    return parameters


def bpe_parts(piece: str, merges: list[tuple[str, ...]]) -> set[str]:
    """All pieces on the way to a piece: merges are tried one after another, first to last."""
    parts = list(piece)
    met = set(parts)
    for left, right in merges:
        place = 0
        while place < len(parts) - 1:
            if (parts[place], parts[place + 1]) == (left, right):
                parts[place : place + 2] = [left + right]
                met.add(left + right)
            place += 1
    return met


# Planned and average intervals.


def planned_interval_of(
    samples: list[float], share: float, level: float, gain: float
) -> tuple[float, float, float]:
    """Interval of one head's mean at a planned look, and its p-value, sample by sample.

    Args:
        samples: Of the head.
        share: Share of the chance of error that the look may spend.
        level: Of all looks together.
        gain: Size of a made-up gain; two are counted in each direction.
    """
    mean = sum(samples) / len(samples)
    counted = [*samples, gain, gain, -gain, -gain]
    mean_counted = sum(counted) / len(counted)
    variance = sum((sample - mean_counted) ** 2 for sample in counted) / len(counted)
    error = (variance / len(samples)) ** 0.5
    reach = -NormalDist().inv_cdf(share * (1 - level) / 2)
    p_of_look = 2 * (1 - NormalDist().cdf(abs(mean) / error))
    return mean - reach * error, mean + reach * error, min(1.0, p_of_look / share)


def made_up_gains_of(samples_by_head: list[list[float]]) -> list[float]:
    """Size of a made-up gain of each head of a run by probabilities, sample by sample.

    Args:
        samples_by_head: Equally many of each head, and not all 0 of any.
    """
    count = len(samples_by_head[0])
    usual = [sum(map(abs, samples)) / count for samples in samples_by_head]
    ratios = sorted(
        (abs(sample) / usual[head] for head, own in enumerate(samples_by_head) for sample in own),
        reverse=True,
    )
    rare = ratios[: 2 * len(samples_by_head)]  # two of each head's samples
    rare_ratio = (sum(ratio**2 for ratio in rare) / len(rare)) ** 0.5
    return [
        min(1.0, max(max(map(abs, own)), rare_ratio * usual[head]))
        for head, own in enumerate(samples_by_head)
    ]


def largest_chance_to_miss(reach: float, mean_square: float) -> float:
    """How often an interval misses at most, over all biases of a mean square: a linear program.

    Its unknowns are the probabilities of biases on a fine grid.

    Args:
        reach: Half-width of the interval, in standard deviations of the noise.
        mean_square: Of the biases, in variances of the noise.
    """
    biases = np.linspace(0, 12 * (1 + mean_square**0.5), 4001)
    misses = [
        1 - NormalDist().cdf(reach - bias) + NormalDist().cdf(-reach - bias) for bias in biases
    ]
    program = optimize.linprog(
        -np.array(misses),
        A_eq=np.stack([np.ones_like(biases), biases**2]),
        b_eq=[1.0, mean_square],
        bounds=(0, 1),
    )
    return float(-program.fun)


def patched_logits(module, inputs, donor_inputs, linears, layers):
    """Logits for one text in which outputs of parts are those on another text.

    `linears` has (linear layer, columns of its input) for closed heads and neurons, `layers` modules
    of closed layers: these add to their input what they add on the other text. Beyond the end of
    the other text both are 0. Each text is run alone, so there is no padding.
    """
    recorded = {}
    hooks = []

    def states_of(args, kwargs):
        return args[0] if args else kwargs["hidden_states"]

    def record_input(part, args):
        recorded[part] = args[0].detach()

    def record_added(part, args, kwargs, output):
        result = output[0] if isinstance(output, tuple) else output
        recorded[part] = (result - states_of(args, kwargs)).detach()

    def as_long_as(values, other):
        length = min(values.shape[1], other.shape[1])
        longer = torch.zeros_like(values)
        longer[:, :length] = other[:, :length]
        return longer

    for linear, _ in linears:
        hooks.append(linear.register_forward_pre_hook(record_input))
    for layer in layers:
        hooks.append(layer.register_forward_hook(record_added, with_kwargs=True))
    module(**donor_inputs)
    for hook in hooks:
        hook.remove()

    def patch_input(part, args):
        values = args[0].clone()
        for linear, columns in linears:
            if linear is part:
                values[..., columns] = as_long_as(args[0], recorded[part])[..., columns]
        return (values, *args[1:])

    def patch_added(part, args, kwargs, output):
        states = states_of(args, kwargs)
        patched = states + as_long_as(states, recorded[part])
        return (patched, *output[1:]) if isinstance(output, tuple) else patched

    hooks = [part.register_forward_pre_hook(patch_input) for part in {part for part, _ in linears}]
    for layer in layers:
        hooks.append(layer.register_forward_hook(patch_added, with_kwargs=True))
    logits = module(**inputs).logits
    for hook in hooks:
        hook.remove()
    return logits
