"""Requests and metrics of lm-evaluation-harness, without it: on results recorded by tests/support/harness_tasks.py."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reference import continued
from support.expected_errors import raises
from support.harness_tasks import ENDINGS, NAMES, RECORD, TASKS
from support.tiny_models import tiny_model
from test_encoding import CHOICES, language_model
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

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

END = 1  # the end token of the tokenizer below, which is put before what nothing stands before
DOCUMENTS = len(ENDINGS)


@pytest.fixture(scope="module")
def runs() -> list[HarnessRun]:
    """The recorded results without and with a mask."""
    record = json.loads(RECORD.read_text("utf-8"))
    return [run_of(run) for run in record]


def run_of(run: dict[str, Any]) -> HarnessRun:
    groups = {
        name: TaskGroup(tuple(group["tasks"]), group["by_size"])
        for name, group in run["groups"].items()
    }
    return HarnessRun(run["results"], run["aggregations"], groups)


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
    right = runs[0].results["results"]["mini_filters"]["exact_match,first-word"]
    assert right > 0 == rows["exact_match,never"]["baseline"]
    assert rows["exact_match,first-word"]["baseline"] == right
    assert {row["n"] for row in rows.values()} == {DOCUMENTS}
    assert {row["filter"] for row in rows.values()} == {"first-word", "never"}


def test_reported_01_repeated_answers_have_a_row_a_filter(table: dict[str, Any]):
    assert set(table["mini_repeats"]) == {"exact_match,votes", "exact_match,first"}
    assert {row["n"] for row in table["mini_repeats"].values()} == {DOCUMENTS}


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
    assert " none " not in "\n".join(harness_lines({"mini_choices": table["mini_choices"]}))


def test_reported_02_every_value_is_the_harness_s_own(
    table: dict[str, Any], runs: list[HarnessRun]
):
    rows = rows_of(table)
    recorded = {
        (task, key)
        for task, metrics in runs[0].results["results"].items()
        for key in metrics
        if "," in key and "_stderr" not in key
    }
    assert {(task, f"{metric},{row['filter']}") for task, metric, row in rows} == recorded
    for task, metric, row in rows:
        before, after = (run.results["results"][task][f"{metric},{row['filter']}"] for run in runs)
        assert row[metric] == after
        assert row["baseline"] == before
        assert row["difference"] == pytest.approx(after - before)


def test_reported_02_perplexity_is_no_mean_of_log_probabilities(
    table: dict[str, Any], runs: list[HarnessRun]
):
    row = table["mini_lambada"]["perplexity"]
    nats = [sample["perplexity"] for sample in runs[1].results["samples"]["mini_lambada"]]
    assert row["perplexity"] == pytest.approx(np.exp(-np.mean(nats)))
    assert row["low"] < row["difference"] < row["high"]
    assert row["higher_is_better"] is False
    (line,) = harness_lines({"mini_lambada": {"perplexity": row}})
    assert line.split()[:3] == ["mini_lambada", "perplexity", "↓"]


@pytest.mark.parametrize(
    ("task", "metric", "better"),
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
    task: str, metric: str, better: bool, table: dict[str, Any]
):
    assert table[task][metric]["higher_is_better"] is better


def test_reported_02_a_difference_has_an_interval_or_says_why_not(table: dict[str, Any]):
    for _, _, row in rows_of(table):
        assert ("low" in row) != ("no_interval" in row)
        assert row.get("low", -np.inf) <= row.get("high", np.inf)
    for metric in ("chrf", "ter"):
        assert metric in table["mini_corpus"][metric]["no_interval"]
    assert "largest" in table["mini_own"]["spread"]["no_interval"]
    assert table["mini_own"]["even_nats"]["no_interval"] == "6 documents are too few"
    assert "low" in table["mini_corpus"]["bleu"]
    text = "\n".join(harness_lines(table))
    assert "(no interval: the harness computes it of all documents at once (chrf))" in text


def test_reported_02_a_metric_that_some_documents_lack_counts_the_others(table: dict[str, Any]):
    assert table["mini_own"]["even_nats"]["n"] == DOCUMENTS / 2
    assert table["mini_own"]["spread"]["n"] == DOCUMENTS


def test_reported_02_groups_are_averaged_as_they_say(table: dict[str, Any]):
    row = table["mini_equal"]["acc"]
    tasks = [table[task]["acc"]["acc"] for task in ("mini_choices", "mini_classes")]
    assert row["acc"] == pytest.approx(np.mean(tasks))
    assert row["low"] <= row["difference"] <= row["high"]
    assert (row["n"], row["tasks"]) == (2 * DOCUMENTS, 2)
    assert "no share" in table["mini_by_size"]["perplexity"]["no_interval"]
    alone = table["mini_lambada"]["acc"]
    grouped = table["mini_by_size"]["acc"]
    assert (alone["acc"], alone["n"]) == (grouped["acc"], grouped["n"])
    assert {"low", "high", "p"} < set(grouped)


def test_reported_02_large_numbers_are_printed_with_an_exponent():
    row = {"perplexity": 9.4e16, "filter": "none", "higher_is_better": False, "n": 5, "cut": 1}
    assert list(harness_lines({"lambada": {"perplexity": row}})) == [
        "lambada  perplexity ↓  9.4e+16  n=5  cut=1"
    ]


def test_reported_02_without_a_mask_there_is_no_difference(runs: list[HarnessRun]):
    for _, metric, row in rows_of(figures(runs[:1], seed=0, cut_by_task={"mini_own": 2})):
        assert set(row) - {"tasks"} == {
            metric,
            "filter",
            "higher_is_better",
            "n",
            "aggregation",
            "cut",
        }
    assert figures(runs[:1], seed=0, cut_by_task={"mini_own": 2})["mini_own"]["spread"]["cut"] == 2


def test_reported_02_a_value_that_is_no_number_is_said(runs: list[HarnessRun]):
    broken = json.loads(RECORD.read_text("utf-8"))
    for run, value in zip(broken, (float("nan"), {"a": 1}), strict=True):
        run["results"]["results"]["mini_lambada"]["perplexity,none"] = value
    table = figures([run_of(run) for run in broken], seed=0)
    row = table["mini_lambada"]["perplexity"]
    assert (row["perplexity"], row["baseline"], row["difference"]) == (None, None, None)
    assert row["no_interval"] == "the harness gives no number"
    assert json.loads(json.dumps(table, allow_nan=False)) == table
    assert "no number" in "\n".join(harness_lines(table))


@pytest.mark.parametrize("name", sorted(SUM_STATISTICS))
def test_reported_02_sums_give_what_the_harness_computes(name: str, runs: list[HarnessRun]):
    compared = 0
    for run in runs:
        for task, aggregations in run.aggregations.items():
            for (metric, filter_name), values in run.values(task).items():
                if aggregations.get(metric) == name:
                    statistic = SUM_STATISTICS[name]
                    total = statistic.of_sums(statistic.terms(list(values.values())).sum(axis=0))
                    assert float(total) == pytest.approx(
                        run.value(task, metric, filter_name), abs=1e-12
                    )
                    compared += 1
    assert compared or name == "nanmean"


def test_reported_02_documents_without_a_number_leave_a_mean_of_the_others():
    statistic = SUM_STATISTICS["nanmean"]
    assert float(statistic.of_sums(statistic.terms([1.0, np.nan, 4.0]).sum(axis=0))) == 2.5


def test_reported_02_correlation_of_several_classes_is_that_of_their_pairs():
    """Of two classes Matthews' correlation is Pearson's; one class more that is never mixed up raises it."""
    rng = np.random.default_rng(0)
    right, answers = rng.integers(0, 2, (2, 40))
    statistic = SUM_STATISTICS["matthews_corrcoef"]

    def correlation(pairs: list[tuple[int, int]]) -> float:
        return float(statistic.of_sums(statistic.terms(pairs).sum(axis=0)))

    pairs = list(zip(right.tolist(), answers.tolist(), strict=True))
    assert correlation(pairs) == pytest.approx(np.corrcoef(right, answers)[0, 1])
    assert correlation([*pairs, *[(2, 2)] * 40]) > correlation(pairs)
    assert correlation([(0, 0)] * 5) == 0


def test_reported_02_few_changed_answers_give_no_interval():
    before = [(1, 1)] * 20
    after = [(1, 0)] * 3 + before[3:]
    names = tuple(map(str, range(20)))
    reason = paired_interval("f1", before, after, names, 0)
    assert reason == "the mask changes 3 of 20 documents, which are too few"
    interval = paired_interval("f1", before, [(1, 0)] * 10 + before[10:], names, 0)
    assert not isinstance(interval, str)
    assert interval.low < interval.difference < interval.high < 0
    assert isinstance(
        paired_interval("bleu", [(["a", "b"], "a")] * 9, [("a", "a")] * 9, names[:9], 0), str
    )


def test_reported_02_means_of_log_probabilities_get_no_made_up_documents():
    rng = np.random.default_rng(1)
    before = rng.normal(-40, 5, 30).tolist()
    after = (np.array(before) - 20 + rng.normal(0, 1, 30)).tolist()
    interval = paired_interval("mean", before, after, tuple(map(str, range(30))), 0)
    assert not isinstance(interval, str)
    assert interval.low < -20 < interval.high
    assert interval.high - interval.low < 2


@pytest.mark.parametrize(
    ("settings", "sampling", "unused"),
    [
        (
            {"do_sample": True, "temperature": 0.7, "top_p": 0.9},
            {"do_sample", "temperature", "top_p"},
            set(),
        ),
        ({"temperature": 0.2, "top_k": 5}, {"temperature", "top_k"}, set()),
        ({"do_sample": False, "temperature": 0.7}, set(), set()),
        ({"temperature": 0.0}, set(), set()),
        ({"num_return_sequences": 5, "until": None}, set(), {"num_return_sequences"}),
        ({"num_return_sequences": 1, "num_beams": 2}, set(), set()),
        ({"max_length": 9, "odd": 1}, set(), {"max_length", "odd"}),
    ],
)
def test_reported_02_settings_without_effect_are_said(
    settings: dict[str, Any], sampling: set[str], unused: set[str]
):
    found = AnswerSettings.of(settings)
    assert set(found.sampling) == sampling
    assert set(found.unused) == unused
    notes = TaskNotes(
        sampling={"gsm8k": found.sampling}, unused={"gsm8k": found.unused}, repeats={"gsm8k": 4}
    )
    sentences = " ".join(notes.sentences())
    for name, value in {**found.sampling, **found.unused}.items():
        assert f"{name}={value}" in sentences
    assert "4 answers" in sentences


@pytest.mark.parametrize(
    "name", ["max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"]
)
def test_reported_02_all_names_of_the_length_count(name: str):
    found = AnswerSettings.of({name: 7, "until": ["", "a"]})
    assert (found.max_tokens, found.ends) == (7, ("a",))
    assert AnswerSettings.of({"until": "stop"}).ends == ("stop",)
    assert AnswerSettings.of({}).max_tokens == 256


def merging_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, and one for `()`, without a start token."""
    letters = "printxy( )a"
    vocabulary = {"[PAD]": 0, "</s>": END}
    for letter in [*dict.fromkeys(letters), "()"]:
        vocabulary[letter] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, [("(", ")")]))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", eos_token="</s>")


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("llama-lm", tokenizer=merging_tokenizer())


def choices_of(document: int, context: str, *texts: str) -> list[Continuation]:
    return [Continuation("code", document, context, text) for text in texts]


def scores(model: Model, *choices: Continuation, notes: TaskNotes | None = None) -> list[float]:
    notes = notes or TaskNotes()
    tokens = continuation_tokens(model, choices, END, notes)
    gates = as_gate_tensor(model, full_mask(model.grid))
    return [value for value, _ in log_likelihoods(model, gates, tokens, notes)]


def ids(model: Model, text: str) -> list[int]:
    return list(model.tokenizer(text)["input_ids"])


def log_probability(model: Model, before: list[int], tokens: list[int]) -> float:
    return sum(continued(model.module, before, tokens))


def test_reported_03_choices_of_a_document_share_what_the_tokenizer_leaves_of_the_context(
    model: Model,
):
    notes = TaskNotes()
    found = scores(
        model,
        *choices_of(1, "print(", ")", "x)", "y"),
        *choices_of(2, "print(", "x", "y"),
        notes=notes,
    )
    before = ids(model, "print")
    expected = [log_probability(model, before, ids(model, text)) for text in ("()", "(x)", "(y")]
    whole = ids(model, "print(")
    expected += [log_probability(model, whole, ids(model, text)) for text in ("x", "y")]
    assert found == pytest.approx(expected, abs=1e-5)
    assert notes.merged == {"code": {1}}
    assert "code: in 1 document the tokenizer merges" in notes.sentences()[0]


def test_reported_03_a_merged_choice_alone_has_its_probability(model: Model):
    (found,) = scores(model, *choices_of(1, "print(", ")"))
    assert found == pytest.approx(
        log_probability(model, ids(model, "print"), ids(model, "()")), abs=1e-5
    )
    assert found < 0


def test_reported_03_a_choice_that_loses_a_part_to_the_context_is_scored_whole(model: Model):
    (found,) = scores(model, *choices_of(1, "print(", ")xy"))
    assert found == pytest.approx(
        log_probability(model, ids(model, "print"), ids(model, "()xy")), abs=1e-5
    )


def test_reported_03_headlab_s_own_choices_agree(model: Model):
    examples = [
        Example("1", "print(", 0, choices=(")", "x)", "y")),
        Example("2", "a print(", 1, choices=("xx", ")a")),
    ]
    evaluator = Evaluator(model, replace(CHOICES, read=lambda *_: examples), "xx")
    own = evaluator.logits(evaluator.tensors(np.arange(2))).detach().numpy()
    for number, example in enumerate(examples):
        found = scores(model, *choices_of(number, example.text, *example.choices))
        assert found == pytest.approx(own[number, : len(found)].tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("context", "text"),
    [("print(", ""), ("print ", ""), ("", ""), ("print(", "\N{ZERO WIDTH SPACE}"), ("", "</s>")],
)
def test_reported_03_an_empty_choice_names_its_document(context: str, text: str, model: Model):
    with raises("data.choice_empty", "code, document 7", repr(text)):
        scores(model, *choices_of(7, context, "x", text))


@pytest.mark.parametrize("text", ["\N{ZERO WIDTH SPACE}", ""])
def test_reported_03_own_tasks_refuse_a_choice_without_a_token_too(text: str, model: Model):
    example = Example("line 4", "print(", 0, choices=("x", text))
    with raises("data.choice_empty", "line 4"):
        Evaluator(model, replace(CHOICES, read=lambda *_: [example]), "xx")
    target = Example("line 5", "print(", target=text)
    with raises("data.text_too_short", "line 5"):
        Evaluator(model, replace(CHOICES, likelihood="tokens", read=lambda *_: [target]), "xx")


def test_reported_03_what_nothing_stands_before_follows_the_prefix_token(model: Model):
    found = scores(
        model,
        *choices_of(1, "", "xy", "</s>a"),
        *choices_of(2, " ", "x"),
        *choices_of(3, "(", ")", "x"),
        *choices_of(4, "\N{ZERO WIDTH SPACE}", "x"),
    )
    texts = ["xy", "a", " x", "()", "(x", "x"]
    expected = [log_probability(model, [END], ids(model, text)) for text in texts]
    assert found == pytest.approx(expected, abs=1e-5)


def test_reported_03_a_choice_of_white_space_is_scored_and_said(model: Model):
    notes = TaskNotes()
    (found, _) = scores(model, *choices_of(1, "print", " ", "x"), notes=notes)
    assert found == pytest.approx(
        log_probability(model, ids(model, "print"), ids(model, " ")), abs=1e-5
    )
    assert "acc_norm" in notes.sentences()[0]


def test_reported_03_heads_off_are_off(model: Model):
    kept = np.ones(model.grid.size, bool)
    kept[[0, 5]] = False
    notes = TaskNotes()
    tokens = continuation_tokens(model, choices_of(1, "print(", ")", "x"), END, notes)
    found = log_likelihoods(model, as_gate_tensor(model, Mask(model.grid, kept)), tokens, notes)
    with gated(model, model.grid.gates(kept)):
        expected = [
            log_probability(model, ids(model, "print"), ids(model, text)) for text in ("()", "(x")
        ]
    assert [value for value, _ in found] == pytest.approx(expected, abs=1e-5)


def test_reported_04_contexts_that_are_cut_are_counted_and_continuations_are_not_cut(model: Model):
    notes = TaskNotes()
    limit = model.module.config.max_position_embeddings
    (found,) = scores(model, *choices_of(3, "x" * limit, "ya"), notes=notes)
    kept = ids(model, "x" * (limit - 1))
    assert found == pytest.approx(log_probability(model, kept, ids(model, "ya")), abs=1e-5)
    assert notes.cut == {"code": {3}}
    with raises("data.text_too_long", "code, document 4"):
        scores(model, *choices_of(4, "x", "y" * (limit + 1)))
    with raises("lm_eval.answer_too_long", "code"):
        check_answer_length(model, "code", AnswerSettings(max_tokens=limit))


def test_reported_02_answers_end_where_the_task_says():
    model = language_model("llama-lm")
    gates = as_gate_tensor(model, full_mask(model.grid))

    def written(**settings: Any) -> str:
        answer_settings = AnswerSettings.of({"max_gen_toks": 6, **settings})
        return written_answer(
            model, gates, ids(model, "w5 w6")[:-1], answer_settings, model.tokenizer.eos_token_id
        )

    text = written()
    assert text == written(until=["", "no such text"]) == written(do_sample=True, temperature=2.0)
    words = text.split()
    assert len(words) > 2
    assert written(until=words[1]).split() == words[:1]
    assert written(max_gen_toks=None, max_new_tokens=2).split() == words[:2]
    assert written(repetition_penalty=50.0).split() != words


def test_the_record_is_of_the_tasks_here(runs: list[HarnessRun]):
    assert set(runs[0].results["samples"]) == set(TASKS)
    assert set(runs[0].groups) == {name for name in NAMES if name not in TASKS}


def test_tokens_alone_can_be_scored(model: Model):
    gates = as_gate_tensor(model, full_mask(model.grid))
    ((found, greedy),) = log_likelihoods(
        model, gates, [ContinuationTokens([END], ids(model, "x"))], TaskNotes()
    )
    assert found == pytest.approx(log_probability(model, [END], ids(model, "x")), abs=1e-5)
    assert isinstance(greedy, bool)


def test_names_of_tasks_may_have_spaces_around_them():
    assert task_names("hellaswag, arc_easy,") == ["hellaswag", "arc_easy"]
    assert list(harness_lines({})) == []


def test_reported_02_classes_may_have_names():
    """A task that generates its answers gives Matthews' correlation the texts."""
    before = [("yes", "yes"), ("no", "no")] * 10
    after = [("yes", "no")] * 8 + before[8:]
    interval = paired_interval("matthews_corrcoef", before, after, tuple(map(str, range(20))), 0)
    assert not isinstance(interval, str)
    assert interval.low < interval.difference < interval.high < 0
    assert "changes 0 of 20" in str(
        paired_interval("matthews_corrcoef", before, before, tuple(map(str, range(20))), 0)
    )


@pytest.mark.parametrize(
    "value", [[1.0, 2.0], "text", None, {"a": 1}], ids=["row", "text", "nothing", "mapping"]
)
def test_reported_02_a_task_may_keep_anything_of_a_document(value: Any):
    """Where the harness makes no number of it, there is none, and no error."""
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
    assert (row["odd"], row["n"], row["no_interval"]) == (
        None,
        DOCUMENTS,
        "the harness gives no number",
    )


def test_reported_02_documents_without_a_number_are_not_counted():
    runs = []
    for shift in (0.0, -3.0):
        values = [-float(n) + shift if n % 2 else float("nan") for n in range(40)]
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
    assert (row["n"], row["difference"]) == (20, pytest.approx(-3))
    assert row["low"] <= -3 <= row["high"]
    few = runs[1].results["samples"]["made"]
    for sample in few[10:]:
        sample["nats"] = runs[0].results["samples"]["made"][sample["doc_id"]]["nats"]
    runs[1].results["results"]["made"]["nats,none"] = float(
        np.nanmean([sample["nats"] for sample in few])
    )
    assert "changes 5 of" in figures(runs, seed=0)["made"]["nats"]["no_interval"]
