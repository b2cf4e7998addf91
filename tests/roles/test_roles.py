"""Roles of heads: against counts made word by word, and of heads whose weights give them a role."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import reference
import torch
from support.expected_errors import raises
from support.role_trees import FREQUENCIES, cutting_tokenizer, random_trees, sum_weights_by_aims
from support.several_answers import PAIRS
from support.table_rows import rows_where
from support.tiny_models import LABELS, tiny_model, tiny_module
from support.tiny_task import tiny_task, tiny_tokenizer
from tokenizers import normalizers

from headlab.core import Report
from headlab.evaluation import Batch, Evaluator
from headlab.hooks import Model, sum_weights
from headlab.methods.run import score
from headlab.roles import (
    RARE,
    SYNTACTIC,
    Sentences,
    attention_statistics,
    kind_of,
    of_task,
    of_trees,
)
from headlab.roles.attention_statistics import MEASURES
from headlab.roles.sentences import best_offsets, correct_targets
from headlab.roles.study import study
from headlab.roles.table import (
    INDUCTION,
    OFFSETS,
    RELATIONS,
    TO_DEPENDENT,
    TO_GOVERNOR,
    position,
    syntactic,
)
from headlab.roles.tokenised import TokenisedSentences, read, repeated_sentences
from headlab.tasks import Example, Task, Tree

FAMILIES = ("bert", "gpt2", "marian", "deberta-v2")


@pytest.fixture
def restored_thread_count() -> Iterator[None]:
    thread_count = torch.get_num_threads()
    yield
    torch.set_num_threads(thread_count)


def model_of(family: str) -> Model:
    return tiny_model(family, tokenizer=cutting_tokenizer())


def attention_weights(
    family: str,
    inputs: dict[str, torch.Tensor],
) -> list[np.ndarray]:
    """Weights [head, query, key] of each layer of the first stack, as transformers gives them."""
    module = tiny_module(family, torch.float64)
    if family != "deberta-v2":
        module.set_attn_implementation("eager")
    with torch.inference_mode():
        output = module(**inputs, output_attentions=True)
    field = "encoder_attentions" if family == "marian" else "attentions"
    weights_of_layers = []
    for layer in output[field]:
        weights_of_layers.append(layer[0].numpy())
    return weights_of_layers


def key_at_offset(offset: int) -> Callable[[int, int], bool]:
    """Whether a key is at this offset from its query."""
    return lambda query, key: key - query == offset


def tallies_by_role(
    weights: np.ndarray, ids: list[int], sentences: TokenisedSentences, row: int, causal: bool
) -> dict[str, tuple[Any, ...]]:
    """The tally (hits, asked, hits by chance) of each role, of one sentence and head.

    Syntactic roles have None in the place of hits by chance.
    """
    is_special = [token in (0, 1, 2) for token in ids]
    word_indices = sentences.words_of_tokens[row]

    def is_seen(query: int, key: int) -> bool:
        return not (causal and key > query)

    def is_seen_word(query: int, key: int) -> bool:
        return is_seen(query, key) and not is_special[key]

    def is_same_token(query: int, key: int) -> bool:
        is_another_token = query != key
        return is_another_token and ids[query] == ids[key]

    def is_separator(_: int, key: int) -> bool:
        return ids[key] == 2

    def is_first(_: int, key: int) -> bool:
        return key == 0

    def is_rare_word(_: int, key: int) -> bool:
        return is_rare[key]

    looks = reference.token_looks(weights, is_seen)
    looks_at_words = reference.token_looks(weights, is_seen_word)
    tallies = {
        "separator": reference.role_tally(looks, is_special, is_separator),
        "first token": reference.role_tally(looks, is_special, is_first),
        "same token elsewhere": reference.role_tally(looks_at_words, is_special, is_same_token),
    }
    for offset in OFFSETS:
        is_at_offset = key_at_offset(offset)
        tallies[position(offset)] = reference.role_tally(looks, is_special, is_at_offset)
    frequencies = [FREQUENCIES.of(word) for word in sentences.words[row]]
    lowest = min(frequencies)
    is_rare = []
    for index in word_indices:
        is_rare.append(index >= 0 and frequencies[index] == lowest)
    tallies[RARE] = reference.role_tally(looks_at_words, is_special, is_rare_word)
    word_looks = reference.word_looks(weights, word_indices, causal)
    for role, targets_by_word in sentences.targets_of(row).items():
        hits = 0
        for word, targets in targets_by_word.items():
            hits += word_looks[word] in targets
        tallies[role] = (hits, len(targets_by_word), None)
    return tallies


@pytest.mark.parametrize("family", FAMILIES)
def test_counts_equal_those_made_sentence_by_sentence_in_plain_python(family: str) -> None:
    model = model_of(family)
    sentences = of_trees(random_trees(7, seed=1), "xx", "dev")
    expected_tallies = total_tallies(family, read(model, sentences, FREQUENCIES))
    table = study(model, sentences, frequencies=FREQUENCIES).table("roles")
    assert len(table.rows) > 100
    for values in table.rows:
        cells = dict(zip(table.columns, values, strict=True))
        if cells["role"] != INDUCTION:
            assert_row_equals(cells, expected_tallies)


def total_tallies(
    family: str, sentences: TokenisedSentences
) -> dict[tuple[int, int, str], np.ndarray]:
    """Tallies over all sentences by (layer, head, role).

    Each holds hits, how often was asked, hits by chance, and the number of sentences with a
    question.
    """
    is_causal = family == "gpt2"
    tallies: defaultdict[tuple[int, int, str], np.ndarray] = defaultdict(lambda: np.zeros(4))
    for row in range(len(sentences)):
        inputs = sentences.tensors(np.array([row]))
        layers = attention_weights(family, inputs)
        for layer, weights in enumerate(layers):
            for head, head_weights in enumerate(weights):
                of_sentence = tallies_by_role(
                    head_weights, sentences.ids[row], sentences, row, is_causal
                )
                for role, (hits, asked_count, chance) in of_sentence.items():
                    hits_by_chance = np.nan if chance is None else chance
                    has_question = asked_count > 0
                    tally = np.array([hits, asked_count, hits_by_chance, has_question])
                    tallies[layer, head, role] += tally
    return dict(tallies)


def assert_row_equals(
    cells: dict[str, Any], tallies: dict[tuple[int, int, str], np.ndarray]
) -> None:
    role = cells["role"]
    head = (cells["layer"], cells["head"])
    hits, asked_count, chance, sentence_count = tallies[*head, role]
    assert cells["hits"] == hits, cells
    assert cells["asked"] == asked_count, cells
    assert cells["sentences"] == sentence_count, cells
    share = hits / asked_count
    assert cells["share, %"] == pytest.approx(100 * share)
    if role not in SYNTACTIC:
        chance_share = chance / asked_count
        assert cells["chance, %"] == pytest.approx(100 * chance_share)
    if kind_of(role) == "positional":
        shares = []
        for offset in OFFSETS:
            offset_tally = tallies[*head, position(offset)]
            offset_hits, offset_count, *_ = offset_tally
            if offset_count:
                shares.append(offset_hits / offset_count)
        assert hits / asked_count == max(shares)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_baseline_is_the_offset_that_most_words_would_be_right_with(family: str) -> None:
    treebank = random_trees(12, seed=3)
    causal = family == "gpt2"
    sentences = of_trees(treebank, "xx", "dev")
    report = study(model_of(family), sentences, frequencies=FREQUENCIES)
    table = report.table("relations")
    targets = []
    for tree in treebank:
        is_complete = np.ones(len(tree.words), bool)
        targets.append(correct_targets(tree, is_complete, causal))
    offsets = best_offsets(targets)
    for relation in RELATIONS:
        for direction in (TO_GOVERNOR, TO_DEPENDENT):
            hits: Counter[int] = Counter()
            queries = set()
            for tree in treebank:
                for dependent, governor in enumerate(tree.governors):
                    if governor < 0 or tree.relations[dependent] != relation:
                        continue
                    query = dependent if direction == TO_GOVERNOR else governor
                    target = governor if direction == TO_GOVERNOR else dependent
                    if not (causal and target > query):
                        hits[target - query] += 1
                        queries.add((tree.id, query))
            best_offset = offsets[syntactic(relation, direction)]
            highest_count = max(hits.values())
            (row,) = rows_where(table, relation=relation, direction=direction)
            assert hits[best_offset] == highest_count
            assert row["offset"] == best_offset
            assert row["pairs"] == len(queries)
            baseline = highest_count / len(queries)
            assert row["baseline, %"] == pytest.approx(100 * baseline)


def test_no_role_is_judged_on_a_last_word_that_was_cut() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())  # 64 positions
    word_count = 70
    governors = (-1, *range(word_count - 1))
    relations = ("root", *["nsubj"] * (word_count - 1))
    long_tree = Tree(
        "long",
        ("w5",) * word_count,
        governors,
        relations,
        1,
    )
    short_tree = Tree(
        "short",
        ("w5", "w6"),
        (1, -1),
        ("nsubj", "root"),
        80,
    )
    sentences = of_trees([long_tree, short_tree], "xx", "dev")
    report = study(model, sentences, frequencies=FREQUENCIES)
    (note,) = [note for note in report.notes if "cut" in note]
    assert "1 of 2 sentences were cut to the model's 64 tokens" in note
    assert "9 words are lost" in note  # 62 tokens are left, and the last word may not be whole
    assert "long" in note
    assert "short" not in note
    rows = []
    for row in report.table("relations").rows:
        if row[:2] == ("nsubj", TO_GOVERNOR):
            rows.append(row)
    pairs = rows[0][-2]
    assert pairs == 60 + 1


def test_reported_06_words_of_a_task_that_are_lost_are_counted_too() -> None:
    """A report without trees once named the sentences that were cut, but not the lost words."""
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("\N{ZERO WIDTH SPACE}", "")
    model = tiny_model("bert-tokens", tokenizer=tokenizer)
    sentences = {
        "long": ("w5",) * 70,
        "short": ("w5", "w6"),
        "hidden": ("w5", "\N{ZERO WIDTH SPACE}", "w6"),
    }
    examples = []
    for name, words in sentences.items():
        labels = (0,) * len(words)
        text = " ".join(words)
        examples.append(Example(name, text, words=words, labels=labels))
    task = Task("made", LABELS, ("xx",), False, lambda *_: examples)
    sentences_of_task = of_task(task, "xx", "dev", None)
    report = study(model, sentences_of_task, frequencies=FREQUENCIES)
    (note,) = [note for note in report.notes if "lost" in note]
    explanation = "were cut to the model's 64 tokens or hold words without a token"
    assert f"2 of 3 sentences {explanation}" in note
    assert "10 words are lost" in note  # of the long sentence 9, as above
    assert "(long, hidden)" in note


@pytest.mark.parametrize("truncation_side", ["right", "left"])
def test_a_sentence_cut_inside_its_outermost_word_loses_it(truncation_side: str) -> None:
    tokenizer = cutting_tokenizer()
    tokenizer.truncation_side = truncation_side
    # The model has 64 positions, two of which the special tokens take.
    model = tiny_model("bert", tokenizer=tokenizer)
    sentences = [
        ("w5",) * 61 + ("w6+w7",),
        ("w5",) * 62,
        ("w5",) * 60 + ("w6+w7",),
    ]
    if truncation_side == "left":
        sentences = [words[::-1] for words in sentences]
    treebank = []
    for number, words in enumerate(sentences):
        dependent_count = len(words) - 1
        governors = (-1, *range(dependent_count))
        relations = ("root", *["nsubj"] * dependent_count)
        tree = Tree(f"t{number}", words, governors, relations)
        treebank.append(tree)
    tokenised = read(model, of_trees(treebank, "xx", "dev"), FREQUENCIES)
    token_counts = [len(ids) for ids in tokenised.ids]
    assert token_counts == [64, 64, 64]
    lost_word = 61 if truncation_side == "right" else 0
    lost_words = []
    for is_complete in tokenised.complete_words:
        lost_words.append(np.flatnonzero(~is_complete).tolist())
    assert lost_words == [[lost_word], [], []]
    (note,) = [note for note in tokenised.notes if "cut" in note]
    assert "1 of 3 sentences" in note
    assert "1 words are lost" in note


def report_of_planted_weights(
    treebank: list[Tree], model: Model, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Report:
    """A report of heads whose weights the test makes up; seven of them have a role each."""

    def same_token_elsewhere(ids: list[int], query: int) -> int:
        for key, token in enumerate(ids):
            if token == ids[query] and key != query:
                return key
        return (3 * query + 1) % len(ids)

    trees_by_tokens = {}
    for tree in treebank:
        words = list(tree.words)
        encoding = model.tokenizer([words], is_split_into_words=True)
        ids = encoding["input_ids"][0]
        trees_by_tokens[tuple(ids)] = tree

    def governor(ids: list[int], query: int) -> int:
        if query in (0, len(ids) - 1):
            return query
        tree = trees_by_tokens[tuple(ids)]
        return tree.governors[query - 1] + 1

    def word_before(ids: list[int], query: int) -> int:
        return max(query - 1, 0)

    def second_word_after(ids: list[int], query: int) -> int:
        return min(query + 2, len(ids) - 1)

    def lowest_token(ids: list[int], query: int) -> int:
        words = ids[1:-1]
        return 1 + int(np.argmin(words))

    aims = {
        (0, 0): word_before,
        (0, 1): second_word_after,
        (0, 2): lambda ids, q: len(ids) - 1,
        (0, 3): lambda ids, q: 0,
        (1, 0): same_token_elsewhere,
        (1, 1): governor,
        (1, 2): lowest_token,
    }
    sum_planted_weights = sum_weights_by_aims(aims, 4)
    monkeypatch.setattr(attention_statistics, "sum_weights", sum_planted_weights)
    monkeypatch.setattr("headlab.roles.study.sum_weights", sum_planted_weights)
    sentences = of_trees(treebank, "xx", "dev")
    return study(model, sentences, frequencies=FREQUENCIES, options=options)


def trees_of_one_token_words(count: int) -> list[Tree]:
    """Trees of different sentences whose words are of one token; every fourth has a word twice."""
    rng = np.random.default_rng(5)
    one_token_trees = []
    trees = random_trees(count, seed=4, low=6, high=10)
    for index, tree in enumerate(trees):
        shuffled_tokens = rng.permutation(np.arange(4, 60))
        tokens = shuffled_tokens[: len(tree.words)]
        words = [f"w{token}" for token in tokens]
        if index % 4 == 0:
            words[-1] = words[0]
        one_token_tree = Tree(tree.id, tuple(words), tree.governors, tree.relations)
        one_token_trees.append(one_token_tree)
    return one_token_trees


def test_heads_that_are_made_to_have_a_role_have_it_and_others_have_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    report = report_of_planted_weights(trees_of_one_token_words(60), model, monkeypatch)
    table = report.table("roles")
    roles_of_heads = set()
    for _, layer, head, role, *_, has_role in table.rows:
        if has_role:
            roles_of_heads.add((layer, head, role))
    to_governor = set()
    for relation in RELATIONS:
        to_governor.add((1, 1, syntactic(relation, TO_GOVERNOR)))
    expected_roles = {
        (0, 0, "position -1"),
        (0, 1, "position +2"),
        (0, 2, "separator"),
        (0, 3, "first token"),
        (1, 0, "same token elsewhere"),
        (1, 2, RARE),
    }
    assert roles_of_heads == expected_roles | to_governor
    relation_rows = {}
    for row in report.table("relations").rows:
        relation_rows[row[:2]] = row
    for relation in RELATIONS:
        row_to_governor = relation_rows[relation, TO_GOVERNOR]
        row_to_dependent = relation_rows[relation, TO_DEPENDENT]
        assert row_to_governor[3:6] == (1, 1, 100.0)
        assert row_to_governor[-1] == 1
        assert row_to_dependent[-1] == 0
    count_rows = report.table("role-counts").rows
    role_counts = dict(row[:2] for row in count_rows)
    assert role_counts["positional"] == 2


def test_examples_show_what_a_head_looks_at_and_should(monkeypatch: pytest.MonkeyPatch) -> None:
    treebank = trees_of_one_token_words(60)
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    report = report_of_planted_weights(treebank, model, monkeypatch, examples=2)
    rows = report.table("role-examples").rows
    role = syntactic("nsubj", TO_GOVERNOR)
    example_rows = [row for row in rows if row[0] == role]
    assert [row[4] for row in example_rows] == [True, True]
    trees_by_text = {" ".join(tree.words): tree for tree in treebank}
    for example_row in example_rows:
        _, stack, layer, head, _, sentence, word, looks, target = example_row
        tree = trees_by_text[sentence]
        governors = set()
        for dependent, governor in zip(tree.words, tree.governors, strict=True):
            if dependent == word and governor >= 0:
                governors.add(tree.words[governor])
        assert stack == "encoder"
        assert layer == 1
        assert head == 1
        assert looks == target
        assert looks in governors
    report_without_examples = report_of_planted_weights(treebank, model, monkeypatch, examples=0)
    assert report_without_examples.table("role-examples").rows == ()


# With thresholds of zero even the heads of an untrained model have roles.
OPTIONS_WITHOUT_THRESHOLDS = {
    "positional": 0,
    "margin": 0,
    "rare": 0,
    "separator": 0,
    "first": 0,
    "same": 0,
}


def test_examples_across_stacks_name_a_token_of_the_target_and_of_the_source() -> None:
    rng = np.random.default_rng(3)

    def random_text(lowest_token: int, size: int) -> str:
        tokens = rng.integers(lowest_token, lowest_token + 25, size)
        return " ".join(f"w{token}" for token in tokens)

    sources = [random_text(4, 2) for _ in range(60)]
    targets = [random_text(30, 9) for _ in range(60)]
    examples = []
    for number, source in enumerate(sources):
        example = Example(str(number), source, target=targets[number])
        examples.append(example)
    task = Task("short", (), ("xx",), False, lambda *_: examples)
    model = tiny_model("marian", tokenizer=tiny_tokenizer())
    report = study(model, of_task(task, "xx"), options=OPTIONS_WITHOUT_THRESHOLDS)
    target_words = set(" ".join(targets).split())
    rows = report.table("role-examples").rows
    cross_rows = [row for row in rows if row[1] == "cross"]
    assert cross_rows
    for *_, sentence, word, looks, correct_words in cross_rows:
        source_words = {*sentence.split(), "<s>", "</s>"}
        assert word in target_words
        assert looks in source_words
        assert set(correct_words.split(" / ")) <= source_words


def test_examples_are_the_same_on_any_number_of_lanes_and_in_little_memory(
    restored_thread_count: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of("bert")
    sentences = of_trees(random_trees(60, seed=8), "xx", "dev")
    monkeypatch.setattr(attention_statistics, "token_budget", lambda _: 100)

    def example_rows() -> tuple[Any, ...]:
        options = OPTIONS_WITHOUT_THRESHOLDS | {"examples": 15}
        report = study(model, sentences, options=options, frequencies=FREQUENCIES)
        return report.table("role-examples").rows

    torch.set_num_threads(1)
    rows_on_one_thread = example_rows()
    assert {row[4] for row in rows_on_one_thread} == {True, False}
    assert len(rows_on_one_thread) >= 30  # more than a batch has
    torch.set_num_threads(3)
    assert example_rows() == rows_on_one_thread

    def sum_weights_of_few(
        model: Model, inputs: dict[str, torch.Tensor], *other_arguments: Any
    ) -> None:
        if len(inputs["input_ids"]) > 2:
            raise MemoryError
        sum_weights(model, inputs, *other_arguments)

    monkeypatch.setattr("headlab.roles.study.sum_weights", sum_weights_of_few)
    assert example_rows() == rows_on_one_thread


@pytest.mark.usefixtures("one_lane")
def test_the_search_for_examples_can_be_stopped_and_has_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    treebank = trees_of_one_token_words(60)
    monkeypatch.setattr(attention_statistics, "token_budget", lambda _: 100)
    monkeypatch.setattr("headlab.roles.study.MAX_SEARCHED", 15)

    def word_before(ids: list[int], query: int) -> int:
        return max(query - 1, 0)

    aims = {(0, 0): word_before}  # never misses
    sum_planted_weights = sum_weights_by_aims(aims, 4)
    batch_sizes = list[int]()

    def count_and_sum(model: Model, inputs: dict[str, torch.Tensor], *other_arguments: Any) -> None:
        batch_sizes.append(len(inputs["input_ids"]))
        sum_planted_weights(model, inputs, *other_arguments)

    monkeypatch.setattr(attention_statistics, "sum_weights", sum_planted_weights)
    monkeypatch.setattr("headlab.roles.study.sum_weights", count_and_sum)
    sentences = of_trees(treebank, "xx", "dev")
    study(model, sentences, frequencies=FREQUENCIES)
    assert sum(batch_sizes) == 15
    batch_sizes.clear()

    def stop() -> None:
        if batch_sizes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(model, sentences, frequencies=FREQUENCIES, tick=stop)
    assert 0 < sum(batch_sizes) < 15


def test_a_head_below_a_higher_threshold_lacks_the_role(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    treebank = trees_of_one_token_words(60)

    def row_of_objects(**options: float) -> tuple[Any, ...]:
        report = report_of_planted_weights(treebank, model, monkeypatch, **options)
        rows_by_relation = {}
        for row in report.table("relations").rows:
            rows_by_relation[row[:2]] = row
        return rows_by_relation["obj", TO_GOVERNOR]

    baseline = row_of_objects()[8]
    margin = 1 - baseline / 100
    row_below = row_of_objects(margin=margin - 0.001)
    row_above = row_of_objects(margin=margin + 0.001)
    assert row_below[-1] == 1
    assert row_above[-1] == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_measures_equal_those_written_out_sentence_by_sentence(family: str) -> None:
    model = model_of(family)
    treebank = random_trees(5, seed=6)
    sentences = of_trees(treebank, "xx", "dev")
    tokenised = read(model, sentences, FREQUENCIES)
    sums: defaultdict[tuple[int, int], np.ndarray] = defaultdict(lambda: np.zeros(6))
    for row in range(len(treebank)):
        ids = tokenised.ids[row]
        is_separator = np.array(ids) == 2
        inputs = tokenised.tensors(np.array([row]))
        layers = attention_weights(family, inputs)
        for layer, weights in enumerate(layers):
            for head, head_weights in enumerate(weights):
                for query in range(len(ids)):
                    query_weights = head_weights[query, : len(ids)]
                    positive_weights = query_weights[query_weights > 0]
                    keys = np.arange(len(ids))
                    distances = np.abs(query - keys)
                    confidence = query_weights[~is_separator].max()
                    logarithms = np.log(positive_weights)
                    entropy = -(positive_weights * logarithms).sum()
                    distance = query_weights @ distances
                    separators = query_weights[is_separator].sum()
                    parts = np.array(
                        [confidence, entropy, distance, separators, query_weights[0], 1],
                    )
                    sums[layer, head] += parts
    report = study(model, sentences, frequencies=FREQUENCIES)
    table = report.table("measures")
    assert len(table.rows) == model.grid.stacks[0].size
    for _, layer, head, *values in table.rows:
        expected = sums[layer, head]
        *expected_sums, token_count = expected
        *means, reported_count = values
        expected_means = np.array(expected_sums) / token_count
        np.testing.assert_allclose(means, expected_means, rtol=1e-5)
        assert reported_count == token_count


def test_confidence_is_that_of_the_method_of_this_name() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    sentences = of_task(tiny_task(), "xx")
    for exclude in ("separator", "none"):
        report = study(model, sentences, options={"exclude": exclude})
        table = report.table("measures")
        scores = score(
            model,
            tiny_task(),
            language="xx",
            method="confidence",
            exclude=exclude,
        )
        confidences = table.column("confidence")
        np.testing.assert_allclose(confidences, scores.values, rtol=1e-6)


def test_a_translation_model_is_judged_in_all_three_stacks_on_pairs_and_in_one_on_trees() -> None:
    model = tiny_model("marian", tokenizer=tiny_tokenizer())
    report = study(model, of_task(PAIRS, "xx"))
    table = report.table("measures")
    stacks = {row[0] for row in table.rows}
    assert stacks == {"encoder", "decoder", "cross"}
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        is_cross = cells["stack"] == "cross"
        assert (cells["distance, tokens"] is None) == is_cross
        for name in MEASURES:
            if "share" in name:
                assert 0 <= cells[name] <= 1
    cross_roles = set()
    for row in report.table("roles").rows:
        if row[0] == "cross":
            cross_roles.add(row[3])
    assert cross_roles == {"separator", "first token"}
    treebank = trees_of_one_token_words(4)
    on_trees = study(model, of_trees(treebank, "xx", "dev"))
    rows_on_trees = on_trees.table("measures").rows
    assert {row[0] for row in rows_on_trees} == {"encoder"}
    assert any("encoder is judged alone" in note for note in on_trees.notes)


def test_shares_of_a_translation_model_equal_the_weights_that_it_gives() -> None:
    model = tiny_model("marian", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, PAIRS, "xx")
    module = tiny_module("marian", torch.float64)
    module.set_attn_implementation("eager")
    total = np.zeros((3, 3))
    tokens = 0
    for row in range(len(evaluator.examples)):
        inputs = evaluator.tensors(np.array([row]))
        source_ids = inputs["input_ids"][0]
        separators = (source_ids == 2).numpy()
        with torch.inference_mode():
            output = module(**inputs, output_attentions=True)
        for layer, weights in enumerate(output["cross_attentions"]):
            weights_of_sentence = weights[0].numpy()
            weights_of_separators = weights_of_sentence[:, :, separators]
            total[layer] += weights_of_separators.sum(axis=(1, 2))
        tokens += inputs["decoder_input_ids"].shape[1]
    report = study(model, of_task(PAIRS, "xx"))
    table = report.table("measures")
    column = table.columns.index("separator share")
    shares = [row[column] for row in table.rows if row[0] == "cross"]
    expected_shares = (total / tokens).ravel()
    np.testing.assert_allclose(shares, expected_shares, rtol=1e-5)


def test_in_repeated_sentences_the_token_that_followed_the_first_time_is_correct(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model("gpt2", tokenizer=tiny_tokenizer())
    treebank = trees_of_one_token_words(40)
    sentences = of_trees(treebank, "xx", "dev")
    repeated = repeated_sentences(model, read(model, sentences, FREQUENCIES))
    words = treebank[1].words
    body = [int(word[1:]) for word in words]
    assert repeated.ids[1] == [1, *body, *body]
    assert repeated.repetition_starts[1] == 1 + len(body)

    def follows(ids: list[int], query: int) -> int:
        earlier_positions = [key for key in range(query) if ids[key] == ids[query]]
        if not earlier_positions:
            return 0
        next_position = earlier_positions[0] + 1
        return next_position if next_position < query else 0

    def same_position(ids: list[int], query: int) -> int:
        return query

    aims = {(1, 2): follows, (0, 0): same_position}
    sum_planted_weights = sum_weights_by_aims(aims, model.grid.width)
    monkeypatch.setattr(attention_statistics, "sum_weights", sum_planted_weights)
    monkeypatch.setattr("headlab.roles.study.sum_weights", attention_statistics.sum_weights)
    report = study(
        model,
        sentences,
        options={"examples": 2},
        frequencies=FREQUENCIES,
    )
    rows = report.table("role-examples").rows
    example_rows = [row for row in rows if row[0] == INDUCTION]
    assert len(example_rows) == 2
    for row in example_rows:
        assert row[1:5] == ("decoder", 1, 2, True)
    for *_, sentence, word, looks, target in example_rows:
        tokens = sentence.split()
        next_token = tokens[tokens.index(word) + 1]
        assert looks == target == next_token
        half = len(tokens) // 2
        assert tokens[1:] == tokens[1 : half + 1] * 2
    role_rows = rows_where(report.table("roles"), role=INDUCTION)
    rows_by_head = {}
    for row in role_rows:
        rows_by_head[row["layer"], row["head"]] = row
    heads_with_role = [head for head, row in rows_by_head.items() if row["has it"]]
    assert heads_with_role == [(1, 2)]
    word_count = sum(len(tree.words) for tree in treebank)
    assert rows_by_head[1, 2]["hits"] == word_count
    assert rows_by_head[1, 2]["asked"] == word_count
    assert rows_by_head[0, 0]["hits"] == 0
    assert report.example_forwards == 2 * len(treebank)


def test_results_are_the_same_bits_on_any_number_of_threads(restored_thread_count: None) -> None:
    model = model_of("bert")
    sentences = of_trees(random_trees(60, seed=8), "xx", "dev")

    def rows_on_threads(count: int) -> list[tuple[Any, ...]]:
        torch.set_num_threads(count)
        report = study(model, sentences, frequencies=FREQUENCIES)
        return [table.rows for table in report.tables]

    assert rows_on_threads(1) == rows_on_threads(3)


def test_results_do_not_depend_on_the_size_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("gpt2")
    sentences = of_trees(random_trees(10, seed=9), "xx", "dev")
    reports = []
    for tokens in (1, 64, 4096):
        monkeypatch.setattr(attention_statistics, "token_budget", lambda _, tokens=tokens: tokens)
        report = study(
            model,
            sentences,
            options={"examples": 0},
            frequencies=FREQUENCIES,
        )
        reports.append(report)
    first_report, *other_reports = reports

    def floats_of(row: tuple[Any, ...]) -> list[float]:
        return [cell for cell in row if isinstance(cell, float)]

    def other_cells_of(row: tuple[Any, ...]) -> list[Any]:
        return [cell for cell in row if not isinstance(cell, float)]

    for report in other_reports:
        table_pairs = zip(first_report.tables, report.tables, strict=True)
        for first_table, table in table_pairs:
            assert len(first_table.rows) == len(table.rows)
            for first_row, row in zip(first_table.rows, table.rows, strict=True):
                assert other_cells_of(first_row) == other_cells_of(row)
                np.testing.assert_allclose(
                    floats_of(first_row),
                    floats_of(row),
                    rtol=1e-5,
                    atol=1e-7,
                )


def test_padding_on_the_left_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:

    def aim_of_head(head: int) -> Callable[[list[int], int], int]:
        def aim(ids: list[int], query: int) -> int:
            factor = head + 1
            return (ids[query] * factor + query) % len(ids)

        return aim

    aims = {}
    for layer in range(3):
        for head in range(4):
            aims[layer, head] = aim_of_head(head)
    monkeypatch.setattr(attention_statistics, "sum_weights", sum_weights_by_aims(aims, 4))
    rows_by_side = []
    for padding_side in ("right", "left"):
        tokenizer = cutting_tokenizer()
        tokenizer.padding_side = padding_side
        model = tiny_model("bert", tokenizer=tokenizer)
        sentences = of_trees(random_trees(9, seed=10), "xx", "dev")
        report = study(model, sentences, options={"examples": 0}, frequencies=FREQUENCIES)
        rows_by_side.append(report.table("roles").rows)
    for right_row, left_row in zip(*rows_by_side, strict=True):
        assert right_row[:4] == left_row[:4]
        assert right_row[11:14] == left_row[11:14]  # hits, asked, sentences


def test_the_sums_of_a_batch_do_not_grow_with_its_sentences() -> None:
    model = model_of("bert")
    sizes = []
    for count in (4, 40):
        sentences = of_trees(random_trees(count), "xx", "dev")
        tokenised = read(model, sentences, FREQUENCIES)
        rows = np.arange(count)
        offsets = best_offsets(map(tokenised.targets_of, range(count)))
        batch = Batch(rows, tokenised.tensors(rows))
        sums = attention_statistics.sums_of(model, tokenised, batch, "separator", offsets)
        bytes_of_roles = sum(values.nbytes for values in sums.roles.values())
        sizes.append(sums.measures.nbytes + bytes_of_roles)
    assert sizes[0] == sizes[1]


def byte_level_model(added_tokens: dict[str, int], merges: list[tuple[str, str]]) -> Model:
    """A tiny model whose byte-level tokenizer has these tokens and merges beside the bytes."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    bpe = models.BPE(vocab=vocabulary | added_tokens, merges=merges)
    backend = Tokenizer(bpe)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="!")
    model = tiny_model("gpt2", tokenizer=tokenizer)
    model.module.resize_token_embeddings(len(model.tokenizer))
    return model


def test_a_byte_level_tokenizer_is_given_the_spaces_between_words() -> None:
    model = byte_level_model(
        {"Ġb": 256, "ab": 257},
        [("Ġ", "b"), ("a", "b")],
    )
    tree = Tree(
        "1",
        ("ab", "b"),
        (1, -1),
        ("nsubj", "root"),
    )
    tokenised = read(model, of_trees([tree], "xx", "dev"), FREQUENCIES)
    assert tokenised.ids == [[257, 256]]
    assert tokenised.words_of_tokens == [[0, 1]]


def test_sentences_are_a_random_part_that_depends_on_the_seed_alone() -> None:
    treebank = random_trees(30)
    sentences = of_trees(treebank, "xx", "dev", 7, seed=1)
    assert len(sentences) == 7
    assert sentences == of_trees(treebank, "xx", "dev", 7, seed=1)
    sentences_of_another_seed = of_trees(treebank, "xx", "dev", 7, seed=2)
    assert sentences.trees != sentences_of_another_seed.trees
    tree_indices = [treebank.index(tree) for tree in sentences.trees]
    assert tree_indices == sorted(tree_indices)
    trees_with_a_repeat = [*treebank[:-1], treebank[0]]
    sentences_with_a_repeat: Sentences = of_trees(trees_with_a_repeat, "xx", "dev")
    assert sentences_with_a_repeat.data_hash != of_trees(treebank, "xx", "dev").data_hash
    for unfit_trees, refusal in (
        ([], ("roles.no_trees", "xx")),
        (treebank, ("roles.size_too_small", 0)),
    ):
        with raises(*refusal):
            of_trees(unfit_trees, "xx", "dev", 0)


def test_reported_24_examples_name_letters_where_tokens_are_bytes() -> None:
    model = byte_level_model({}, [])
    rng = np.random.default_rng(7)
    letters = [*"戏开始สวัด"]
    examples = []
    for number in range(60):
        letter_count = rng.integers(2, 6)
        text = "".join(rng.choice(letters, letter_count))
        examples.append(Example(str(number), text))
    task = Task("letters", (), ("xx",), False, lambda *_: examples)
    report = study(model, of_task(task, "xx"), options=OPTIONS_WITHOUT_THRESHOLDS)
    rows = report.table("role-examples").rows
    parts_of_letters = set()
    for letter in letters:
        for part in (1, 2, 3):
            parts_of_letters.add(f"{letter}[{part}/3]")
    assert rows
    for *_, word, looks, correct_tokens in rows:
        assert {word, looks, *correct_tokens.split(" / ")} <= parts_of_letters
