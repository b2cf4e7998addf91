"""Requests and metrics of lm-evaluation-harness, where it is not installed.

The results are recorded by tests/support/harness_tasks.py.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reference import next_token_log_probabilities
from support.character_tokenizer import END, character_tokenizer
from support.expected_errors import raises
from support.harness_tasks import ENDINGS, NAMES, RECORD, TASKS
from support.likelihood_tasks import CHOICES, language_model
from support.tiny_models import tiny_model

from headlab.cli.evaluate import harness_lines, task_names
from headlab.evaluation import Evaluator
from headlab.evaluation.harness.answers import AnswerSettings, check_answer_length, written_answer
from headlab.evaluation.harness.continuations import (
    Continuation,
    ContinuationTokens,
    continuation_tokens,
    log_likelihoods,
)
from headlab.evaluation.harness.metrics import HarnessRun, TaskGroup, figures
from headlab.evaluation.harness.notes import TaskNotes
from headlab.evaluation.harness.statistics import SUM_STATISTICS, paired_interval
from headlab.hooks import Model, as_gate_tensor, gated
from headlab.masks import Mask, full_mask
from headlab.tasks import Example

DOCUMENTS = len(ENDINGS)


@pytest.fixture(scope="module")
def runs() -> list[HarnessRun]:
    """The recorded results without and with a mask."""
    records = json.loads(RECORD.read_text("utf-8"))
    return [run_of(record) for record in records]


def run_of(record: dict[str, Any]) -> HarnessRun:
    groups = {}
    for name, group in record["groups"].items():
        tasks = tuple(group["tasks"])
        groups[name] = TaskGroup(tasks, group["by_size"])
    return HarnessRun(record["results"], record["aggregations"], groups)


@pytest.fixture(scope="module")
def table(runs: list[HarnessRun]) -> dict[str, Any]:
    return figures(runs, seed=0)


def rows_of(table: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """(task or group, metric, row) of all rows."""
    rows = []
    for task, metrics in table.items():
        for key, row in metrics.items():
            metric = key.removesuffix(f",{row['filter']}")
            rows.append((task, metric, row))
    return rows


def test_reported_01_filters_have_a_row_each(table: dict[str, Any], runs: list[HarnessRun]):
    rows = table["mini_filters"]
    assert set(rows) == {"exact_match,first-word", "exact_match,never"}
    metrics = runs[0].results["results"]["mini_filters"]
    accuracy = metrics["exact_match,first-word"]
    assert accuracy > 0 == rows["exact_match,never"]["baseline"]
    assert rows["exact_match,first-word"]["baseline"] == accuracy
    assert {row["n"] for row in rows.values()} == {DOCUMENTS}
    assert {row["filter"] for row in rows.values()} == {"first-word", "never"}


def test_reported_01_repeated_answers_have_a_row_a_filter(table: dict[str, Any]):
    assert set(table["mini_repeats"]) == {"exact_match,votes", "exact_match,first"}
    repeats = table["mini_repeats"].values()
    assert {row["n"] for row in repeats} == {DOCUMENTS}


def test_reported_01_a_task_with_one_filter_keeps_its_keys(table: dict[str, Any]):
    assert set(table["mini_choices"]) == {
        "acc",
        "acc_norm",
        "acc_bytes",
        "brier_score",
        "acc_mutual_info",
    }


def test_reported_01_lines_name_the_filter_where_there_is_one(table: dict[str, Any]):
    lines = list(harness_lines(table))
    (never,) = [line for line in lines if " never " in line]
    assert never.split()[:4] == ["mini_filters", "never", "exact_match", "↑"]
    lines_without_filter = harness_lines({"mini_choices": table["mini_choices"]})
    assert " none " not in "\n".join(lines_without_filter)


def test_reported_02_every_value_is_the_harness_s_own(
    table: dict[str, Any], runs: list[HarnessRun]
):
    rows = rows_of(table)
    harness_metrics = set()
    for task, metrics in runs[0].results["results"].items():
        for key in metrics:
            if "," in key and "_stderr" not in key:
                harness_metrics.add((task, key))
    table_metrics = set()
    for task, metric, row in rows:
        key = f"{metric},{row['filter']}"
        table_metrics.add((task, key))
        baseline, under_mask = (run.results["results"][task][key] for run in runs)
        difference = under_mask - baseline
        assert row[metric] == under_mask
        assert row["baseline"] == baseline
        assert row["difference"] == pytest.approx(difference)
    assert table_metrics == harness_metrics


def test_reported_02_perplexity_is_no_mean_of_log_probabilities(
    table: dict[str, Any], runs: list[HarnessRun]
):
    row = table["mini_lambada"]["perplexity"]
    samples = runs[1].results["samples"]["mini_lambada"]
    nats = [sample["perplexity"] for sample in samples]
    perplexity = np.exp(-np.mean(nats))
    assert row["perplexity"] == pytest.approx(perplexity)
    assert row["low"] < row["difference"] < row["high"]
    assert row["higher_is_better"] is False
    (line,) = harness_lines({"mini_lambada": {"perplexity": row}})
    assert line.split()[:3] == ["mini_lambada", "perplexity", "↓"]


@pytest.mark.parametrize(
    ("task", "metric", "higher_is_better"),
    [
        ("mini_lambada", "acc", True),
        ("mini_classes", "f1", True),
        ("mini_classes", "mcc", True),
        ("mini_choices", "brier_score", False),
        ("mini_corpus", "bleu", True),
        ("mini_corpus", "ter", False),
        ("mini_rolling", "bits_per_byte", False),
        ("mini_own", "spread", False),
        ("mini_equal", "acc", True),
        ("mini_by_size", "perplexity", False),
    ],
)
def test_reported_02_the_direction_is_the_task_s(
    task: str, metric: str, higher_is_better: bool, table: dict[str, Any]
):
    assert table[task][metric]["higher_is_better"] is higher_is_better


def test_reported_02_a_difference_has_an_interval_or_says_why_not(table: dict[str, Any]):
    for _, _, row in rows_of(table):
        assert ("low" in row) != ("no_interval" in row)
        low = row.get("low", -np.inf)
        high = row.get("high", np.inf)
        assert low <= high
    corpus_rows = table["mini_corpus"]
    own_rows = table["mini_own"]
    for metric in ("chrf", "ter"):
        assert metric in corpus_rows[metric]["no_interval"]
    assert "largest" in own_rows["spread"]["no_interval"]
    assert own_rows["even_nats"]["no_interval"] == "6 documents are too few"
    assert "low" in corpus_rows["bleu"]
    text = "\n".join(harness_lines(table))
    assert "(no interval: the harness computes it of all documents at once (chrf))" in text


def test_reported_02_a_metric_that_some_documents_lack_counts_the_others(table: dict[str, Any]):
    rows = table["mini_own"]
    assert rows["even_nats"]["n"] == DOCUMENTS / 2
    assert rows["spread"]["n"] == DOCUMENTS


def test_reported_02_groups_are_averaged_as_they_say(table: dict[str, Any]):
    row = table["mini_equal"]["acc"]
    accuracies = [table[task]["acc"]["acc"] for task in ("mini_choices", "mini_classes")]
    mean_accuracy = np.mean(accuracies)
    assert row["acc"] == pytest.approx(mean_accuracy)
    assert row["low"] <= row["difference"] <= row["high"]
    assert row["n"] == 2 * DOCUMENTS
    assert row["tasks"] == 2
    assert "no share" in table["mini_by_size"]["perplexity"]["no_interval"]
    task_row = table["mini_lambada"]["acc"]
    group_row = table["mini_by_size"]["acc"]
    assert task_row["acc"] == group_row["acc"]
    assert task_row["n"] == group_row["n"]
    assert {"low", "high", "p"} < set(group_row)


def test_reported_02_large_numbers_are_printed_with_an_exponent():
    row = {
        "perplexity": 9.4e16,
        "filter": "none",
        "higher_is_better": False,
        "n": 5,
        "cut": 1,
    }
    assert list(harness_lines({"lambada": {"perplexity": row}})) == [
        "lambada  perplexity ↓  9.4e+16  n=5  cut=1"
    ]


def test_reported_02_without_a_mask_there_is_no_difference(runs: list[HarnessRun]):
    table = figures(runs[:1], seed=0, cut_by_task={"mini_own": 2})
    for _, metric, row in rows_of(table):
        assert set(row) - {"tasks"} == {
            metric,
            "filter",
            "higher_is_better",
            "n",
            "aggregation",
            "cut",
        }
    assert table["mini_own"]["spread"]["cut"] == 2


def test_reported_02_a_value_that_is_no_number_is_said(runs: list[HarnessRun]):
    records = json.loads(RECORD.read_text("utf-8"))
    values = (float("nan"), {"a": 1})
    for record, value in zip(records, values, strict=True):
        results = record["results"]["results"]
        results["mini_lambada"]["perplexity,none"] = value
    table = figures([run_of(record) for record in records], seed=0)
    row = table["mini_lambada"]["perplexity"]
    assert row["perplexity"] is None
    assert row["baseline"] is None
    assert row["difference"] is None
    assert row["no_interval"] == "the harness gives no number"
    stored_table = json.dumps(table, allow_nan=False)
    assert json.loads(stored_table) == table
    assert "no number" in "\n".join(harness_lines(table))


@pytest.mark.parametrize("name", sorted(SUM_STATISTICS))
def test_reported_02_sums_give_what_the_harness_computes(name: str, runs: list[HarnessRun]):
    statistic = SUM_STATISTICS[name]
    comparisons = 0
    for run in runs:
        for task, aggregations in run.aggregations.items():
            for (metric, filter_name), values in run.values(task).items():
                if aggregations.get(metric) != name:
                    continue
                terms = statistic.terms(list(values.values()))
                value = float(statistic.of_sums(terms.sum(axis=0)))
                harness_value = run.value(task, metric, filter_name)
                assert value == pytest.approx(harness_value, abs=1e-12)
                comparisons += 1
    assert comparisons or name == "nanmean"


def test_reported_02_documents_without_a_number_leave_a_mean_of_the_others():
    statistic = SUM_STATISTICS["nanmean"]
    sums = statistic.terms([1.0, np.nan, 4.0]).sum(axis=0)
    assert float(statistic.of_sums(sums)) == 2.5


def test_reported_02_correlation_of_several_classes_is_that_of_their_pairs():
    """Matthews' correlation of two classes is Pearson's.

    A third class that is never confused with them raises it.
    """
    rng = np.random.default_rng(0)
    labels, answers = rng.integers(0, 2, (2, 40))
    statistic = SUM_STATISTICS["matthews_corrcoef"]

    def correlation(pairs: list[tuple[int, int]]) -> float:
        sums = statistic.terms(pairs).sum(axis=0)
        return float(statistic.of_sums(sums))

    pairs = list(zip(labels.tolist(), answers.tolist(), strict=True))
    pearson = np.corrcoef(labels, answers)[0, 1]
    third_class = [(2, 2)] * 40
    assert correlation(pairs) == pytest.approx(pearson)
    assert correlation([*pairs, *third_class]) > correlation(pairs)
    assert correlation([(0, 0)] * 5) == 0


def test_reported_02_few_changed_answers_give_no_interval():
    baseline = [(1, 1)] * 20
    three_changes = [(1, 0)] * 3 + baseline[3:]
    ten_changes = [(1, 0)] * 10 + baseline[10:]
    names = tuple(map(str, range(20)))
    reason = paired_interval("f1", baseline, three_changes, names, 0)
    assert reason == "the mask changes 3 of 20 documents, which are too few"
    interval = paired_interval("f1", baseline, ten_changes, names, 0)
    assert not isinstance(interval, str)
    assert interval.low < interval.difference < interval.high < 0
    ambiguous = [(["a", "b"], "a")] * 9
    plain = [("a", "a")] * 9
    reason = paired_interval("bleu", ambiguous, plain, names[:9], 0)
    assert isinstance(reason, str)


def test_reported_02_means_of_log_probabilities_get_no_made_up_documents():
    rng = np.random.default_rng(1)
    baseline = rng.normal(-40, 5, 30)
    noise = rng.normal(0, 1, 30)
    under_mask = baseline - 20 + noise
    names = tuple(map(str, range(30)))
    interval = paired_interval(
        "mean",
        baseline.tolist(),
        under_mask.tolist(),
        names,
        0,
    )
    assert not isinstance(interval, str)
    assert interval.low < -20 < interval.high
    assert interval.high - interval.low < 2


@pytest.mark.parametrize(
    ("settings", "sampling_names", "unused_names"),
    [
        (
            {"do_sample": True, "temperature": 0.7, "top_p": 0.9},
            {"do_sample", "temperature", "top_p"},
            set(),
        ),
        (
            {"temperature": 0.2, "top_k": 5},
            {"temperature", "top_k"},
            set(),
        ),
        ({"do_sample": False, "temperature": 0.7}, set(), set()),
        ({"temperature": 0.0}, set(), set()),
        (
            {"num_return_sequences": 5, "until": None},
            set(),
            {"num_return_sequences"},
        ),
        ({"num_return_sequences": 1, "num_beams": 2}, set(), set()),
        (
            {"max_length": 9, "odd": 1},
            set(),
            {"max_length", "odd"},
        ),
    ],
)
def test_reported_02_settings_without_effect_are_said(
    settings: dict[str, Any],
    sampling_names: set[str],
    unused_names: set[str],
):
    answer_settings = AnswerSettings.of(settings)
    sampling = answer_settings.sampling
    unused_settings = answer_settings.unused
    assert set(sampling) == sampling_names
    assert set(unused_settings) == unused_names
    notes = TaskNotes(
        sampling={"gsm8k": sampling}, unused={"gsm8k": unused_settings}, repeats={"gsm8k": 4}
    )
    sentences = " ".join(notes.sentences())
    for name, value in {**sampling, **unused_settings}.items():
        assert f"{name}={value}" in sentences
    assert "4 answers" in sentences


@pytest.mark.parametrize(
    "name", ["max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"]
)
def test_reported_02_all_names_of_the_length_count(name: str):
    settings = AnswerSettings.of({name: 7, "until": ["", "a"]})
    assert settings.max_tokens == 7
    assert settings.ends == ("a",)
    assert AnswerSettings.of({"until": "stop"}).ends == ("stop",)
    assert AnswerSettings.of({}).max_tokens == 256


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("llama-lm", tokenizer=character_tokenizer())


def choices_of(document: int, context: str, *texts: str) -> list[Continuation]:
    return [Continuation("code", document, context, text) for text in texts]


def scores(
    model: Model,
    *choices: Continuation,
    notes: TaskNotes | None = None,
) -> list[float]:
    notes = notes or TaskNotes()
    tokens = continuation_tokens(model, choices, END, notes)
    gates = as_gate_tensor(model, full_mask(model.grid))
    likelihoods = log_likelihoods(model, gates, tokens, notes)
    return [value for value, _ in likelihoods]


def ids(model: Model, text: str) -> list[int]:
    return list(model.tokenizer(text)["input_ids"])


def log_probability(model: Model, context: str | list[int], text: str) -> float:
    """The log-probability of the tokens of a text after a context."""
    context_ids = ids(model, context) if isinstance(context, str) else context
    text_ids = ids(model, text)
    return sum(next_token_log_probabilities(model.module, context_ids, text_ids))


def test_reported_03_choices_of_a_document_share_what_the_tokenizer_leaves_of_the_context(
    model: Model,
):
    notes = TaskNotes()
    choice_scores = scores(
        model,
        *choices_of(1, "print(", ")", "x)", "y"),
        *choices_of(2, "print(", "x", "y"),
        notes=notes,
    )
    log_probabilities = [
        log_probability(model, "print", "()"),
        log_probability(model, "print", "(x)"),
        log_probability(model, "print", "(y"),
        log_probability(model, "print(", "x"),
        log_probability(model, "print(", "y"),
    ]
    assert choice_scores == pytest.approx(log_probabilities, abs=1e-5)
    assert notes.merged == {"code": {1}}
    assert "code: in 1 document the tokenizer merges" in notes.sentences()[0]


def test_reported_03_a_merged_choice_alone_has_its_probability(model: Model):
    (choice_score,) = scores(model, *choices_of(1, "print(", ")"))
    expected_score = log_probability(model, "print", "()")
    assert choice_score == pytest.approx(expected_score, abs=1e-5)
    assert choice_score < 0


def test_reported_03_a_choice_that_loses_a_part_to_the_context_is_scored_whole(model: Model):
    (choice_score,) = scores(model, *choices_of(1, "print(", ")xy"))
    expected_score = log_probability(model, "print", "()xy")
    assert choice_score == pytest.approx(expected_score, abs=1e-5)


def test_reported_03_headlab_s_own_choices_agree(model: Model):
    examples = [
        Example("1", "print(", 0, choices=(")", "x)", "y")),
        Example("2", "a print(", 1, choices=("xx", ")a")),
    ]
    task = replace(CHOICES, read=lambda *_: examples)
    evaluator = Evaluator(model, task, "xx")
    inputs = evaluator.tensors(np.arange(2))
    logits = evaluator.logits(inputs).detach().numpy()
    for row, example in enumerate(examples):
        choices = choices_of(row, example.text, *example.choices)
        choice_scores = scores(model, *choices)
        choice_logits = logits[row, : len(choice_scores)].tolist()
        assert choice_scores == pytest.approx(choice_logits, abs=1e-5)


@pytest.mark.parametrize(
    ("context", "text"),
    [
        ("print(", ""),
        ("print ", ""),
        ("", ""),
        ("print(", "\N{ZERO WIDTH SPACE}"),
        ("", "</s>"),
    ],
)
def test_reported_03_an_empty_choice_names_its_document(context: str, text: str, model: Model):
    with raises("data.choice_empty", "code, document 7", repr(text)):
        scores(model, *choices_of(7, context, "x", text))


@pytest.mark.parametrize("text", ["\N{ZERO WIDTH SPACE}", ""])
def test_reported_03_own_tasks_refuse_a_choice_without_a_token_too(text: str, model: Model):
    example = Example("line 4", "print(", 0, choices=("x", text))
    with raises("data.choice_empty", "line 4"):
        task = replace(CHOICES, read=lambda *_: [example])
        Evaluator(model, task, "xx")
    target = Example("line 5", "print(", target=text)
    with raises("data.text_too_short", "line 5"):
        task = replace(CHOICES, likelihood="tokens", read=lambda *_: [target])
        Evaluator(model, task, "xx")


def test_reported_03_what_nothing_stands_before_follows_the_prefix_token(model: Model):
    choice_scores = scores(
        model,
        *choices_of(1, "", "xy", "</s>a"),
        *choices_of(2, " ", "x"),
        *choices_of(3, "(", ")", "x"),
        *choices_of(4, "\N{ZERO WIDTH SPACE}", "x"),
    )
    texts = ["xy", "a", " x", "()", "(x", "x"]
    log_probabilities = [log_probability(model, [END], text) for text in texts]
    assert choice_scores == pytest.approx(log_probabilities, abs=1e-5)


def test_reported_03_a_choice_of_white_space_is_scored_and_said(model: Model):
    notes = TaskNotes()
    choices = choices_of(1, "print", " ", "x")
    (choice_score, _) = scores(model, *choices, notes=notes)
    expected_score = log_probability(model, "print", " ")
    assert choice_score == pytest.approx(expected_score, abs=1e-5)
    assert "acc_norm" in notes.sentences()[0]


def test_reported_03_heads_off_are_off(model: Model):
    kept_heads = np.ones(model.grid.size, bool)
    kept_heads[[0, 5]] = False
    notes = TaskNotes()
    choices = choices_of(1, "print(", ")", "x")
    tokens = continuation_tokens(model, choices, END, notes)
    gates = as_gate_tensor(model, Mask(model.grid, kept_heads))
    likelihoods = log_likelihoods(model, gates, tokens, notes)
    choice_scores = [value for value, _ in likelihoods]
    with gated(model, model.grid.gates(kept_heads)):
        log_probabilities = [log_probability(model, "print", text) for text in ("()", "(x")]
    assert choice_scores == pytest.approx(log_probabilities, abs=1e-5)


def test_reported_04_contexts_that_are_cut_are_counted_and_continuations_are_not_cut(model: Model):
    notes = TaskNotes()
    limit = model.module.config.max_position_embeddings
    choices = choices_of(3, "x" * limit, "ya")
    (choice_score,) = scores(model, *choices, notes=notes)
    context = "x" * (limit - 1)
    expected_score = log_probability(model, context, "ya")
    assert choice_score == pytest.approx(expected_score, abs=1e-5)
    assert notes.cut == {"code": {3}}
    with raises("data.text_too_long", "code, document 4"):
        long_choices = choices_of(4, "x", "y" * (limit + 1))
        scores(model, *long_choices)
    with raises("lm_eval.answer_too_long", "code"):
        check_answer_length(model, "code", AnswerSettings(max_tokens=limit))


def test_reported_02_answers_end_where_the_task_says():
    model = language_model("llama-lm")
    gates = as_gate_tensor(model, full_mask(model.grid))

    context = ids(model, "w5 w6")[:-1]

    def answer(**settings: Any) -> str:
        answer_settings = AnswerSettings.of({"max_gen_toks": 6, **settings})
        end = model.tokenizer.eos_token_id
        return written_answer(model, gates, context, answer_settings, end)

    text = answer()
    assert text == answer(until=["", "no such text"])
    assert text == answer(do_sample=True, temperature=2.0)
    words = text.split()
    assert len(words) > 2
    until_second_word = answer(until=words[1])
    two_tokens = answer(max_gen_toks=None, max_new_tokens=2)
    assert until_second_word.split() == words[:1]
    assert two_tokens.split() == words[:2]
    assert answer(repetition_penalty=50.0).split() != words


def test_the_record_is_of_the_tasks_here(runs: list[HarnessRun]):
    assert set(runs[0].results["samples"]) == set(TASKS)
    group_names = {name for name in NAMES if name not in TASKS}
    assert set(runs[0].groups) == group_names


def test_tokens_alone_can_be_scored(model: Model):
    gates = as_gate_tensor(model, full_mask(model.grid))
    tokens = [ContinuationTokens([END], ids(model, "x"))]
    likelihoods = log_likelihoods(model, gates, tokens, TaskNotes())
    ((value, is_greedy),) = likelihoods
    expected_value = log_probability(model, [END], "x")
    assert value == pytest.approx(expected_value, abs=1e-5)
    assert isinstance(is_greedy, bool)


def test_names_of_tasks_may_have_spaces_around_them():
    assert task_names("hellaswag, arc_easy,") == ["hellaswag", "arc_easy"]
    assert list(harness_lines({})) == []


def test_reported_02_classes_may_have_names():
    """A task that generates its answers gives Matthews' correlation the texts."""
    baseline = [("yes", "yes"), ("no", "no")] * 10
    under_mask = [("yes", "no")] * 8 + baseline[8:]
    names = tuple(map(str, range(20)))
    interval = paired_interval("matthews_corrcoef", baseline, under_mask, names, 0)
    assert not isinstance(interval, str)
    assert interval.low < interval.difference < interval.high < 0
    reason = paired_interval("matthews_corrcoef", baseline, baseline, names, 0)
    assert "changes 0 of 20" in str(reason)


@pytest.mark.parametrize(
    "value",
    [[1.0, 2.0], "text", None, {"a": 1}],
    ids=["row", "text", "nothing", "mapping"],
)
def test_reported_02_a_task_may_keep_anything_of_a_document(value: Any):
    """Where the harness makes no number of it, the row has none, and nothing fails."""
    runs = []
    for _ in range(2):
        samples = [
            {"doc_id": n, "filter": "none", "metrics": ["odd"], "odd": value}
            for n in range(DOCUMENTS)
        ]
        results = {
            "results": {"made": {"odd,none": np.array([1.0, 2.0])}},
            "samples": {"made": samples},
            "higher_is_better": {},
        }
        runs.append(HarnessRun(results, {"made": {"odd": "mean"}}))
    row = figures(runs, seed=0)["made"]["odd"]
    assert row["odd"] is None
    assert row["n"] == DOCUMENTS
    assert row["no_interval"] == "the harness gives no number"


def test_reported_02_documents_without_a_number_are_not_counted():
    runs = []
    for shift in (0.0, -3.0):
        values = []
        for n in range(40):
            value = -float(n) + shift
            values.append(value if n % 2 else float("nan"))
        samples = [
            {"doc_id": n, "filter": "none", "metrics": ["nats"], "nats": value}
            for n, value in enumerate(values)
        ]
        results = {
            "results": {"made": {"nats,none": float(np.nanmean(values))}},
            "samples": {"made": samples},
            "higher_is_better": {},
        }
        runs.append(HarnessRun(results, {"made": {"nats": "nanmean"}}))
    row = figures(runs, seed=0)["made"]["nats"]
    assert row["n"] == 20
    assert row["difference"] == pytest.approx(-3)
    assert row["low"] <= -3 <= row["high"]
    # with only ten documents left that differ, half of which have no number
    baseline_samples = runs[0].results["samples"]["made"]
    samples = runs[1].results["samples"]["made"]
    for sample in samples[10:]:
        baseline_sample = baseline_samples[sample["doc_id"]]
        sample["nats"] = baseline_sample["nats"]
    nats = [sample["nats"] for sample in samples]
    runs[1].results["results"]["made"]["nats,none"] = float(np.nanmean(nats))
    row = figures(runs, seed=0)["made"]["nats"]
    assert "changes 5 of" in row["no_interval"]
