"""A paper is reproduced on tiny models and made-up data: every step runs, is kept, and is found again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers as hf
from support.saved_models import save_model
from support.tiny_models import SMALL_OPTIONS, VOCAB
from support.tiny_task import tiny_tokenizer

from headlab.cli.run import FAILED, OK, main
from headlab.core import Report
from headlab.reproduce import held
from headlab.reproduce.models import fast_dtype
from headlab.studies.table import offered_experiments
from headlab.tasks import udpos, xnli

PROMPTS = 8
SENTENCES = 14
COMMAND = (
    "headlab reproduce held --data DIR --smoke --nli-model FOLDER --udpos-model FOLDER "
    "--dtype float32"
)
TINY_PLAN = replace(
    held.SMOKE,
    dev=12,
    test=dict.fromkeys(held.TASKS, 15),
    curve=9,
    samples=dict.fromkeys(held.TASKS, 4),
    randoms=2,
    points=3,
    k=2,
    steps=2,
    orders=2,
)


def random_words(rng: np.random.Generator) -> list[str]:
    return [f"w{number}" for number in rng.integers(4, VOCAB, rng.integers(2, 7))]


def xnli_table(rng: np.random.Generator) -> str:
    lines = ["premise\thypothesis\tlabel"]
    for _ in range(PROMPTS):
        for label in range(3):
            premise = " ".join(random_words(rng))
            hypothesis = " ".join(random_words(rng))
            lines.append(f"{premise}\t{hypothesis}\t{label}")
    return "\n".join([*lines, ""])


def treebank_text(rng: np.random.Generator) -> str:
    lines = []
    for _ in range(SENTENCES):
        tags = rng.choice(udpos.LABELS, 9)
        words = random_words(rng)
        for number, (word, tag) in enumerate(zip(words, tags, strict=False), 1):
            lines.append(f"{number}\t{word}\t_\t{tag}" + "\t_" * 6)
        lines.append("")
    return "\n".join([*lines, ""])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """XNLI and UD in three languages each, of made-up words."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    xnli_folder = root / "xnli"
    treebank_folder = root / "ud"
    xnli_folder.mkdir()
    treebank_folder.mkdir()
    for split in ("dev", "test"):
        for language in held.SMOKE_LANGUAGES["xnli"]:
            (xnli_folder / f"{language}.{split}.tsv").write_text(xnli_table(rng))
        prompts = [str(prompt) for prompt in range(PROMPTS) for _ in range(3)]
        lines = ["promptID", *prompts, ""]
        (xnli_folder / f"meta.{split}.tsv").write_text("\n".join(lines))
        for language in held.SMOKE_LANGUAGES["udpos"]:
            (treebank_folder / f"{language}.{split}.conllu").write_text(treebank_text(rng))
    return root


def save_tiny_classifier(folder: Path, kind: str, labels: tuple[str, ...]) -> Path:
    """Save a tiny BERT.

    Args:
        kind: What it classifies, `Sequence` or `Token`.
        labels: In the order of its outputs.
    """
    names = {
        "num_labels": len(labels),
        "id2label": dict(enumerate(labels)),
        "label2id": {label: index for index, label in enumerate(labels)},
    }
    model_class = getattr(hf, f"BertFor{kind}Classification")
    module = model_class(hf.BertConfig(**SMALL_OPTIONS | names))
    return save_model(folder, module, tiny_tokenizer())


EXPERIMENTS = set(offered_experiments()) - {"methods"}  # methods is of another paper


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory, data: Path) -> list[str]:
    root = tmp_path_factory.mktemp("models")
    nli = save_tiny_classifier(root / "nli", "Sequence", xnli.LABELS)
    tagger = save_tiny_classifier(root / "tagger", "Token", udpos.LABELS)
    model_arguments = ["--nli-model", str(nli), "--udpos-model", str(tagger), "--dtype", "float32"]
    return ["reproduce", "held", "--smoke", "--data", str(data), *model_arguments]


@pytest.fixture
def tiny_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "SMOKE", TINY_PLAN)


def run_and_read(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> tuple[dict[str, Any], str]:
    """What a command prints as JSON, and what it says on stderr."""
    assert main(arguments) == OK
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


@pytest.mark.usefixtures("tiny_plan")
def test_every_experiment_is_done_for_both_tasks_and_found_again(
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headlab.cli.figures.write_figures", lambda *_: [])
    folder = tmp_path / "out"
    arguments = [*arguments, "--cache", str(tmp_path / "cache"), "--out", str(folder), "--json"]
    printed, messages = run_and_read(capsys, arguments)
    assert set(printed["reports"]) == {"xnli", "udpos"}
    for task, reports in printed["reports"].items():
        assert {name.split("-")[0] for name in reports} == EXPERIMENTS
        for name, value in reports.items():
            report = Report.from_json(value)
            assert report.tables
            assert f"{task}-{name}: " in messages  # its cost, before it began
            stored_report = json.loads((folder / f"{task}-{name}.json").read_text())
            assert Report.from_json(stored_report) == report
            assert stored_report["command"] == printed["command"] == COMMAND
            for table in report.tables:
                csv_lines = (folder / f"{task}-{name}-{table.name}.csv").read_text().splitlines()
                assert len(csv_lines) > len(table.rows)
    printed_again, messages = run_and_read(capsys, arguments)
    assert printed_again == printed
    number_of_reports = sum(len(reports) for reports in printed["reports"].values())
    assert messages.count("the report is in the cache already") == number_of_reports


@pytest.mark.usefixtures("tiny_plan")
def test_without_json_the_tables_are_markdown(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--cache", str(tmp_path)]) == OK
    markdown = capsys.readouterr().out
    for task in held.TASKS:
        assert markdown.count(f"### {task}: ") > len(offered_experiments())
    assert "| language |" in markdown


def test_a_folder_without_the_model_is_told(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["reproduce", "held", "--smoke", "--data", str(data), "--cache", str(tmp_path)]
    assert main(arguments) == FAILED
    messages = capsys.readouterr().err
    assert "holds no model fine-tuned on NLI; name its folder with --nli-model" in messages


@pytest.mark.usefixtures("tiny_plan")
def test_what_is_lacking_is_told_before_anything_is_computed(
    arguments: list[str], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hours of XNLI are not spent to find that there are no treebanks."""
    shutil.copytree(data / "xnli", tmp_path / "xnli")
    (tmp_path / "ud").mkdir()
    shutil.copy(data / "ud" / "en.dev.conllu", tmp_path / "ud")
    cache = ["--cache", str(tmp_path / "cache")]
    assert main([*arguments, "--data", str(tmp_path), *cache]) == FAILED
    messages = capsys.readouterr().err
    assert "en.test.conllu" in messages
    assert "xnli-agreement" not in messages
    assert main([*arguments, "--udpos-model", str(tmp_path), *cache]) == FAILED
    assert "holds no model; name the folder of one with --udpos-model" in capsys.readouterr().err
    # without --udpos-model one is trained, for which there are no examples
    assert main([*arguments[:-4], "--dtype", "float32", *cache]) == FAILED
    assert "udpos has no train examples in en" in capsys.readouterr().err


def test_bfloat16_is_taken_where_the_processor_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for capabilities, expected_dtype in (
        ({"avx512_bf16": True}, "bfloat16"),
        ({"amx_bf16": True}, "bfloat16"),
        ({}, "float32"),
    ):
        monkeypatch.setattr(
            "torch.cpu.get_capabilities", lambda capabilities=capabilities: capabilities
        )
        assert fast_dtype("cpu") == expected_dtype


def test_the_real_plan_is_the_papers_and_the_smoke_test_a_part_of_it() -> None:
    real_steps = list(held.steps(held.REAL))
    smoke_steps = list(held.steps(held.SMOKE))
    assert {step.experiment for step in real_steps} == EXPERIMENTS
    for real_step, smoke_step in zip(real_steps, smoke_steps, strict=True):
        assert real_step.task == smoke_step.task
        assert real_step.experiment == smoke_step.experiment
    assert held.REAL.dev == 512
    assert held.SMOKE.dev == 64
    assert set(held.SMOKE.test.values()) == {128}
    assert len({step.name for step in real_steps}) == len(real_steps)
