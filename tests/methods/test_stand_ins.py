"""Outputs on other texts in closed players' places: slow loops, bits, planted heads, refusals."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import reference
import torch
from numpy.testing import assert_allclose, assert_array_equal
from support.expected_errors import raises
from support.likelihood_tasks import CHOICES, language_model, random_words
from support.players_by_hand import GROUPS, down_of, playing
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from support.translation_task import TASK as TRANSLATIONS

from headlab.core import Stack, drawn_donors, value_function_of
from headlab.evaluation import Evaluator, stand_ins
from headlab.evaluation.inputs import Pairs
from headlab.hooks import ActiveGates, Model
from headlab.hooks.player_models import parts_of
from headlab.masks import Mask
from headlab.methods import METHODS
from headlab.methods.exact import every_donor
from headlab.methods.model_game import ModelGame
from headlab.methods.run import score
from headlab.methods.smoothed import DrawStream, SlopePlan, SlopeTally, measured_first
from headlab.methods.spec import answers_spec, make_spec
from headlab.results import Store
from headlab.tasks import Example, Split, Task

EXAMPLES = 6
GAMES = (
    ("bert", "attention"),
    ("bert", "feed-forward"),
    ("bert", "neurons:2"),
    ("bert", "layers"),
    ("bert", "attention,feed-forward"),
    ("bert", "feed-forward,layers"),
    ("llama", "kv-groups"),
    ("llama", "layers"),
    ("gpt2", "attention,layers"),
)
OTHER_TEXTS = ("resample", "counterfactual")


@cache
def model_of(family: str) -> Model:
    return tiny_model(family, tokenizer=tiny_tokenizer())


def read_with_contrasts(language: str, split: Split, seed: int) -> list[Example]:
    """Every second word of a text is another one in its counterfactual."""
    examples = []
    for example in tiny_task().read(language, split, seed):
        words = example.text.split()
        words[::2] = ["w7" if word != "w7" else "w8" for word in words[::2]]
        examples.append(replace(example, counterfactuals=(" ".join(words),)))
    return examples


def task_with_contrasts() -> Task:
    return replace(tiny_task(), read=read_with_contrasts)


def evaluator_of(model: Model, size: int = EXAMPLES) -> Evaluator:
    return Evaluator(model, task_with_contrasts(), "xx", "dev", size)


def pairs_of(ablation: str, size: int) -> list[tuple[int, int]]:
    """Examples with their donors: every other one, or the counterfactual of the same number."""
    if ablation == "counterfactual":
        return [(row, row) for row in range(size)]
    return [(row, donor) for row in range(size) for donor in range(size) if donor != row]


def patches_of(model: Model, family: str, variant: Model, closed: np.ndarray) -> tuple[list, list]:
    """What `reference.patched_logits` patches where these players are closed, bool [player]."""
    linears, layers = [], []
    rows: dict[tuple[str, int], int] = {}
    for row, name in enumerate(model.grid.rows):
        rows[name, sum(other == name for other in model.grid.rows[:row])] = row
    for player, is_closed in zip(variant.grid.heads, closed, strict=True):
        if not is_closed:
            continue
        stack = Stack(player.stack, ())
        if stack.kind in ("heads", "kv-groups", "attention"):
            row = rows[stack.base, player.layer]
            heads = model.calls[row].heads
            shared = {"heads": 1, "kv-groups": heads // 2, "attention": heads}[stack.kind]
            projection = model.projections[row]
            width = projection.weight.shape[int(isinstance(projection, torch.nn.Linear))] // heads
            start = player.head * shared * width
            linears.append((projection, list(range(start, start + shared * width))))
        elif stack.kind == "layers":
            parts = parts_of(model)
            places = [(place.stack, place.number) for place in parts.layers]
            layers.append(parts.modules[places.index((stack.base, player.layer))])
        else:
            down = down_of(model, family, stack.base, player.layer)
            size = down.weight.shape[int(isinstance(down, torch.nn.Linear))]
            columns = list(range(size))
            linears.append(
                (down, columns[player.head :: GROUPS] if stack.kind == "neurons" else columns)
            )
    return linears, layers


def value_by_hand(
    model: Model, family: str, variant: Model, ablation: str, kept: np.ndarray
) -> float:
    """Mean probability of the right label over examples and donors, text by text, by plain hooks."""
    evaluator = evaluator_of(model)
    inputs = evaluator.inputs
    others = inputs if ablation == "resample" else evaluator.donor_texts(ablation).inputs
    patches = patches_of(model, family, variant, ~kept)
    worths = []
    with torch.no_grad():
        for row, donor in pairs_of(ablation, EXAMPLES):
            logits = reference.patched_logits(
                model.module,
                inputs.tensors(np.array([row])),
                others.tensors(np.array([donor])),
                *patches,
            )
            label = evaluator.examples[row].label
            worths.append(float(torch.softmax(logits[0], -1)[label]))
    return float(np.mean(worths))


@pytest.mark.parametrize("ablation", OTHER_TEXTS)
@pytest.mark.parametrize(("family", "players"), GAMES)
def test_exact_values_are_those_of_a_slow_loop_that_patches_by_hooks(
    family: str, players: str, ablation: str
) -> None:
    model = model_of(family)
    variant = playing(model, players)
    values: dict[frozenset[int], float] = {}

    def value(present: frozenset[int]) -> float:
        if present not in values:
            kept = np.isin(np.arange(variant.grid.size), list(present))
            values[present] = value_by_hand(model, family, variant, ablation, kept)
        return values[present]

    scores = score(
        variant,
        task_with_contrasts(),
        language="xx",
        method="exact",
        size=EXAMPLES,
        ablation=ablation,
        estimand="shapley",
        value="probability",
    )
    assert_allclose(scores.values, reference.full_shapley(value, variant.grid.size), atol=1e-9)
    assert (scores.values != 0).any()


@pytest.mark.parametrize("ablation", OTHER_TEXTS)
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_mask_of_heads_answers_as_by_hand_with_its_fixed_donors(
    family: str, ablation: str
) -> None:
    model = model_of(family)
    evaluator = evaluator_of(model, 10)
    kept = np.arange(model.grid.size) % 3 != 0
    others = evaluator.inputs
    donors = drawn_donors(0, 0, np.arange(10), 10)
    if ablation == "counterfactual":
        others, donors = evaluator.donor_texts(ablation).inputs, np.arange(10)
    patches = patches_of(model, family, model, ~kept)
    by_hand = []
    with torch.no_grad():
        for row, donor in enumerate(donors.tolist()):
            logits = reference.patched_logits(
                model.module,
                evaluator.tensors(np.array([row])),
                others.tensors(np.array([donor])),
                *patches,
            )
            by_hand.append(int(logits[0].argmax()))
    evaluation = evaluator.evaluate(Mask(model.grid, kept), ablation=ablation)
    assert evaluation.predicted.tolist() == by_hand
    assert evaluation.omissions is not None
    assert (evaluation.omissions.beyond_donors is None) == (ablation == "counterfactual")
    gates = np.repeat(model.grid.gates(kept)[None], 10, axis=0)
    right = evaluator.correct(gates, np.arange(10), ablation=ablation)
    assert_array_equal(right, evaluation.correct)
    # Other evaluations in between change nothing, as a mask's donors are always the same.
    evaluator.evaluate(Mask(model.grid, ~kept), ablation=ablation)
    again = evaluator_of(model, 10).evaluate(Mask(model.grid, kept), ablation=ablation)
    assert_array_equal(again.predicted, evaluation.predicted)


PLAYERS = ("heads", "attention,feed-forward", "neurons:2,layers")


def game_of(variant: Model, ablation: str = "resample", size: int = EXAMPLES) -> ModelGame:
    return ModelGame(evaluator_of(variant, size), ablation, value_function_of("probability"))


@pytest.mark.parametrize("players", PLAYERS)
@pytest.mark.parametrize("family", ["bert", "llama"])
def test_a_donor_equal_to_the_example_changes_nothing_to_the_bit(family: str, players: str) -> None:
    variant = playing(model_of(family), players)
    game = game_of(variant)
    rows = np.arange(EXAMPLES)
    none_kept = np.zeros((EXAMPLES, game.players), dtype=bool)
    untouched = game.values(~none_kept, rows, rows[::-1].copy())
    assert_array_equal(game.values(none_kept, rows, rows), untouched)
    assert (game.values(none_kept, rows, rows[::-1].copy()) != untouched).any()
    # Branched rows are summed in another order, as under any ablation.
    assert_allclose(game.marginals(none_kept, ~none_kept, rows, rows), 0, atol=1e-12)
    assert not game.slopes(none_kept, rows, np.array(1.0), rows).any()
    task = replace(
        tiny_task(),
        read=lambda *of: [replace(e, counterfactuals=(e.text,)) for e in tiny_task().read(*of)],
    )
    evaluator = Evaluator(variant, task, "xx", "dev", EXAMPLES)
    own_game = ModelGame(evaluator, "counterfactual", value_function_of("probability"))
    assert_array_equal(own_game.values(none_kept, rows), untouched)


def test_one_row_may_have_itself_as_donor_beside_others() -> None:
    game = game_of(playing(model_of("bert"), "attention,layers"))
    rows = np.arange(EXAMPLES)
    none_kept = np.zeros((EXAMPLES, game.players), dtype=bool)
    donors = np.where(rows == 2, rows, (rows + 1) % EXAMPLES)
    untouched = game.values(~none_kept, rows, donors)
    patched = game.values(none_kept, rows, donors)
    assert patched[2] == untouched[2]
    assert (np.delete(patched, 2) != np.delete(untouched, 2)).all()


@pytest.mark.parametrize("players", PLAYERS)
@pytest.mark.parametrize("family", ["bert", "llama", "albert"])
def test_resumed_and_branched_passes_give_the_gains_of_full_ones(family: str, players: str) -> None:
    if family == "albert":
        players = "layers"
    game = game_of(playing(model_of(family), players))
    rng = np.random.default_rng(1)
    kept = rng.random((8, game.players)) < 0.5
    examples = rng.integers(EXAMPLES, size=8)
    donors = (examples + 1 + rng.integers(EXAMPLES - 1, size=8)) % EXAMPLES
    everyone = np.ones_like(kept)
    full = np.zeros(kept.shape)
    for player in range(game.players):
        with_player, without = kept.copy(), kept.copy()
        with_player[:, player], without[:, player] = True, False
        values_with = game.values(with_player, examples, donors)
        full[:, player] = values_with - game.values(without, examples, donors)
    branched = game.marginals(kept, everyone, examples, donors)
    assert_allclose(branched, full, atol=1e-9)
    no_halvings = np.zeros((64, game.players), np.int64)
    screened = game.screened(
        kept, everyone, examples, no_halvings, np.zeros(kept.shape), donors=donors
    )
    assert_allclose(screened[2], full, atol=1e-9)
    orders = np.stack([rng.permutation(game.players) for _ in range(8)])
    walked = game.gains(orders, examples, donors=donors)
    for row, order in enumerate(orders):
        present = np.ones((game.players + 1, game.players), dtype=bool)
        for step, player in enumerate(order):
            present[step + 1 :, player] = False
        same = np.full(game.players + 1, examples[row])
        values = game.values(present, same, np.full(len(same), donors[row]))
        assert_allclose(walked[row], values[:-1] - values[1:], atol=1e-9)


def test_slopes_are_the_gradient_towards_the_donor() -> None:
    """By finite differences of gates between 0 and 1."""
    model = model_of("bert")
    game = game_of(model)
    evaluator = game.evaluator
    rows, donors = np.arange(3), np.array([3, 4, 5])
    kept = np.random.default_rng(2).random((3, game.players)) < 0.5
    slopes = game.slopes(kept, rows, np.array(1.0), donors)
    player = 1
    layer, head = model.grid.flat[player]
    gates = torch.as_tensor(model.grid.gates(kept), dtype=torch.float64)
    stand_in = evaluator.stand_in("resample", rows, donors)
    worths = []
    for step in (1e-5, -1e-5):
        moved = gates.clone()
        moved[:, layer, head] += step
        with torch.inference_mode(), model.active(stand_in.active(moved)):
            worths.append(evaluator.worth(rows, game.value))
    assert_allclose(slopes[:, player], (worths[0] - worths[1]) / 2e-5, atol=1e-7)


@pytest.mark.parametrize("players", ["attention,feed-forward", "layers"])
@pytest.mark.parametrize("method", ["shapley", "monte-carlo"])
def test_intervals_of_samples_cover_exact_values(method: str, players: str) -> None:
    variant = playing(model_of("bert"), players)
    settings = {"language": "xx", "size": 12, "value": "probability", "ablation": "resample"}
    settings["estimand"] = "shapley"
    task = task_with_contrasts()
    exact = score(variant, task, method="exact", **settings)
    covered = []
    totals = np.zeros(variant.grid.size)
    for seed in range(12):
        sampled = score(
            variant, task, method=method, seed=seed, samples=48, target=None, **settings
        )
        assert sampled.low is not None
        assert sampled.high is not None
        assert sampled.slopes is None or not sampled.slopes.draws
        covered.append((sampled.low <= exact.values) & (exact.values <= sampled.high))
        totals += sampled.values / 12
    assert np.mean(covered) >= 0.95
    assert_allclose(totals, exact.values, atol=0.03)


def test_what_all_heads_are_worth_is_uncertain_while_donors_are_drawn() -> None:
    """All examples leave nothing to vary where zeros stand in, but each has met one donor only."""
    plan = SlopePlan(64, 1.0, "shapley", 0.95)

    def measured(ablation: str, seed: int) -> SlopeTally:
        game = game_of(model_of("bert"), ablation)
        tally = SlopeTally.start(game.players, plan)
        return measured_first(game, tally, DrawStream(seed), 1.0, EXAMPLES)

    tallies = [measured("resample", seed) for seed in range(30)]
    spread = np.var([tally.worth for tally in tallies])
    said = np.mean([tally.worth_variance for tally in tallies])
    assert spread > 0
    assert said >= spread
    assert measured("zero", 0).worth_variance == 0


def test_samples_converge_to_the_mean_over_every_donor() -> None:
    """A small game draws each coalition often, with another donor each time."""
    variant = playing(model_of("bert"), "attention")
    settings = {"language": "xx", "size": 3, "value": "probability", "ablation": "resample"}
    task = task_with_contrasts()
    exact = score(variant, task, method="exact", estimand="shapley", **settings)
    sampled = score(
        variant,
        task,
        method="monte-carlo",
        samples=3000,
        target=None,
        estimand="shapley",
        **settings,
    )
    spread = np.abs(exact.values).max()
    assert_allclose(sampled.values, exact.values, atol=0.1 * spread)


def test_donors_are_other_examples_all_alike_and_the_same_whoever_asks() -> None:
    examples = np.repeat(np.arange(5), 4000)
    numbers = np.tile(np.arange(4000), 5)
    donors = drawn_donors(7, numbers, examples, 5)
    assert (donors != examples).all()
    counts = Counter(zip(examples.tolist(), donors.tolist(), strict=True))
    assert len(counts) == 20
    assert all(900 < count < 1100 for count in counts.values())
    some = np.array([3, 11_000, 17])
    assert_array_equal(drawn_donors(7, numbers[some], examples[some], 5), donors[some])
    assert (drawn_donors(8, numbers, examples, 5) != donors).any()
    assert drawn_donors((1 << 63) - 1, 0, np.arange(5), 5).max() < 5
    # Fixed for all time: results are named by seeds.
    assert drawn_donors(0, 0, np.arange(8), 8).tolist() == [2, 4, 0, 5, 1, 4, 2, 6]
    rows, others = every_donor(4)
    assert sorted(zip(rows.tolist(), others.tolist(), strict=True)) == pairs_of("resample", 4)


@pytest.mark.parametrize("method", ["shapley", "leave-one-out", "monte-carlo", "smoothed", "paper"])
def test_nothing_depends_on_lanes_batches_or_memory(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = model_of("bert")
    options = {} if method == "leave-one-out" else {"samples": 64}
    if method == "paper":
        options = {"samples": 2}

    def scores() -> np.ndarray:
        return score(
            variant,
            task_with_contrasts(),
            language="xx",
            method=method,
            size=8,
            ablation="resample",
            **options,
        ).values

    once = scores()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert_array_equal(scores(), once)
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setattr(stand_ins, "MOST_BYTES", 0)  # outputs are computed for each batch
    assert_allclose(scores(), once, atol=1e-9)


def test_memory_of_all_evaluators_together_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = evaluator_of(model_of("bert")), evaluator_of(model_of("bert"))
    first.prepare("resample")
    kept = first.donor_texts("resample")
    assert kept.bytes > 0
    monkeypatch.setattr(stand_ins, "MOST_BYTES", kept.bytes + 1)
    second.prepare("resample")
    assert not kept.bytes
    assert second.donor_texts("resample").bytes
    mask = Mask(first.model.grid, np.arange(first.model.grid.size) % 2 == 0)
    answers = first.evaluate(mask, ablation="resample").predicted
    assert_array_equal(answers, second.evaluate(mask, ablation="resample").predicted)


def test_a_tick_may_need_the_outputs_that_are_being_recorded() -> None:
    """A worker serves others between two batches, in the same thread and of the same evaluator."""
    evaluator = evaluator_of(model_of("bert"), 24)
    mask = Mask(evaluator.model.grid, np.arange(evaluator.model.grid.size) % 2 == 0)
    served = []

    def serve() -> None:
        evaluator.tick = lambda: None
        served.append(evaluator.evaluate(mask, ablation="resample").predicted)

    evaluator.tick = serve
    worker = threading.Thread(target=evaluator.prepare, args=("resample",), daemon=True)
    worker.start()
    worker.join(60)
    assert not worker.is_alive()
    fresh = evaluator_of(model_of("bert"), 24)
    assert_array_equal(served[0], fresh.evaluate(mask, ablation="resample").predicted)


def test_batches_are_cut_until_their_donors_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds where outputs are computed for each batch, too."""
    evaluator = evaluator_of(model_of("bert"), 24)
    mask = Mask(evaluator.model.grid, np.arange(evaluator.model.grid.size) % 2 == 0)
    expected = evaluator.evaluate(mask, ablation="resample").predicted
    all_bytes = evaluator.donor_texts("resample").bytes
    monkeypatch.setattr(stand_ins, "MOST_BYTES", all_bytes // 4)
    sizes = []
    text_outputs = stand_ins.text_outputs

    def noted(*arguments: object) -> object:
        sizes.append(sum(batch.bytes for _, batch in arguments[0]))
        return text_outputs(*arguments)

    monkeypatch.setattr(stand_ins, "text_outputs", noted)
    fresh = evaluator_of(model_of("bert"), 24)
    assert_array_equal(fresh.evaluate(mask, ablation="resample").predicted, expected)
    assert len(sizes) > 3
    assert max(sizes) <= all_bytes // 4
    assert not fresh.donor_texts("resample").bytes


def test_donors_of_a_batch_are_read_in_passes_no_longer_than_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evaluator = evaluator_of(model_of("bert"), 24)
    texts = stand_ins.DonorTexts(evaluator.model, evaluator.inputs, 30)
    sizes = []
    recorder_of = stand_ins.recorder_of

    def noted(model: Model, inputs: dict[str, torch.Tensor]) -> object:
        sizes.append(inputs["input_ids"].numel())
        return recorder_of(model, inputs)

    monkeypatch.setattr(stand_ins, "recorder_of", noted)
    wanted = np.array([3, 3, 20, 7, 11, 0, 23])
    by_batch = texts.donors(wanted, np.zeros(7, bool))
    assert max(sizes) <= 30
    texts.prepare(lambda: None)
    kept = texts.donors(wanted, np.zeros(7, bool))
    for part, number in kept.outputs.tables:
        own = torch.zeros(7, 9, 1)
        by_kept, by_pass = (
            donors.output(part, number, own, ActiveGates()) for donors in (kept, by_batch)
        )
        assert by_kept.any()
        assert_allclose(by_kept, by_pass, atol=1e-12)


def test_share_beyond_is_that_of_all_pairs() -> None:
    lengths = np.array([3, 5, 9, 5])
    by_hand = [
        max(0, int(lengths[row]) - int(lengths[donor])) for row, donor in pairs_of("resample", 4)
    ]
    want = sum(by_hand) / 3 / lengths.sum()
    inputs = SimpleNamespace(lengths=lengths)
    assert stand_ins.share_beyond(inputs) == pytest.approx(want)


# Choices, which are packed behind their context.


def read_three_choices(*_: object, is_reversed: bool = False) -> list[Example]:
    """Contexts of 2 to 6 words with three choices of 1 to 3 words."""
    rng = np.random.default_rng(5)
    examples = []
    for row in range(EXAMPLES):
        choices = tuple(f" {random_words(rng, 1, 3)}" for _ in range(3))
        text = random_words(rng, 2, 6)
        choices = choices[::-1] if is_reversed else choices
        examples.append(Example(str(row), text, 0, choices=choices))
    return examples


def choice_evaluator(family: str, *, is_reversed: bool = False) -> Evaluator:
    read = partial(read_three_choices, is_reversed=is_reversed)
    return Evaluator(language_model(family), replace(CHOICES, read=read), "xx", "dev", EXAMPLES)


def choice_scores(evaluator: Evaluator, rows: np.ndarray, donors: np.ndarray) -> np.ndarray:
    """Log-probability of each choice with every second head resampled, [row, choice]."""
    model = evaluator.model
    kept = np.arange(model.grid.size) % 2 == 0
    gates = torch.as_tensor(model.grid.gates(np.tile(kept, (len(rows), 1))), dtype=torch.float64)
    evaluator.prepare("resample")
    active = evaluator.stand_in("resample", rows, donors).active(gates)
    with torch.inference_mode(), model.active(active):
        return evaluator.logits(evaluator.tensors(rows)).numpy()


@pytest.mark.parametrize("family", ["llama-lm", "gpt2-lm"])
def test_choices_are_patched_as_if_each_alone_followed_its_context(family: str) -> None:
    """By the donor's choice of the same number; packed rows would take another choice's outputs."""
    evaluator = choice_evaluator(family)
    packing = evaluator.inputs.packing
    assert packing.sizes.any()
    pairs = [
        (row, donor)
        for row, donor in pairs_of("resample", EXAMPLES)
        if packing.contexts[donor] >= packing.contexts[row]
    ]
    rows, donors = np.array(pairs).T
    scores = choice_scores(evaluator, rows, donors)
    model = evaluator.model
    patches = patches_of(model, family, model, np.arange(model.grid.size) % 2 == 1)

    def row_of(example: Example, choice: int) -> torch.Tensor:
        words = (example.text + example.choices[choice]).split()
        return torch.tensor([[1, *(int(word[1:]) for word in words)]])

    for (row, donor), packed_scores in zip(pairs, scores, strict=True):
        for choice in range(3):
            tokens = row_of(evaluator.examples[row], choice)
            other_tokens = row_of(evaluator.examples[donor], choice)
            with torch.no_grad():
                logits = reference.patched_logits(
                    model.module,
                    {"input_ids": tokens[:, :-1]},
                    {"input_ids": other_tokens[:, :-1]},
                    *patches,
                )
            scores_of_tokens = torch.log_softmax(logits[0], -1).gather(1, tokens[0, 1:, None])
            count = len(evaluator.examples[row].choices[choice].split())
            assert float(scores_of_tokens[-count:].sum()) == pytest.approx(
                packed_scores[choice], abs=1e-9
            )


def test_the_order_of_choices_matters_not() -> None:
    pairs = pairs_of("resample", EXAMPLES)
    rows, donors = np.array(pairs).T
    scores = choice_scores(choice_evaluator("llama-lm"), rows, donors)
    of_reversed = choice_scores(choice_evaluator("llama-lm", is_reversed=True), rows, donors)
    assert_allclose(scores, of_reversed[:, ::-1], atol=1e-9)


def test_the_share_beyond_counts_positions_of_packed_choices_and_of_both_sides() -> None:
    evaluator = choice_evaluator("llama-lm")
    packing = evaluator.inputs.packing
    rows, donors = np.array(pairs_of("resample", EXAMPLES)).T
    places = packing.places(rows, packing, donors)
    is_token = packing.segments[rows][:, : places.shape[1]] >= 0
    share = (places[is_token] < 0).sum() / (EXAMPLES - 1) / evaluator.lengths.sum()
    omissions = evaluator.omissions_under("resample")
    assert omissions.beyond_donors == pytest.approx(share) != 0
    # A long target makes up for no short source.
    inputs = object.__new__(Pairs)
    inputs.lengths_by_side = (np.array([2, 4]), np.array([4, 2]))
    inputs.lengths = sum(inputs.lengths_by_side)
    assert stand_ins.share_beyond(inputs) == pytest.approx(4 / 12)


def test_gains_of_choices_are_those_of_full_passes() -> None:
    evaluator = choice_evaluator("llama-lm")
    game = ModelGame(evaluator, "resample", value_function_of("accuracy"))
    kept = np.random.default_rng(3).random((EXAMPLES, game.players)) < 0.5
    rows = np.arange(EXAMPLES)
    donors = (rows + 2) % EXAMPLES
    gains = game.marginals(kept, np.ones_like(kept), rows, donors)
    for player in range(game.players):
        with_player, without = kept.copy(), kept.copy()
        with_player[:, player], without[:, player] = True, False
        full = game.values(with_player, rows, donors) - game.values(without, rows, donors)
        assert_allclose(gains[:, player], full, atol=1e-9)


def test_results_have_keys_of_their_own_and_older_ones_keep_theirs(tmp_path: Path) -> None:
    model = model_of("bert")
    dataset = evaluator_of(model).dataset
    plain = Evaluator(model, tiny_task(), "xx", "dev", EXAMPLES).dataset
    row = METHODS["leave-one-out"]
    options = row.resolve({})
    for ablation in ("zero", "mean", "resample"):
        key = make_spec(dataset, row, options, 0, ablation).key
        assert key == make_spec(plain, row, options, 0, ablation).key
        assert answers_spec(dataset, ablation).key == answers_spec(plain, ablation).key
    with_contrasts = make_spec(dataset, row, options, 0, "counterfactual")
    assert with_contrasts.contrasts
    assert with_contrasts.key != make_spec(plain, row, options, 0, "counterfactual").key
    store = Store(tmp_path)
    settings = {"language": "xx", "method": "leave-one-out", "size": EXAMPLES, "store": store}
    scores = score(model, task_with_contrasts(), ablation="resample", **settings)
    again = score(model, task_with_contrasts(), ablation="resample", **settings)
    assert_array_equal(scores.values, again.values)
    assert again.spec.ablation == "resample"
    assert again.omissions is not None
    assert again.omissions.beyond_donors == scores.omissions.beyond_donors != 0


# Refusals.


def test_refusals_say_what_fits() -> None:
    model = model_of("bert")
    settings = {"language": "xx", "size": EXAMPLES}
    with raises("ablation.one_example", "--size 2"):
        score(model, tiny_task(), language="xx", size=1, ablation="resample")
    with raises("ablation.one_example", "--size 2"):
        Evaluator(model, tiny_task(), "xx", "dev", 1).evaluate(ablation="resample")
    with raises("ablation.no_counterfactual", "6 of 6", "column counterfactual"):
        score(model, tiny_task(), ablation="counterfactual", **settings)
    longer = replace(
        tiny_task(),
        read=lambda *of: [
            replace(e, counterfactuals=(e.text + " w9",)) for e in tiny_task().read(*of)
        ],
    )
    with raises("ablation.counterfactual_length", "xx/dev/0", "tiny-bert"):
        score(model, longer, ablation="counterfactual", **settings)
    for method in ("gradient", "confidence", "relevance"):
        with raises("ablation.method", method, "leave-one-out"):
            score(model, tiny_task(), ablation="resample", method=method, **settings)
    with raises("method.names_need_slopes"):
        score(model, tiny_task(), ablation="resample", names=1, **settings)
    with raises("ablation.too_many_donors", 65, 64):
        every_donor(65)
    variant = playing(model, "attention")
    with raises("ablation.other_texts", "resample"):
        evaluator_of(variant).fill("resample")
    with raises("ablation.unknown", "shuffle", "counterfactual"):
        evaluator_of(variant).fill("shuffle")


# A planted circuit: one head alone reads the text, all others always give the same.


def read_of_equal_length(language: str, split: Split, seed: int) -> list[Example]:
    """Texts of four words; a counterfactual has other words throughout."""
    rng = np.random.default_rng([seed, len(split)])
    examples = []
    for number in range(12):
        words = [f"w{word}" for word in rng.integers(4, 20, 4)]
        others = [f"w{word}" for word in rng.integers(4, 20, 4)]
        examples.append(
            Example(
                f"{split}-{number}",
                " ".join(words),
                number % 5,
                counterfactuals=(" ".join(others),),
            )
        )
    return examples


@cache
def planted_model() -> tuple[Model, int]:
    """A model with one head that reads, and the number of that head."""
    model = tiny_model("bert", seed=3, tokenizer=tiny_tokenizer())
    heads = model.grid.width
    reader = 1 * heads + 1
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for number, layer in enumerate(model.module.bert.encoder.layer):
            value = layer.attention.self.value
            size = len(value.weight) // heads
            value.bias.normal_(0, 1, generator=generator)
            for head in range(heads):
                if number * heads + head != reader:
                    value.weight[head * size : (head + 1) * size] = 0
    return model, reader


@pytest.mark.parametrize("ablation", ["zero", *OTHER_TEXTS])
def test_a_planted_reader_is_named_and_constant_heads_only_by_zero(ablation: str) -> None:
    model, reader = planted_model()
    task = replace(tiny_task(), read=read_of_equal_length)
    settings = {"language": "xx", "size": 12, "method": "shapley", "ablation": ablation}
    settings |= {"samples": 48, "target": None, "value": "probability"}
    values = score(model, task, **settings).values
    others = np.delete(values, reader)
    assert abs(values[reader]) > 1e-4
    if ablation == "zero":
        assert (others != 0).all()
    else:
        assert_array_equal(others, 0)


@pytest.mark.parametrize("family", ["marian", "t5"])
def test_sources_and_targets_have_lengths_of_their_own(family: str) -> None:
    """In an encoder-decoder, positions of its encoder are the source's, all others the target's."""
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, TRANSLATIONS, "aa-bb", "dev", 5)
    kept = np.random.default_rng(3).random(model.grid.size) < 0.5
    donors = drawn_donors(0, 0, np.arange(5), 5)
    linears = []
    for (row, head), stays in zip(model.grid.flat.tolist(), kept.tolist(), strict=True):
        if not stays:
            projection = model.projections[row]
            width = projection.weight.shape[1] // model.calls[row].heads
            linears.append((projection, list(range(head * width, (head + 1) * width))))
    by_hand: list[int] = []
    with torch.no_grad():
        for row, donor in enumerate(donors.tolist()):
            inputs, other_inputs = (evaluator.tensors(np.array([one])) for one in (row, donor))
            logits = reference.patched_logits(model.module, inputs, other_inputs, linears, [])
            by_hand += logits[0].argmax(dim=-1).tolist()
    evaluation = evaluator.evaluate(Mask(model.grid, kept), ablation="resample")
    assert evaluation.predicted.tolist() == by_hand
    assert by_hand != evaluator.evaluate().predicted.tolist()
