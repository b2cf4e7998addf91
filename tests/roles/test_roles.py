"""Roles of heads: against counts made word by word in plain Python, and of heads that are made to have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import reference
import torch
from support.expected_errors import raises
from support.role_trees import FREQUENCIES, cutting_tokenizer, made_weights, trees
from support.tiny_models import LABELS, tiny_model, tiny_module
from support.tiny_task import tiny_task, tiny_tokenizer
from test_inputs import PAIRS
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
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def model_of(family: str) -> Model:
    return tiny_model(family, tokenizer=cutting_tokenizer())


def eager(family: str, inputs: dict[str, torch.Tensor]) -> list[np.ndarray]:
    """Weights [head, query, key] of each layer of the first stack, as transformers hands them out."""
    module = tiny_module(family, torch.float64)
    if family != "deberta-v2":
        module.set_attn_implementation("eager")
    with torch.inference_mode():
        out = module(**inputs, output_attentions=True)
    return [
        layer[0].numpy()
        for layer in (out["encoder_attentions"] if family == "marian" else out["attentions"])
    ]


def by_hand(
    weights: np.ndarray, ids: list[int], given: TokenisedSentences, row: int, causal: bool
) -> dict[str, tuple[Any, ...]]:
    """{role: (hits, asked, chance)} of one sentence and head, but for the syntactic ones' baseline."""
    special = [token in (0, 1, 2) for token in ids]
    places = given.words_of_tokens[row]
    every = reference.token_looks(weights, lambda q, k: not (causal and k > q))
    inner = reference.token_looks(weights, lambda q, k: not special[k] and not (causal and k > q))
    out = {
        "separator": reference.role_tally(every, special, lambda _, k: ids[k] == 2),
        "first token": reference.role_tally(every, special, lambda _, k: k == 0),
        "same token elsewhere": reference.role_tally(
            inner, special, lambda q, k: ids[q] == ids[k] and q != k
        ),
    }
    for offset in OFFSETS:
        out[position(offset)] = reference.role_tally(
            every, special, lambda q, k, o=offset: k - q == o
        )
    of_word = [FREQUENCIES.of(word) for word in given.words[row]]
    rare = [place >= 0 and of_word[place] == min(of_word) for place in places]
    out[RARE] = reference.role_tally(inner, special, lambda _, k: rare[k])
    words = reference.word_looks(weights, places, causal)
    for role, asked in given.targets_of(row).items():
        out[role] = (
            sum(words[word] in targets for word, targets in asked.items()),
            len(asked),
            None,
        )
    return out


@pytest.mark.parametrize("family", FAMILIES)
def test_counts_equal_those_made_sentence_by_sentence_in_plain_python(family: str) -> None:
    model = model_of(family)
    sentences = of_trees(trees(7, seed=1), "xx", "dev")
    want = totals(family, read(model, sentences, FREQUENCIES))
    found = study(model, sentences, frequencies=FREQUENCIES).table("roles")
    assert len(found.rows) > 100
    for values in found.rows:
        told = dict(zip(found.columns, values, strict=True))
        if told["role"] != INDUCTION:
            compare(told, want)


def totals(family: str, given: TokenisedSentences) -> dict[tuple[int, int, str], np.ndarray]:
    """{(layer, head, role): hits, asked, hits by chance, sentences that were asked} over all sentences."""
    want: dict[tuple[int, int, str], np.ndarray] = {}
    for row in range(len(given)):
        for layer, weights in enumerate(eager(family, given.tensors(np.array([row])))):
            for head, own in enumerate(weights):
                for role, (hits, asked, chance) in by_hand(
                    own, given.ids[row], given, row, family == "gpt2"
                ).items():
                    base = chance if chance is not None else np.nan
                    key = (layer, head, role)
                    want[key] = want.get(key, np.zeros(4)) + np.array(
                        [hits, asked, base, asked > 0]
                    )
    return want


def compare(told: dict[str, Any], want: dict[tuple[int, int, str], np.ndarray]) -> None:
    hits, asked, chance, count = want[told["layer"], told["head"], told["role"]]
    assert (told["hits"], told["asked"], told["sentences"]) == (hits, asked, count), told
    assert told["share, %"] == pytest.approx(100 * hits / asked)
    if told["role"] not in SYNTACTIC:
        assert told["chance, %"] == pytest.approx(100 * chance / asked)
    if kind_of(told["role"]) == "positional":
        others = [want[told["layer"], told["head"], position(o)] for o in OFFSETS]
        assert hits / asked == max(h / n for h, n, *_ in others if n)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_baseline_is_the_offset_that_most_words_would_be_right_with(family: str) -> None:
    bank = trees(12, seed=3)
    causal = family == "gpt2"
    report = study(model_of(family), of_trees(bank, "xx", "dev"), frequencies=FREQUENCIES)
    table = {
        row[:2]: dict(zip(report.table("relations").columns, row, strict=True))
        for row in report.table("relations").rows
    }
    asked = [correct_targets(t, np.ones(len(t.words), bool), causal) for t in bank]
    found = best_offsets(asked)
    for relation in RELATIONS:
        for direction in (TO_GOVERNOR, TO_DEPENDENT):
            hits: dict[int, int] = {}
            lookers = set()
            for t in bank:
                for looker in range(len(t.words)):
                    deps = [
                        w
                        for w in range(len(t.words))
                        if t.governors[w] == looker and t.relations[w] == relation
                    ]
                    up = [t.governors[looker]] if t.relations[looker] == relation else []
                    for target in up if direction == TO_GOVERNOR else deps:
                        if not (causal and target > looker):
                            hits[target - looker] = hits.get(target - looker, 0) + 1
                            lookers.add((t.id, looker))
            role = syntactic(relation, direction)
            told = table[relation, direction]
            assert hits[found[role]] == max(hits.values())
            assert told["offset"] == found[role]
            assert told["pairs"] == len(lookers)
            assert told["baseline, %"] == pytest.approx(100 * max(hits.values()) / len(lookers))


def test_a_sentence_whose_last_word_was_cut_asks_nothing_about_it() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())  # 64 positions
    size = 70
    chain = Tree(
        "long", ("w5",) * size, (-1, *range(size - 1)), ("root", *["nsubj"] * (size - 1)), 1
    )
    short = Tree("short", ("w5", "w6"), (1, -1), ("nsubj", "root"), 80)
    report = study(model, of_trees([chain, short], "xx", "dev"), frequencies=FREQUENCIES)
    (note,) = [note for note in report.notes if "cut" in note]
    assert "1 of 2 sentences were cut to the model's 64 tokens" in note
    assert "9 words are lost" in note  # 62 tokens are left, and the last word may not be whole
    assert "long" in note
    assert "short" not in note
    rows = [row for row in report.table("relations").rows if row[:2] == ("nsubj", TO_GOVERNOR)]
    assert rows[0][-2] == 60 + 1


def test_reported_06_words_of_a_task_that_are_lost_are_counted_too() -> None:
    """Without trees, the report named sentences that were cut, and no words."""
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("\N{ZERO WIDTH SPACE}", "")
    model = tiny_model("bert-tokens", tokenizer=tokenizer)
    sentences = {
        "long": ("w5",) * 70,
        "short": ("w5", "w6"),
        "hidden": ("w5", "\N{ZERO WIDTH SPACE}", "w6"),
    }
    examples = [
        Example(name, " ".join(words), words=words, labels=(0,) * len(words))
        for name, words in sentences.items()
    ]
    task = Task("made", LABELS, ("xx",), False, lambda *_: examples)
    report = study(model, of_task(task, "xx", "dev", None), frequencies=FREQUENCIES)
    (note,) = [note for note in report.notes if "lost" in note]
    assert (
        "2 of 3 sentences were cut to the model's 64 tokens or hold words without a token" in note
    )
    assert "10 words are lost" in note  # of the long one 9, as above
    assert "(long, hidden)" in note


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_sentence_cut_inside_its_outermost_word_loses_it(side: str) -> None:
    tokenizer = cutting_tokenizer()
    tokenizer.truncation_side = side
    # 64 positions, two of them for the special tokens
    model = tiny_model("bert", tokenizer=tokenizer)
    chain = [("w5",) * 61 + ("w6+w7",), ("w5",) * 62, ("w5",) * 60 + ("w6+w7",)]
    if side == "left":
        chain = [words[::-1] for words in chain]
    size = [len(words) for words in chain]
    bank = [
        Tree(f"t{i}", words, (-1, *range(n - 1)), ("root", *["nsubj"] * (n - 1)))
        for i, (words, n) in enumerate(zip(chain, size, strict=True))
    ]
    given = read(model, of_trees(bank, "xx", "dev"), FREQUENCIES)
    assert [len(ids) for ids in given.ids] == [64, 64, 64]
    lost = 61 if side == "right" else 0
    assert [np.flatnonzero(~whole).tolist() for whole in given.complete_words] == [[lost], [], []]
    (note,) = [note for note in given.notes if "cut" in note]
    assert "1 of 3 sentences" in note
    assert "1 words are lost" in note


def planted(
    bank: list[Tree], model: Model, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Report:
    """A report of heads that look where the test tells them."""

    def same(ids: list[int], query: int) -> int:
        return next(
            (k for k, token in enumerate(ids) if token == ids[query] and k != query),
            (3 * query + 1) % len(ids),
        )

    tokens = {
        tuple(model.tokenizer([list(t.words)], is_split_into_words=True)["input_ids"][0]): t
        for t in bank
    }

    def governor(ids: list[int], query: int) -> int:
        t = tokens[tuple(ids)]
        if query in (0, len(ids) - 1):
            return query
        return t.governors[query - 1] + 1

    aims = {
        (0, 0): lambda ids, q: max(q - 1, 0),
        (0, 1): lambda ids, q: min(q + 2, len(ids) - 1),
        (0, 2): lambda ids, q: len(ids) - 1,
        (0, 3): lambda ids, q: 0,
        (1, 0): same,
        (1, 1): governor,
        (1, 2): lambda ids, q: 1 + int(np.argmin(ids[1:-1])),
    }
    made = made_weights(aims, 4)
    monkeypatch.setattr(attention_statistics, "sum_weights", made)
    monkeypatch.setattr("headlab.roles.study.sum_weights", made)
    return study(model, of_trees(bank, "xx", "dev"), frequencies=FREQUENCIES, options=options)


def single(count: int) -> list[Tree]:
    """Trees over words of one token each, all different sentences; every fourth has a word twice."""
    rng = np.random.default_rng(5)
    out = []
    for i, t in enumerate(trees(count, seed=4, low=6, high=10)):
        words = [f"w{w}" for w in rng.permutation(np.arange(4, 60))[: len(t.words)]]
        words[-1] = words[0] if i % 4 == 0 else words[-1]
        out.append(Tree(t.id, tuple(words), t.governors, t.relations))
    return out


def test_heads_that_are_made_to_have_a_role_have_it_and_others_have_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    report = planted(single(60), model, monkeypatch)
    table = report.table("roles")
    has = {(row[1], row[2], row[3]) for row in table.rows if row[-1]}
    to_governor = {(1, 1, syntactic(relation, TO_GOVERNOR)) for relation in RELATIONS}
    rest = {(0, 0, "position -1"), (0, 1, "position +2"), (0, 2, "separator"), (0, 3, "first token"),
            (1, 0, "same token elsewhere"), (1, 2, RARE)}  # fmt: skip
    assert has == rest | to_governor
    best = {row[:2]: row for row in report.table("relations").rows}
    for relation in RELATIONS:
        assert best[relation, TO_GOVERNOR][3:6] == (1, 1, 100.0)
        assert best[relation, TO_GOVERNOR][-1] == 1
        assert best[relation, TO_DEPENDENT][-1] == 0
    assert dict(row[:2] for row in report.table("role-counts").rows)["positional"] == 2


def test_examples_show_what_a_head_looks_at_and_should(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = single(60)
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    rows = planted(bank, model, monkeypatch, examples=2).table("role-examples").rows
    shown = [row for row in rows if row[0] == syntactic("nsubj", TO_GOVERNOR)]
    assert [row[4] for row in shown] == [True, True]
    texts = {" ".join(t.words): t for t in bank}
    for _, stack, layer, head, _, sentence, word, looks, should in shown:
        t = texts[sentence]
        governors = {
            t.words[g] for w, g in zip(t.words, t.governors, strict=True) if w == word and g >= 0
        }
        assert stack == "encoder"
        assert layer == 1
        assert head == 1
        assert looks == should
        assert looks in governors
    none = planted(bank, model, monkeypatch, examples=0)
    assert none.table("role-examples").rows == ()


# With thresholds of zero a model that was never trained has roles too.
EASY = {"positional": 0, "margin": 0, "rare": 0, "separator": 0, "first": 0, "same": 0}


def test_examples_across_stacks_name_the_target_s_token_and_the_source_s() -> None:
    rng = np.random.default_rng(3)
    some = [
        [" ".join(f"w{w}" for w in rng.integers(low, low + 25, size)) for _ in range(60)]
        for low, size in ((4, 2), (30, 9))
    ]
    rows = [
        Example(str(i), source, target=target)
        for i, (source, target) in enumerate(zip(*some, strict=True))
    ]
    task = Task("short", (), ("xx",), False, lambda *_: rows)
    model = tiny_model("marian", tokenizer=tiny_tokenizer())
    shown = study(model, of_task(task, "xx"), options=EASY).table("role-examples").rows
    targets = {word for text in some[1] for word in text.split()}
    across = [row for row in shown if row[1] == "cross"]
    assert across
    for *_, sentence, word, looks, should in across:
        sources = {*sentence.split(), "<s>", "</s>"}
        assert word in targets
        assert looks in sources
        assert set(should.split(" / ")) <= sources


def test_examples_are_the_same_on_any_number_of_lanes_and_in_little_memory(
    threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of("bert")
    sentences = of_trees(trees(60, seed=8), "xx", "dev")
    monkeypatch.setattr(attention_statistics, "token_budget", lambda _: 100)

    def found() -> tuple[Any, ...]:
        options = EASY | {"examples": 15}
        return (
            study(model, sentences, options=options, frequencies=FREQUENCIES)
            .table("role-examples")
            .rows
        )

    torch.set_num_threads(1)
    alone = found()
    assert {row[4] for row in alone} == {True, False}
    assert len(alone) >= 30  # more than a batch has
    torch.set_num_threads(3)
    assert found() == alone

    def small(model: Model, inputs: dict[str, torch.Tensor], *rest: Any) -> None:
        if len(inputs["input_ids"]) > 2:
            raise MemoryError
        sum_weights(model, inputs, *rest)

    monkeypatch.setattr("headlab.roles.study.sum_weights", small)
    assert found() == alone


@pytest.mark.usefixtures("one_lane")
def test_the_search_for_examples_can_be_stopped_and_has_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    bank = single(60)
    monkeypatch.setattr(attention_statistics, "token_budget", lambda _: 100)
    monkeypatch.setattr("headlab.roles.study.MAX_SEARCHED", 15)
    aims = {(0, 0): lambda ids, q: max(q - 1, 0)}  # never misses
    made = made_weights(aims, 4)
    seen = list[int]()

    def counted(model: Model, inputs: dict[str, torch.Tensor], *rest: Any) -> None:
        seen.append(len(inputs["input_ids"]))
        made(model, inputs, *rest)

    monkeypatch.setattr(attention_statistics, "sum_weights", made)
    monkeypatch.setattr("headlab.roles.study.sum_weights", counted)
    study(model, of_trees(bank, "xx", "dev"), frequencies=FREQUENCIES)
    assert sum(seen) == 15
    seen.clear()

    def stop() -> None:
        if seen:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(model, of_trees(bank, "xx", "dev"), frequencies=FREQUENCIES, tick=stop)
    assert 0 < sum(seen) < 15


def test_a_threshold_that_is_higher_takes_the_role_away(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    bank = single(60)
    baseline = {
        row[:2]: row[8] for row in planted(bank, model, monkeypatch).table("relations").rows
    }
    margin = 1 - baseline["obj", TO_GOVERNOR] / 100
    for step, has in ((-0.001, 1), (0.001, 0)):
        found = planted(bank, model, monkeypatch, margin=margin + step).table("relations").rows
        assert {row[:2]: row[-1] for row in found}["obj", TO_GOVERNOR] == has


@pytest.mark.parametrize("family", FAMILIES)
def test_measures_equal_those_written_out_sentence_by_sentence(family: str) -> None:
    model = model_of(family)
    bank = trees(5, seed=6)
    given = read(model, of_trees(bank, "xx", "dev"), FREQUENCIES)
    sums: dict[tuple[int, int], np.ndarray] = {}
    for row in range(len(bank)):
        ids = given.ids[row]
        for layer, weights in enumerate(eager(family, given.tensors(np.array([row])))):
            for head, own in enumerate(weights):
                for query in range(len(ids)):
                    w = own[query, : len(ids)]
                    confidence = max(x for k, x in enumerate(w) if ids[k] != 2)
                    entropy = -sum(x * np.log(x) for x in w if x > 0)
                    distance = sum(x * abs(query - k) for k, x in enumerate(w))
                    separators = sum(x for k, x in enumerate(w) if ids[k] == 2)
                    parts = np.array([confidence, entropy, distance, separators, w[0], 1])
                    sums[layer, head] = sums.get((layer, head), np.zeros(6)) + parts
    table = study(model, of_trees(bank, "xx", "dev"), frequencies=FREQUENCIES).table("measures")
    assert len(table.rows) == model.grid.stacks[0].size
    for _, layer, head, *values in table.rows:
        want = sums[layer, head]
        np.testing.assert_allclose(values[:-1], want[:-1] / want[-1], rtol=1e-5)
        assert values[-1] == want[-1]


def test_confidence_is_that_of_the_method_of_this_name() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    for exclude in ("separator", "none"):
        table = study(model, of_task(tiny_task(), "xx"), options={"exclude": exclude}).table(
            "measures"
        )
        scores = score(model, tiny_task(), language="xx", method="confidence", exclude=exclude)
        np.testing.assert_allclose(table.column("confidence"), scores.values, rtol=1e-6)


def test_a_translation_model_is_judged_in_all_three_stacks_on_pairs_and_in_one_on_trees() -> None:
    model = tiny_model("marian", tokenizer=tiny_tokenizer())
    report = study(model, of_task(PAIRS, "xx"))
    table = report.table("measures")
    assert {row[0] for row in table.rows} == {"encoder", "decoder", "cross"}
    for row in table.rows:
        told = dict(zip(table.columns, row, strict=True))
        assert (told["distance, tokens"] is None) == (told["stack"] == "cross")
        assert all(0 <= told[name] <= 1 for name in MEASURES if "share" in name)
    across = {row[3] for row in report.table("roles").rows if row[0] == "cross"}
    assert across == {"separator", "first token"}
    on_trees = study(model, of_trees(single(4), "xx", "dev"))
    assert {row[0] for row in on_trees.table("measures").rows} == {"encoder"}
    assert any("encoder is judged alone" in note for note in on_trees.notes)


def test_shares_of_a_translation_model_equal_the_weights_it_hands_out() -> None:
    model = tiny_model("marian", tokenizer=tiny_tokenizer())
    evaluator = Evaluator(model, PAIRS, "xx")
    module = tiny_module("marian", torch.float64)
    module.set_attn_implementation("eager")
    total = np.zeros((3, 3))
    tokens = 0
    for row in range(len(evaluator.examples)):
        inputs = evaluator.tensors(np.array([row]))
        separators = (inputs["input_ids"][0] == 2).numpy()
        with torch.inference_mode():
            out = module(**inputs, output_attentions=True)
        for layer, weights in enumerate(out["cross_attentions"]):
            total[layer] += weights[0].numpy()[:, :, separators].sum(axis=(1, 2))
        tokens += inputs["decoder_input_ids"].shape[1]
    table = study(model, of_task(PAIRS, "xx")).table("measures")
    got = [row[table.columns.index("separator share")] for row in table.rows if row[0] == "cross"]
    np.testing.assert_allclose(got, (total / tokens).ravel(), rtol=1e-5)


def test_sentences_given_twice_ask_for_what_followed_the_first_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model("gpt2", tokenizer=tiny_tokenizer())
    bank = single(40)
    given = repeated_sentences(model, read(model, of_trees(bank, "xx", "dev"), FREQUENCIES))
    body = [int(word[1:]) for word in bank[1].words]
    assert given.ids[1] == [1, *body, *body]
    assert given.repetition_starts[1] == 1 + len(body)

    def follows(ids: list[int], query: int) -> int:
        before = [k for k in range(query) if ids[k] == ids[query]]
        return before[0] + 1 if before and before[0] + 1 < query else 0

    heads = model.grid.width
    monkeypatch.setattr(
        attention_statistics,
        "sum_weights",
        made_weights({(1, 2): follows, (0, 0): lambda ids, q: q}, heads),
    )
    monkeypatch.setattr("headlab.roles.study.sum_weights", attention_statistics.sum_weights)
    report = study(
        model, of_trees(bank, "xx", "dev"), options={"examples": 2}, frequencies=FREQUENCIES
    )
    shown = [row for row in report.table("role-examples").rows if row[0] == INDUCTION]
    assert [row[1:5] for row in shown] == [("decoder", 1, 2, True)] * 2
    for *_, sentence, word, looks, should in shown:
        tokens = sentence.split()
        assert looks == should == tokens[tokens.index(word) + 1]
        assert tokens[1:] == tokens[1 : len(tokens) // 2 + 1] * 2
    found = [
        dict(zip(report.table("roles").columns, row, strict=True))
        for row in report.table("roles").rows
    ]
    of_role = {(row["layer"], row["head"]): row for row in found if row["role"] == INDUCTION}
    assert [place for place, row in of_role.items() if row["has it"]] == [(1, 2)]
    assert of_role[1, 2]["hits"] == of_role[1, 2]["asked"] == sum(len(t.words) for t in bank)
    assert of_role[0, 0]["hits"] == 0
    assert report.example_forwards == 2 * len(bank)


def test_results_are_the_same_bits_on_any_number_of_threads(threads: None) -> None:
    model = model_of("bert")
    sentences = of_trees(trees(60, seed=8), "xx", "dev")
    found = []
    for lanes in (1, 3):
        torch.set_num_threads(lanes)
        found.append(
            [table.rows for table in study(model, sentences, frequencies=FREQUENCIES).tables]
        )
    assert found[0] == found[1]


def test_results_do_not_depend_on_the_size_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("gpt2")
    sentences = of_trees(trees(10, seed=9), "xx", "dev")
    found = []
    for tokens in (1, 64, 4096):
        monkeypatch.setattr(attention_statistics, "token_budget", lambda _, tokens=tokens: tokens)
        found.append(study(model, sentences, options={"examples": 0}, frequencies=FREQUENCIES))
    for other in found[1:]:
        for mine, table in zip(found[0].tables, other.tables, strict=True):
            assert len(mine.rows) == len(table.rows)
            for a, b in zip(mine.rows, table.rows, strict=True):
                assert [x for x in a if not isinstance(x, float)] == [
                    x for x in b if not isinstance(x, float)
                ]
                np.testing.assert_allclose(
                    [x for x in a if isinstance(x, float)],
                    [x for x in b if isinstance(x, float)],
                    rtol=1e-5,
                    atol=1e-7,
                )


def test_padding_on_the_left_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    aims = {
        (layer, head): lambda ids, q, h=head: (ids[q] * (h + 1) + q) % len(ids)
        for layer in range(3)
        for head in range(4)
    }
    monkeypatch.setattr(attention_statistics, "sum_weights", made_weights(aims, 4))
    found = []
    for side in ("right", "left"):
        tokenizer = cutting_tokenizer()
        tokenizer.padding_side = side
        model = tiny_model("bert", tokenizer=tokenizer)
        sentences = of_trees(trees(9, seed=10), "xx", "dev")
        found.append(
            study(model, sentences, options={"examples": 0}, frequencies=FREQUENCIES)
            .table("roles")
            .rows
        )
    for a, b in zip(*found, strict=True):
        assert a[:4] == b[:4]
        assert a[11:14] == b[11:14]  # hits, asked, sentences


def test_what_is_kept_of_a_batch_does_not_grow_with_its_sentences() -> None:
    model = model_of("bert")
    sizes = []
    for count in (4, 40):
        given = read(model, of_trees(trees(count), "xx", "dev"), FREQUENCIES)
        offsets = best_offsets(map(given.targets_of, range(count)))
        batch = Batch(np.arange(count), given.tensors(np.arange(count)))
        sums = attention_statistics.sums_of(model, given, batch, "separator", offsets)
        sizes.append(sums.measures.nbytes + sum(values.nbytes for values in sums.roles.values()))
    assert sizes[0] == sizes[1]


def test_a_byte_level_tokenizer_is_given_the_spaces_between_words() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(
        models.BPE(vocab={**letters, "Ġb": 256, "ab": 257}, merges=[("Ġ", "b"), ("a", "b")])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model = tiny_model(
        "gpt2", tokenizer=PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="!")
    )
    model.module.resize_token_embeddings(len(model.tokenizer))
    given = read(
        model,
        of_trees([Tree("1", ("ab", "b"), (1, -1), ("nsubj", "root"))], "xx", "dev"),
        FREQUENCIES,
    )
    assert given.ids == [[257, 256]]
    assert given.words_of_tokens == [[0, 1]]


def test_sentences_are_a_random_part_that_depends_on_the_seed_alone() -> None:
    bank = trees(30)
    some = of_trees(bank, "xx", "dev", 7, seed=1)
    assert len(some) == 7
    assert some == of_trees(bank, "xx", "dev", 7, seed=1)
    assert some.trees != of_trees(bank, "xx", "dev", 7, seed=2).trees
    assert [bank.index(t) for t in some.trees] == sorted(bank.index(t) for t in some.trees)
    other: Sentences = of_trees([*bank[:-1], bank[0]], "xx", "dev")
    assert other.data_hash != of_trees(bank, "xx", "dev").data_hash
    for wrong, expected in (([], ("roles.no_trees", "xx")), (bank, ("roles.size_too_small", 0))):
        with raises(*expected):
            of_trees(wrong, "xx", "dev", 0)


def test_reported_24_examples_name_letters_where_tokens_are_bytes() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    symbols = {
        symbol: number for number, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    backend = Tokenizer(models.BPE(vocab=symbols, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model = tiny_model(
        "gpt2", tokenizer=PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="!")
    )
    model.module.resize_token_embeddings(len(model.tokenizer))
    rng = np.random.default_rng(7)
    letters = [*"戏开始สวัด"]
    texts = ["".join(rng.choice(letters, rng.integers(2, 6))) for _ in range(60)]
    examples = [Example(str(number), text) for number, text in enumerate(texts)]
    task = Task("letters", (), ("xx",), False, lambda *_: examples)
    rows = study(model, of_task(task, "xx"), options=EASY).table("role-examples").rows
    parts = {f"{letter}[{part}/3]" for letter in letters for part in (1, 2, 3)}
    assert rows
    assert {
        cell for *_, word, looks, should in rows for cell in (word, looks, *should.split(" / "))
    } <= parts
