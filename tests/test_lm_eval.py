"""Tasks of lm-evaluation-harness on a gated model, where it is installed; what is said where it is not."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from errors import raises
from reference import continued
from test_encoding import CHOICES, language_model
from tiny import tiny_model
from tiny_task import tiny_tokenizer
from typer.testing import CliRunner

from headlab.cli.main import build
from headlab.encoding import encoded
from headlab.evaluator import Evaluator
from headlab.generation import normalised
from headlab.hooks.model import gated
from headlab.masks import Mask
from headlab.records import HeadGrid, Stack

MADE = HeadGrid((Stack("decoder", (2, 2)),))
HERE = importlib.util.find_spec("lm_eval") is not None
with_harness = pytest.mark.skipif(not HERE, reason="lm-eval is not installed; pip install 'headlab[lm-eval]'")


@pytest.mark.skipif(HERE, reason="lm-eval is installed")
def test_without_the_harness_the_command_says_what_to_install():
    found = CliRunner().invoke(build(), ["evaluate", "--lm-eval", "hellaswag"])
    assert found.exit_code != 0
    with raises("package.lm_eval_missing", "pip install 'headlab[lm-eval]'"):
        raise found.exception  # type: ignore[misc]


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--ablation", "mean"], "lm_eval.ablation"), (["--bleu"], "lm_eval.option_unused"),
        (["--changes", "changed.csv"], "lm_eval.option_unused"), (["--label-map", "a=b"], "lm_eval.option_unused"),
        (["--split", "test"], "lm_eval.option_unused"), (["--languages", "de"], "lm_eval.option_unused"),
        (["--task", "ioi"], "lm_eval.option_unused"),
    ],
)  # fmt: skip
def test_what_the_harness_cannot_do_is_refused(flags: list[str], code: str):
    found = CliRunner().invoke(build(), ["evaluate", "--lm-eval", "hellaswag", *flags])
    with raises(code):
        raise found.exception  # type: ignore[misc]


def test_a_folder_of_the_harness_alone_is_refused():
    found = CliRunner().invoke(build(), ["evaluate", "--lm-eval-folder", "."])
    with raises("option.needs_lm_eval"):
        raise found.exception  # type: ignore[misc]


def test_a_mask_chosen_under_mean_ablation_is_not_measured_under_another(tmp_path: Path):
    mask = Mask(MADE, np.array([True, False, True, True]), chosen={"ablation": "mean"})
    mask.save(tmp_path / "mask.json")
    found = CliRunner().invoke(build(), ["evaluate", "--lm-eval", "x", "--mask", str(tmp_path / "mask.json")])
    with raises("lm_eval.ablation", "--ablation zero"):
        raise found.exception  # type: ignore[misc]


def requests(*pairs: tuple):
    return [SimpleNamespace(args=pair) for pair in pairs]


def masked(model) -> Mask:
    kept = np.ones(model.grid.size, bool)
    kept[[0, 1, 5, 6, 7]] = False
    return Mask(model.grid, kept)


def save_task(folder: Path, name: str, rows: list[dict], more: str) -> None:
    """A task of the harness with these test documents."""
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (folder / "task.yaml").write_text(
        f"task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {folder}/rows.jsonl}}}}\n"
        f"test_split: test\n{more}",
        "utf-8",
    )


@with_harness
def test_it_scores_and_writes_under_the_mask():
    from headlab.lm_eval import GatedLM

    model = language_model("llama-lm")
    mask = masked(model)
    lm = GatedLM(model, mask)
    (found,) = lm.loglikelihood(requests(("w5 w6", " w7 w8")), disable_tqdm=True)
    context, whole = (lm.tok_encode(text) for text in ("w5 w6", "w5 w6 w7 w8"))
    with gated(model, model.grid.gates(mask.kept)):
        want = continued(model.module, context, whole[len(context) :])
        (rolled,) = lm.loglikelihood_rolling(requests(("w5 w6 w7",)))
        rolling = continued(model.module, [lm.prefix_token_id], lm.tok_encode("w5 w6 w7"))
    assert found[0] == pytest.approx(sum(want), abs=1e-5)
    assert rolled == pytest.approx(sum(rolling), abs=1e-6)
    (text,) = lm.generate_until(requests(("w5 w6", {"max_gen_toks": 4, "until": []})))
    assert 0 < len(text.split()) <= 4
    (short,) = lm.generate_until(requests(("w5 w6", {"max_gen_toks": 4, "until": text.split()[1:2]})))
    assert short.split() == text.split()[:1]
    with raises("model.not_language_model", "tiny-bert"):
        GatedLM(tiny_model("bert", tokenizer=tiny_tokenizer()))


@with_harness
def test_a_task_of_the_harness_agrees_with_ours(tmp_path: Path):
    from headlab.lm_eval import compared

    model = language_model("llama-lm")
    assert len(encoded(model, ["w5 w6"])[0]) == 3  # with a start token
    evaluator = Evaluator(model, CHOICES, "xx")
    rows = [{"q": e.text, "c": [choice.strip() for choice in e.choices], "a": e.label} for e in evaluator.examples]
    save_task(
        tmp_path, "headlab_mini", rows,
        "output_type: multiple_choice\ndoc_to_text: '{{q}}'\ndoc_to_choice: '{{c}}'\n"
        "doc_to_target: a\nmetric_list: [{metric: acc}, {metric: acc_norm}]\n",
    )  # fmt: skip
    mask = masked(model)
    told = compared(model, ["headlab_mini"], mask, folder=str(tmp_path))["headlab_mini"]
    for kept, name in ((None, "baseline"), (mask, "acc")):
        assert told["acc"][name] == pytest.approx(evaluator.evaluate(kept).accuracy)
    assert told["acc_norm"]["baseline"] == pytest.approx(normalised(evaluator).mean())
    assert told["acc"]["difference"] == pytest.approx(told["acc"]["acc"] - told["acc"]["baseline"])
    with raises("lm_eval.failed", "nowhere"):
        compared(model, ["nowhere"])


@with_harness
@pytest.mark.parametrize("documents", [3, 9])
def test_rates_of_whole_texts_are_the_harness_s_own(documents: int, tmp_path: Path):
    import lm_eval
    from lm_eval.tasks import TaskManager

    from headlab.lm_eval import GatedLM, compared

    model = language_model("llama-lm")
    rows = [{"text": f"w5 w{n} w{n + 1} w6"} for n in range(7, 7 + documents)]
    save_task(
        tmp_path, "headlab_rolling", rows,
        "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{text}}'\n"
        "metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]\n",
    )  # fmt: skip
    told = compared(model, ["headlab_rolling"], masked(model), folder=str(tmp_path))["headlab_rolling"]
    manager = TaskManager(include_path=str(tmp_path))
    own = {
        name: lm_eval.simple_evaluate(
            model=GatedLM(model, kept), tasks=["headlab_rolling"], task_manager=manager, bootstrap_iters=0
        )["results"]["headlab_rolling"]
        for name, kept in (("baseline", None), ("masked", masked(model)))
    }
    for metric in ("word_perplexity", "byte_perplexity", "bits_per_byte"):
        row = told[metric]
        assert row["n"] == documents
        assert row[metric] == pytest.approx(own["masked"][f"{metric},none"])
        assert row["baseline"] == pytest.approx(own["baseline"][f"{metric},none"])
        assert row["difference"] == pytest.approx(row[metric] - row["baseline"])
        assert ("low" in row) == (documents == 9)
        assert row.get("low", -np.inf) <= row["difference"] <= row.get("high", np.inf)


@with_harness
def test_a_tokenizer_without_an_end_token_is_told():
    from headlab.lm_eval import GatedLM

    model = language_model("llama-lm")
    model.tokenizer.eos_token = None
    with raises("tokenizer.no_end", "eos_token"):
        _ = GatedLM(model).eot_token_id
