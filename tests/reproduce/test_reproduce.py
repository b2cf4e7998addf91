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
from support.saved_models import save
from support.tiny_models import SMALL, VOCAB
from support.tiny_task import tiny_tokenizer

from headlab.cli.main import FAILED, OK, main
from headlab.core import Report
from headlab.reproduce import held
from headlab.reproduce.models import fast_dtype
from headlab.studies.table import offered_experiments
from headlab.tasks import udpos, xnli

PROMPTS = 8
SENTENCES = 14
COMMAND = "headlab reproduce held --data DIR --smoke --nli-model FOLDER --udpos-model FOLDER --dtype float32"
TINY = replace(
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


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """XNLI and UD in three languages each, of made-up words."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)

    def words() -> list[str]:
        return [f"w{w}" for w in rng.integers(4, VOCAB, rng.integers(2, 7))]

    for folder in ("xnli", "ud"):
        (root / folder).mkdir()
    for split in ("dev", "test"):
        for language in held.SMOKE_LANGUAGES["xnli"]:
            rows = [
                f"{' '.join(words())}\t{' '.join(words())}\t{label}"
                for _ in range(PROMPTS)
                for label in range(3)
            ]
            (root / "xnli" / f"{language}.{split}.tsv").write_text(
                "\n".join(["premise\thypothesis\tlabel", *rows, ""])
            )
        prompts = "".join(f"{prompt}\n" for prompt in range(PROMPTS) for _ in range(3))
        (root / "xnli" / f"meta.{split}.tsv").write_text(f"promptID\n{prompts}")
        for language in held.SMOKE_LANGUAGES["udpos"]:
            trees = []
            for _ in range(SENTENCES):
                tags = rng.choice(udpos.LABELS, 9)
                lines = [
                    f"{i}\t{w}\t_\t{tag}" + "\t_" * 6
                    for i, (w, tag) in enumerate(zip(words(), tags, strict=False), 1)
                ]
                trees.append("\n".join([*lines, "", ""]))
            (root / "ud" / f"{language}.{split}.conllu").write_text("".join(trees))
    return root


def tiny(folder: Path, kind: str, labels: tuple[str, ...]) -> Path:
    names = {
        "id2label": dict(enumerate(labels)),
        "label2id": {name: i for i, name in enumerate(labels)},
    }
    module = getattr(hf, f"BertFor{kind}Classification")(
        hf.BertConfig(**SMALL | names | {"num_labels": len(labels)})
    )
    return save(folder, module, tiny_tokenizer())


HELDS = set(offered_experiments()) - {"methods"}  # that one is of another paper


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory, data: Path) -> list[str]:
    root = tmp_path_factory.mktemp("models")
    nli = tiny(root / "nli", "Sequence", xnli.LABELS)
    tagger = tiny(root / "tagger", "Token", udpos.LABELS)
    found = ["--nli-model", str(nli), "--udpos-model", str(tagger), "--dtype", "float32"]
    return ["reproduce", "held", "--smoke", "--data", str(data), *found]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "SMOKE", TINY)


def printed(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[dict[str, Any], str]:
    assert main(arguments) == OK
    said = capsys.readouterr()
    return json.loads(said.out), said.err


@pytest.mark.usefixtures("small")
def test_every_experiment_is_done_for_both_tasks_and_found_again(
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headlab.cli.figures.write_figures", lambda *_: [])
    more = ["--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out"), "--json"]
    first, said = printed(capsys, arguments + more)
    assert set(first["reports"]) == {"xnli", "udpos"}
    for task, reports in first["reports"].items():
        assert {name.split("-")[0] for name in reports} == HELDS
        for name, value in reports.items():
            report = Report.from_json(value)
            assert report.tables
            assert f"{task}-{name}: " in said  # its cost, before it began
            kept = json.loads((tmp_path / "out" / f"{task}-{name}.json").read_text())
            assert Report.from_json(kept) == report
            assert kept["command"] == first["command"] == COMMAND
            for table in report.tables:
                text = (tmp_path / "out" / f"{task}-{name}-{table.name}.csv").read_text()
                assert len(text.splitlines()) > len(table.rows)
    again, said = printed(capsys, arguments + more)
    assert again == first
    assert said.count("the report is in the cache already") == sum(
        map(len, first["reports"].values())
    )


@pytest.mark.usefixtures("small")
def test_without_json_the_tables_are_markdown(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--cache", str(tmp_path)]) == OK
    out = capsys.readouterr().out
    for task in held.TASKS:
        assert out.count(f"### {task}: ") > len(offered_experiments())
    assert "| language |" in out


def test_a_folder_without_the_model_is_told(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["reproduce", "held", "--smoke", "--data", str(data), "--cache", str(tmp_path)])
        == FAILED
    )
    assert (
        "holds no model fine-tuned on NLI; name its folder with --nli-model"
        in capsys.readouterr().err
    )


@pytest.mark.usefixtures("small")
def test_what_is_lacking_is_told_before_anything_is_computed(
    arguments: list[str], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hours of XNLI are not spent to find that there are no treebanks."""
    shutil.copytree(data / "xnli", tmp_path / "xnli")
    (tmp_path / "ud").mkdir()
    shutil.copy(data / "ud" / "en.dev.conllu", tmp_path / "ud")
    cache = ["--cache", str(tmp_path / "cache")]
    assert main([*arguments, "--data", str(tmp_path), *cache]) == FAILED
    said = capsys.readouterr().err
    assert "en.test.conllu" in said
    assert "xnli-agreement" not in said
    assert main([*arguments, "--udpos-model", str(tmp_path), *cache]) == FAILED
    assert "holds no model; name the folder of one with --udpos-model" in capsys.readouterr().err
    # one is to be trained, and on what?
    assert main([*arguments[:-4], "--dtype", "float32", *cache]) == FAILED
    assert "udpos has no train examples in en" in capsys.readouterr().err


def test_bfloat16_is_taken_where_the_processor_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for able, wanted in (
        ({"avx512_bf16": True}, "bfloat16"),
        ({"amx_bf16": True}, "bfloat16"),
        ({}, "float32"),
    ):
        monkeypatch.setattr("torch.cpu.get_capabilities", lambda able=able: able)
        assert fast_dtype("cpu") == wanted


def test_the_real_plan_is_the_papers_and_the_smoke_test_a_part_of_it() -> None:
    real, smoke = (list(held.steps(plan)) for plan in (held.REAL, held.SMOKE))
    assert {step.experiment for step in real} == HELDS
    assert [(s.task, s.experiment) for s in real] == [(s.task, s.experiment) for s in smoke]
    assert (held.REAL.dev, held.SMOKE.dev, set(held.SMOKE.test.values())) == (512, 64, {128})
    assert len({step.name for step in real}) == len(real)
