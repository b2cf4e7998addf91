"""Slow second derivations: each formula of headlab again, in another way. Never imported by the package."""

from __future__ import annotations

from itertools import combinations, permutations, product
from math import comb, exp, factorial, log
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from scipy import stats


def full_shapley(value: Any, players: int) -> np.ndarray:
    """Average marginal gain over all orders, by enumeration.

    Args:
        value: Frozenset of players present -> float.
    """
    total = np.zeros(players)
    for order in permutations(range(players)):
        present = set(range(players))
        for player in order:
            before = value(frozenset(present))
            present.remove(player)
            total[player] += before - value(frozenset(present))
    return total / factorial(players)


def top_half_shapley(value: Any, players: int) -> np.ndarray:
    """Average gain of a player over the orders that remove it in their first half, an odd number's middle included."""
    total = np.zeros(players)
    count = np.zeros(players)
    for order in permutations(range(players)):
        present = set(range(players))
        for player in order[: (players + 1) // 2]:
            before = value(frozenset(present))
            present.remove(player)
            total[player] += before - value(frozenset(present))
            count[player] += 1
    return total / count


def worth(key: str, logits: list[float], label: int) -> float:
    """What one answer is worth as a share of the value's span, from the definition of softmax."""
    if key == "accuracy":
        return float(logits[label] == max(logits))
    highest = max(logits)
    below = sum(exp(x - highest) for x in logits)
    if key == "probability":
        return exp(logits[label] - highest) / below
    nats = logits[label] - highest - log(below)
    return (max(nats, -10.0) + 10.0) / 10.0


def margin(logits: list[float], label: int) -> float:
    """How far the right answer is ahead of the best other one."""
    return logits[label] - max(x for place, x in enumerate(logits) if place != label)


def soft_distance(rows: list[list[float]], labels: list[int], warmth: float) -> float:
    """Smoothed smallest distance of an answer from its turn: its margin if it is right, minus that if it is wrong."""
    found = []
    for logits, label in zip(rows, labels, strict=True):
        runner_up = warmth * log(
            sum(exp(x / warmth) for place, x in enumerate(logits) if place != label)
        )
        found.append((logits[label] - runner_up) * (1 if margin(logits, label) >= 0 else -1))
    return -warmth * log(sum(exp(-x / warmth) for x in found))


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
    usual: tuple[float, ...],
) -> list[float]:
    """What each fraction gets of the capital, for one head: by how much a unit grows with the draws and mirrored ones.

    Against a mean `width` below 0: a fraction whose log growth is a share g of the best one's gets e^(8 (g - 1)), and
    a twentieth stays in the usual shares.
    """
    both = [*zip(support, counts, strict=True), *zip(-support, counts, strict=True)]
    grown = [
        sum(log_capital(np.array([v]), np.array([c]), -width, (fraction,), (1.0,)) for v, c in both)
        for fraction in fractions
    ]
    weights = [np.exp(8 * (g / max(grown) - 1)) for g in grown]
    return [
        0.95 * weight / sum(weights) + 0.05 * share
        for weight, share in zip(weights, usual, strict=True)
    ]


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rho from its definition: Pearson of average ranks."""

    def ranks(v: np.ndarray) -> np.ndarray:
        return np.array([(np.sum(v < a) + np.sum(v <= a) - 1) / 2 for a in v])

    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def finite_difference(loss: Any, gates: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """d loss / d gate by central differences, one gate at a time.

    Args:
        loss: Gates [layer, head] -> float.
    """
    out = np.zeros_like(gates)
    for place in np.ndindex(*gates.shape):
        up = gates.copy()
        down = gates.copy()
        up[place] += step
        down[place] -= step
        out[place] = (loss(up) - loss(down)) / (2 * step)
    return out


def token_importance(
    module: Any,
    sentences: list[dict[str, torch.Tensor]],
    labels: list[int],
    projections: list[Any],
    heads: int,
) -> np.ndarray:
    """Head importance as the BERT code of Michel et al. (2019) has it, [layer, head], one sentence after the other.

    The dot product of each head's output with the loss's gradient by it, token by token, in
    absolute value; summed over the tokens of all sentences, and divided by their number, in the
    last layer by that of the sentences.

    Args:
        projections: Of every layer, the linear map that takes the heads' outputs.
    """
    total = np.zeros((len(projections), heads))
    tokens = 0
    for inputs, label in zip(sentences, labels, strict=True):
        outputs: list[torch.Tensor] = []

        def keep(
            _: Any, args: tuple[torch.Tensor, ...], outputs: list[torch.Tensor] = outputs
        ) -> None:
            outputs.append(args[0])

        handles = [one.register_forward_pre_hook(keep) for one in projections]
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
                total[layer] += [abs(float(out.detach() @ by)) for out, by in parts]
        tokens += length
    total[:-1] /= tokens
    total[-1] /= len(sentences)
    return total


def confidence(weights: torch.Tensor, ids: list[int], excluded: set[int]) -> tuple[float, int]:
    """Sum over tokens of the largest weight on an allowed token, and the number of tokens: one head, one sentence."""
    total = 0.0
    for query in range(len(ids)):
        total += max(
            (float(weights[query, key]) for key in range(len(ids)) if ids[key] not in excluded),
            default=0.0,
        )
    return total, len(ids)


def gains(before: list[bool], runs: list[list[bool]]) -> list[float]:
    """What each answer gains by a change, averaged over runs of it, by counting."""
    return [sum(run[i] - old for run in runs) / len(runs) for i, old in enumerate(before)]


def holm_by_steps(p: list[float]) -> list[float]:
    """Holm's adjusted p-values from the step-down procedure: the level at which each is first rejected."""
    out = []
    for own in p:
        smaller = [x for x in p if x <= own]
        out.append(max(min(1.0, x * sum(other >= x for other in p)) for x in smaller))
    return out


def resampled_difference(
    values: list[list[float]], groups: list[list[str]], draws: int, seed: int
) -> tuple[float, float]:
    """95 % interval of the mean over languages of their means, groups of one name drawn together, draw by draw."""
    rng = np.random.default_rng(seed)
    names = sorted({g for of in groups for g in of})
    found = []
    for _ in range(draws):
        often = dict(
            zip(
                names, rng.multinomial(len(names), np.full(len(names), 1 / len(names))), strict=True
            )
        )
        means = []
        for row, of in zip(values, groups, strict=True):
            weights = [often[g] for g in of]
            means.append(
                sum(w * v for w, v in zip(weights, row, strict=True)) / max(1, sum(weights))
            )
        found.append(sum(means) / len(means))
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def resampled_apart(
    values: list[list[float]],
    groups: list[list[str]],
    draws: int,
    seed: int,
    made_up: tuple[float, float],
) -> np.ndarray:
    """Resamples of the mean over languages, each drawn from its own groups and made-up values, one by one: [draw]."""
    rng = np.random.default_rng(seed)
    found = []
    pools = []
    for row, of in zip(values, groups, strict=True):
        pools.append(
            [[v for v, g in zip(row, of, strict=True) if g == name] for name in sorted(set(of))]
        )
        pools[-1] += [[v] for v in made_up]
    for _ in range(draws):
        means = []
        for pool in pools:
            drawn = [v for place in rng.integers(len(pool), size=len(pool)) for v in pool[place]]
            means.append(sum(drawn) / len(drawn))
        found.append(sum(means) / len(means))
    return np.array(found)


def resampled_means(
    values: np.ndarray, groups: tuple[str, ...], made_up: tuple[float, float]
) -> np.ndarray:
    """Every resample of as many groups, the made-up ones among them, drawn with replacement: its mean, each once."""
    pool = [values[[g == name for g in groups]] for name in sorted(set(groups))] + [
        np.array([v]) for v in made_up
    ]
    return np.array([np.concatenate(drawn).mean() for drawn in product(pool, repeat=len(pool))])


def left_out_interval(
    sums: np.ndarray, weights: list[float], groups: list[str], of: Any, level: float = 0.95
) -> list[tuple[float, float]]:
    """Interval of each number of `of(mean)`: the mean anew without each group, t on the scale of logarithms."""
    from scipy.stats import t

    def mean(rows: list[int]) -> np.ndarray:
        return np.asarray(of(sum(sums[r] for r in rows) / sum(weights[r] for r in rows)))

    rows = [r for r, weight in enumerate(weights) if weight]
    names = sorted({groups[r] for r in rows})
    others = [mean([r for r in rows if groups[r] != name]) for name in names]
    found = []
    for at, value in enumerate(mean(rows)):
        middle = sum(other[at] for other in others) / len(names)
        variance = (
            (len(names) - 1) / len(names) * sum((other[at] - middle) ** 2 for other in others)
        )
        away = t.ppf((1 + level) / 2, len(names) - 1) * variance**0.5 / value if value else 0.0
        found.append((value * np.exp(-away), value * np.exp(away)))
    return found


def bca(
    point: float, resampled: np.ndarray, jackknife: np.ndarray, level: float = 0.95
) -> list[float]:
    """Efron's BCa interval of one number, by the book (Efron & Tibshirani 1993, section 14.3)."""
    normal = NormalDist()
    under = np.mean([(r < point) + (r == point) / 2 for r in resampled])
    z0 = normal.inv_cdf((under * len(resampled) + 0.5) / (len(resampled) + 1))
    mean = float(np.mean(jackknife))
    a = sum((mean - j) ** 3 for j in jackknife) / (
        6 * sum((mean - j) ** 2 for j in jackknife) ** 1.5
    )
    ends = [normal.inv_cdf(share) for share in ((1 - level) / 2, (1 + level) / 2)]
    return [
        float(np.quantile(resampled, normal.cdf(z0 + (z0 + z) / (1 - a * (z0 + z))))) for z in ends
    ]


def stepped_up(halves: np.ndarray) -> float:
    """Spearman-Brown from its meaning: reliability of a sum of two parts of equal variance and correlation r."""
    r = spearman(*halves)
    true = 2 * 2 * r
    noise = 2 * (1 - r)  # variances of a sum of two parts r + (1 - r) each
    return min(1.0, max(0.0, true / (true + noise)))


def average_linkage(distance: np.ndarray) -> list[tuple[frozenset[int], float]]:
    """Merges of average linkage, nearest first: the rows of each, and the mean distance between its two parts."""
    parts = [frozenset({i}) for i in range(len(distance))]
    out = []
    while len(parts) > 1:
        pairs = [
            (np.mean([distance[i, j] for i in a for j in b]), a, b)
            for a, b in combinations(parts, 2)
        ]
        height, a, b = min(pairs, key=lambda pair: pair[0])
        parts = [p for p in parts if p not in (a, b)] + [a | b]
        out.append((a | b, float(height)))
    return out


def looks_at(
    weights: np.ndarray, looking: list[bool], ids: list[int], real: list[bool], wanted: set[int]
) -> float:
    """Share of the tokens that look, whose largest weight [query, key] is on a wanted one and on nothing else."""
    hits = 0
    for query in (q for q, looks in enumerate(looking) if looks):
        largest = max(weights[query, key] for key in range(len(ids)) if real[key])
        hits += all(
            ids[key] in wanted
            for key in range(len(ids))
            if real[key] and weights[query, key] == largest
        )
    return hits / sum(looking)


def area(right: list[bool], removed: list[int]) -> float:
    """One answer's area under a curve: a trapezoid between every two counts, its base a share of the last count."""
    steps = zip(removed, removed[1:], right, right[1:], strict=False)
    return sum((b - a) / removed[-1] * (int(x) + int(y)) / 2 for a, b, x, y in steps)


class Neuron:
    """One number of a network, with the weight ratio w of every neuron it is made of (Voita et al. 2019, A.2)."""

    def __init__(self, value: float, ratios: list[tuple[Neuron, float]] | None = None) -> None:
        self.value = value
        self.ratios = ratios or []

    @staticmethod
    def summed(inputs: list[Neuron], weights: Any, bias: float = 0.0) -> Neuron:
        """v = Σ W u + b, w = W u / v: what the bias takes goes to nobody."""
        value = sum(float(w) * u.value for u, w in zip(inputs, weights, strict=True)) + float(bias)
        return Neuron(
            value, [(u, float(w) * u.value / value) for u, w in zip(inputs, weights, strict=True)]
        )

    @staticmethod
    def product_sum(
        left: list[Neuron], right: list[Neuron], left_part: float, scale: float = 1.0
    ) -> Neuron:
        """v = c Σ a b; of the share c a b / v of a product, its left factor takes a part and the right one the rest."""
        value = scale * sum(a.value * b.value for a, b in zip(left, right, strict=True))
        ratios = []
        for a, b in zip(left, right, strict=True):
            share = scale * a.value * b.value / value
            ratios += [(a, left_part * share), (b, (1 - left_part) * share)]
        return Neuron(value, ratios)

    @staticmethod
    def softmaxed(scores: list[Neuron]) -> list[Neuron]:
        """Weights A of scores s, w = s_j (δ_jk - A_j): its first order at s, the rest taken by nobody."""
        total = sum(exp(s.value) for s in scores)
        weights = [exp(s.value) / total for s in scores]
        return [
            Neuron(
                own, [(s, s.value * ((s is scores[k]) - weights[j])) for j, s in enumerate(scores)]
            )
            for k, own in enumerate(weights)
        ]

    @staticmethod
    def normed(inputs: list[Neuron], weight: Any, bias: Any, eps: float) -> list[Neuron]:
        """Layer norm as a sum over its inputs, W_ij = γ_i / σ (δ_ij - 1/n), with σ a number."""
        size = len(inputs)
        values = np.array([u.value for u in inputs])
        scale = 1 / np.sqrt(values.var() + eps)
        row = [(np.arange(size) == i) - 1 / size for i in range(size)]
        return [
            Neuron.summed(inputs, float(weight[i]) * scale * row[i], bias[i]) for i in range(size)
        ]

    def relevance(self) -> dict[int, float]:
        """r of every neuron for this one, by id: r_u = Σ over z made of u of w_uz r_z, last made first."""
        order: list[Neuron] = []
        seen: set[int] = set()

        def visit(neuron: Neuron) -> None:
            if id(neuron) not in seen:
                seen.add(id(neuron))
                for below, _ in neuron.ratios:
                    visit(below)
                order.append(neuron)

        visit(self)
        found = dict.fromkeys(map(id, order), 0.0) | {id(self): self.value}
        for neuron in reversed(order):
            for below, ratio in neuron.ratios:
                found[id(below)] += ratio * found[id(neuron)]
        return found


def shared_by_chance(heads: int, one: int, other: int) -> list[float]:
    """Probability of every number of heads that `one` first heads share with a choice of `other`: by all choices."""
    shared = [sum(head < one for head in chosen) for chosen in combinations(range(heads), other)]
    return [shared.count(number) / len(shared) for number in range(min(one, other) + 1)]


def mean_correlation(languages: list[list[np.ndarray]], drawn: list[int]) -> float:
    """Mean over languages of Spearman's rho of two methods' scores of the heads in `drawn`, repeats and all."""
    return float(np.mean([spearman(one[drawn], other[drawn]) for one, other in languages]))


def word_looks(weights: np.ndarray, places: list[int], causal: bool) -> dict[int, int]:
    """{word: the word it looks at most}: rows of a word's tokens averaged, columns added.

    Args:
        weights: [query, key].
    """
    out = {}
    words = sorted(set(places) - {-1})
    for looker in words:
        mine = [t for t, place in enumerate(places) if place == looker]
        best = -1
        most = -1.0
        for target in words:
            its = [t for t, place in enumerate(places) if place == target]
            got = sum(sum(float(weights[q, k]) for k in its) for q in mine) / len(mine)
            if got > most and not (causal and target > looker):
                best = target
                most = got
        out[looker] = best
    return out


def word_weights(weights: np.ndarray, places: list[int]) -> list[list[float]]:
    """Attention between words, entry by entry: the sum over a key word's pieces, averaged over the query word's.

    Args:
        places: The word of each token, -1 for none; such a token stands for itself, where it is.
    """
    units: list[list[int]] = []
    for at, place in enumerate(places):
        if place >= 0 and place in places[:at]:
            next(unit for unit in units if places[unit[0]] == place).append(at)
        else:
            units.append([at])
    return [
        [
            sum(sum(weights[query][key] for key in other) for query in unit) / len(unit)
            for other in units
        ]
        for unit in units
    ]


def largest_link(weights: np.ndarray, fits: Any) -> tuple[float, int, int] | None:
    """The largest weight with its (query, key) among the pairs that fit, the first of equals; None without any."""
    best = None
    for query, row in enumerate(weights):
        for key, weight in enumerate(row):
            if fits(query, key) and (best is None or weight > best[0]):
                best = (float(weight), query, key)
    return best


def token_looks(weights: np.ndarray, allowed: Any) -> dict[int, tuple[int, list[int]]]:
    """{query: (the allowed key of the largest weight, all allowed keys)}.

    Args:
        allowed: (query, key) -> bool.
    """
    out = {}
    for query in range(weights.shape[0]):
        keys = [key for key in range(weights.shape[1]) if allowed(query, key)]
        if keys:
            out[query] = (max(keys, key=lambda k: float(weights[query, k])), keys)
    return out


def role_tally(
    looks: dict[int, tuple[int, list[int]]], special: list[bool], right: Any
) -> tuple[int, int, float]:
    """(hits, asked, hits by chance) of one sentence and head.

    Args:
        right: (query, key) -> bool.
    """
    hits = asked = 0
    chance = 0.0
    for query, (most, keys) in looks.items():
        good = [key for key in keys if right(query, key)]
        if not special[query] and 0 < len(good) < len(keys):
            hits = hits + (most in good)
            asked = asked + 1
            chance = chance + len(good) / len(keys)
    return hits, asked, chance


def clustered_share(hits: list[int], asked: list[int], level: float) -> tuple[float, float, float]:
    """Share and its Clopper-Pearson bounds at the effective sample size, bounds found by halving."""
    from scipy.special import betainc
    from scipy.stats import t

    pairs = [(h, n) for h, n in zip(hits, asked, strict=True) if n]
    total = sum(n for _, n in pairs)
    sentences = len(pairs)
    share = sum(h for h, _ in pairs) / total
    size: float = sentences
    if 0 < share < 1:
        variance = (
            sentences / (sentences - 1) * sum((h - share * n) ** 2 for h, n in pairs) / total**2
        )
        tail = (1 + level) / 2
        fewer = (t.ppf(tail, total - 1) / t.ppf(tail, sentences - 1)) ** 2
        size = min(total, share * (1 - share) / variance * fewer)
    x = share * size
    alpha = (1 - level) / 2

    def halved(above: Any) -> float:
        low = 0.0
        high = 1.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (low, middle) if above(middle) else (middle, high)
        return low

    low = halved(lambda p: betainc(x, size - x + 1, p) > alpha) if x else 0.0
    high = halved(lambda p: 1 - betainc(x + 1, size - x, p) < alpha) if x < size else 1.0
    return share, low, high


def greedy(
    module: Any, source: torch.Tensor, *, start: int, end: int, limit: int, first: int | None = None
) -> list[int]:
    """Tokens of the likeliest-next-token translation of one source, each from a pass over all before it.

    Args:
        first: Token that it begins with, whatever the model finds likely.
    """
    written = [start] if first is None else [start, first]
    while len(written) <= limit and written[-1] != end:
        scores = module(
            input_ids=source, decoder_input_ids=torch.tensor([written]), use_cache=False
        ).logits[0, -1]
        written.append(end if len(written) == limit else int(scores.argmax()))
    return written[1:]


def bleu(texts: list[str], references: list[str]) -> float:
    """BLEU of words between spaces from its definition, with an unseen order's precision halved."""
    right = [0] * 4
    total = [0] * 4
    words = 0
    wanted = 0
    for text, reference in zip(texts, references, strict=True):
        a = text.split()
        b = reference.split()
        words = words + len(a)
        wanted = wanted + len(b)
        for n in range(1, 5):
            left = [b[i : i + n] for i in range(len(b) - n + 1)]
            for gram in (a[i : i + n] for i in range(len(a) - n + 1)):
                total[n - 1] += 1
                if gram in left:
                    left.remove(gram)
                    right[n - 1] += 1
    if not any(right) or not all(total):
        return 0.0
    score = min(1.0, exp(1 - wanted / words))
    halved = 1.0
    for found, of in zip(right, total, strict=True):
        halved = halved if found else halved / 2
        score *= ((found or halved) / of) ** 0.25
    return 100 * score


def hard_concrete(
    log_alpha: float, temperature: float, low: float, high: float, cells: int = 200_000
) -> Any:
    """(P(gate ≠ 0), P(gate = 1), mean, variance) of Louizos et al. (2018), equations 10 and 11: a sum over u."""
    u = (np.arange(cells) + 0.5) / cells
    gates = np.minimum(
        1.0,
        np.maximum(
            0.0, (high - low) / (1 + ((1 - u) / (u * np.exp(log_alpha))) ** (1 / temperature)) + low
        ),
    )
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
        own = slice(head * size, (head + 1) * size)
        query, key, value = (hidden @ weights[name][own].T for name in ("query", "key", "value"))
        for t in range(len(hidden)):
            scores = []
            values = []
            for c in range(t + 1):
                far = (
                    0.0
                    if distances is None
                    else query[t] @ distances[min(t - c, len(distances) - 1)]
                )
                scores.append((query[t] @ key[c] + far) / size**0.5)
                values.append(value[c])
            for n in range(persistent[0].shape[1]):
                scores.append(query[t] @ persistent[0][head, n] / size**0.5)
                values.append(persistent[1][head, n])
            shares = np.exp(np.array(scores) - max(scores))
            context[t, own] = shares / shares.sum() @ np.array(values)
    return context @ weights["out"].T


def median_rank(n: int, level: float) -> int:
    """Largest k for which the k-th value from either end encloses the median with probability `level`, by counting."""
    best = 0
    for k in range(1, n // 2 + 1):
        outside = sum(factorial(n) / (factorial(i) * factorial(n - i)) for i in range(k)) / 2**n
        if 1 - 2 * outside >= level:
            best = k
    return best


def encoder_macs(
    layers: list[int], size: int, width: int, inner: int, labels: int, pooled: int, tokens: int
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
    return total + width * pooled + pooled * labels


def jaccard(a: set[Any], b: set[Any]) -> float:
    """Members of both sets by members of either, counted one by one; 1 for two empty sets."""
    either = list(a) + [x for x in b if x not in a]
    if either:
        return sum(x in a and x in b for x in either) / len(either)
    return 1.0


def removed_by_most(sets: list[set[Any]]) -> set[Any]:
    """Heads that more of the sets hold than lack."""
    return {
        x for x in set().union(*sets) if sum(x in s for s in sets) > sum(x not in s for s in sets)
    }


def between_colours(scale: tuple[tuple[float, str], ...], share: float) -> str:
    """The colour at a share of a scale, each channel by numpy's interpolation."""
    places = [place for place, _ in scale]
    channels = [
        np.interp(share, places, [int(c[i : i + 2], 16) for _, c in scale]) for i in (1, 3, 5)
    ]
    return "#" + "".join(f"{round(float(channel)):02x}" for channel in channels)


def undominated(points: list[tuple[float, float]]) -> list[bool]:
    """Points (cost, value) that no other beats: as cheap and as good, and better in one of the two; pair by pair."""
    return [
        not any(c <= cost and v >= value and (c < cost or v > value) for c, v in points)
        for cost, value in points
    ]


def leaving_by_best_rank(scores: list[list[float]]) -> list[int]:
    """Heads in the order they leave: by the best rank any language gives them, then by the mean of their ranks.

    Args:
        scores: [language][head], all different within a language. One head after another, the least
            needed first.
    """
    heads = range(len(scores[0]))
    left = set(range(len(scores[0])))
    rank = {
        (i, h): 1 + sum(row[g] > row[h] for g in heads)
        for i, row in enumerate(scores)
        for h in heads
    }
    out = []
    while left:
        best = {h: min(rank[i, h] for i in range(len(scores))) for h in left}
        mean = {h: sum(rank[i, h] for i in range(len(scores))) / len(scores) for h in left}
        out.append(max(left, key=lambda h: (best[h], mean[h], h)))
        left.remove(out[-1])
    return out


def parameters_of_attention(hidden: int, size: int, heads: int) -> int:
    """Weights of one attention with biases, counted one by one: a row for each number of query, key and value."""
    rows = [[1] * hidden + [1] for _ in range(3 * heads * size)]  # with its bias
    out = [[1] * (heads * size) + [1] for _ in range(hidden)]
    return sum(map(sum, rows)) + sum(map(sum, out))


def perplexity_interval(nats: Any, words: Any) -> tuple[float, float]:
    """95 % interval of exp(Σ nats / Σ words) by the jackknife: passages left out one by one, t by S - 1 degrees."""
    count = len(nats)
    middle = sum(nats) / sum(words)
    without = [(sum(nats) - nats[i]) / (sum(words) - words[i]) for i in range(count)]
    mean = sum(without) / count
    error = ((count - 1) / count * sum((one - mean) ** 2 for one in without)) ** 0.5
    width = stats.t.ppf(0.975, count - 1) * error
    return exp(middle - width), exp(middle + width)


def log_probabilities(
    module: Any, source: torch.Tensor, given: list[int], asked: list[int]
) -> list[float]:
    """Log-probability of each token asked for, behind those given and before it, each from a pass of its own."""
    out = []
    before = list(given)
    for token in asked:
        with torch.no_grad():
            scores = module(
                input_ids=source, decoder_input_ids=torch.tensor([before]), use_cache=False
            ).logits[0, -1]
        likely = scores.double().exp()
        out.append(float((likely[token] / likely.sum()).log()))
        before.append(token)
    return out


def continued(module: Any, context: list[int], tokens: list[int]) -> list[float]:
    """Log-probability of each token behind a context and the tokens before it, each from a pass of its own."""
    out = []
    before = list(context)
    for token in tokens:
        with torch.no_grad():
            likely = (
                module(input_ids=torch.tensor([before]), use_cache=False)
                .logits[0, -1]
                .double()
                .exp()
            )
        out.append(float((likely[token] / likely.sum()).log()))
        before.append(token)
    return out


def orders_compared(counts: list[list[int]]) -> tuple[float, float, float]:
    """The best order's share of right answers, the next best one's, and the best one's p-value over all others.

    Args:
        counts: Examples by [class][label], which are compared one by one; sign tests by summing
            coefficients.
    """
    examples = [
        (c, label) for c, row in enumerate(counts) for label, n in enumerate(row) for _ in range(n)
    ]
    hits = [
        [order[label] == answer for answer, label in examples]
        for order in permutations(range(len(counts)))
    ]
    best = max(range(len(hits)), key=lambda at: sum(hits[at]))
    ps = []
    for other in (*hits[:best], *hits[best + 1 :]):
        won = sum(a and not b for a, b in zip(hits[best], other, strict=True))
        n = won + sum(b and not a for a, b in zip(hits[best], other, strict=True))
        ps.append(sum(comb(n, k) for k in range(won, n + 1)) / 2**n)
    total = max(1, len(examples))
    second = max(sum(row) for at, row in enumerate(hits) if at != best)
    return sum(hits[best]) / total, second / total, min(1.0, max(ps) * len(ps))
