"""The reproduction of gates on a classifier and a translation model, on tiny models and made-up data."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from support.toy_language import toy_examples, toy_folder, toy_task

pytest.importorskip("sentencepiece")
pytest.importorskip("sacrebleu")

from headlab.cli.reproduce import TimeLeft
from headlab.cli.run import FAILED, OK, main
from headlab.core import HeadGrid, Progress, Report, Table
from headlab.reproduce import gates, gates_classifiers, gates_translation
from headlab.reproduce.gates import BEFORE_GATES, WITHOUT_GATES, first_half_gone, half_gone_steps
from headlab.reproduce.gates_classifiers import (
    ALL_STACKS,
    ENCODER,
    GATES,
    RANDOM,
    REAL,
    SHAPLEY,
    SMOKE,
    XNLI,
    Classifier,
    GatesPlan,
)
from headlab.reproduce.gates_translation import TranslationWork
from headlab.results import LearnedGates, Store
from headlab.training import GateOptions, TranslationOptions
from headlab.training.l0_learn import JOINT_NOTE
from headlab.training.translation import train_translation

WEIGHTS = (0.0, 30.0)
LEARN = GateOptions(steps=12, batch=8, gate_rate=1.0, dev_size=16)


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> GatesPlan:
    """The smoke plan, smaller still, on models and texts that were made up."""
    monkeypatch.setattr(
        gates_classifiers, "model_of", lambda *_: tiny_model("bert", tokenizer=tiny_tokenizer())
    )
    monkeypatch.setattr(gates_classifiers, "task_for", lambda *_: tiny_task())
    monkeypatch.setattr(gates_classifiers, "SOURCE", "xx")
    translation_options = TranslationOptions(
        steps=4,
        batch=8,
        vocabulary=24,
        width=8,
        feed_forward=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_heads=2,
        decoder_heads=2,
        warmup=2,
    )
    small_plan = GatesPlan(
        (Classifier("intents", WEIGHTS, LEARN, 2, 2, 24),),
        replace(
            SMOKE.translator,
            pair="aa-bb",
            sentences=40,
            model=translation_options,
            gates=replace(LEARN, trained="all", steps=6),
            encoder=WEIGHTS,
            every=WEIGHTS[1:],
            scratch=WEIGHTS[1:],
            dev=8,
            test=12,
            roles=12,
        ),
    )
    monkeypatch.setattr("headlab.reproduce.gates_classifiers.SMOKE", small_plan)
    return small_plan


def run(tmp_path: Path, *arguments: str) -> int:
    """Run the reproduction with data and cache below this folder; the exit status."""
    data = tmp_path / "data"
    if not data.exists():
        toy_folder(data)
    folders = ["--data", str(data), "--cache", str(tmp_path / "cache")]
    return main(["reproduce", "voita-gates", *folders, "--smoke", *arguments])


def report_of_run(tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]) -> Report:
    """The report of one part of the reproduction."""
    assert run(tmp_path, "--json", "--part", part) == OK
    printed = json.loads(capsys.readouterr().out)
    return Report.from_json(printed["reports"][f"gates-{part}"])


def rows_by_column(table: Table) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_the_reproduction_is_computed_written_and_found_again(
    plan: GatesPlan,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "out"
    assert run(tmp_path, "--json", "--out", str(folder)) == OK
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["reports"]) == {"gates-intents", "gates-translation"}
    assert printed["command"] == "headlab reproduce voita-gates --data DIR --smoke"
    for name, value in printed["reports"].items():
        report = Report.from_json(value)
        stored_report = json.loads((folder / f"{name}.json").read_text())
        assert Report.from_json(stored_report) == report
        assert stored_report["command"] == printed["command"]
        for table in report.tables:
            assert (folder / f"{table.name}.csv").is_file()
    # nothing is learned or trained a second time
    monkeypatch.setattr("headlab.training.l0_learn.Learner", None)
    monkeypatch.setattr("headlab.reproduce.gates_translation.train_translation", None)
    monkeypatch.setattr("headlab.reproduce.gates_translation.train_on", None)
    assert run(tmp_path, "--json") == OK
    printed_again = json.loads(capsys.readouterr().out)
    tables = [report["tables"] for report in printed["reports"].values()]
    assert [report["tables"] for report in printed_again["reports"].values()] == tables


def test_every_choice_keeps_as_many_heads_as_the_gates(
    plan: GatesPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of_run(tmp_path, "intents", capsys)
    rows = rows_by_column(report.table("gates-intents-test"))
    assert [(row["λ"], row["chosen by"]) for row in rows] == [
        (weight, name) for weight in WEIGHTS for name in (GATES, SHAPLEY, "gradient", RANDOM)
    ]
    layer_rows = report.table("gates-intents-layers").rows
    for weight, (_, *heads_by_layer) in zip(WEIGHTS, layer_rows, strict=True):
        heads_left = {row["heads left"] for row in rows if row["λ"] == weight}
        assert heads_left == {sum(heads_by_layer)}
    assert rows[-1]["heads left"] == 0  # a penalty that nothing outweighs
    # all have removed the same
    rows_without_heads = [row for row in rows if row["λ"] == WEIGHTS[1]]
    assert len({row["accuracy, %"] for row in rows_without_heads}) == 1
    for row in rows_without_heads:
        if row["chosen by"] != GATES:
            assert row["against gates: difference, points"] == 0
    assert all(1 >= row["p, Holm"] >= row["p"] for row in rows)


def test_a_translation_model_is_pruned_by_stack(
    plan: GatesPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of_run(tmp_path, "translation", capsys)
    rows = rows_by_column(report.table("gates-bleu"))
    assert [(row["gates on"], row["λ"]) for row in rows] == [
        (WITHOUT_GATES, None),
        (BEFORE_GATES, None),
        *((ENCODER, weight) for weight in WEIGHTS),
        (ALL_STACKS, WEIGHTS[1]),
    ]
    heads_left = [[row["encoder heads"], row["decoder heads"], row["cross heads"]] for row in rows]
    assert heads_left[0] == heads_left[1] == [2, 2, 2]
    assert heads_left[3] == [0, 2, 2]  # the encoder's alone have gates
    assert heads_left[4] == [0, 0, 0]
    layer_rows = report.table("gates-layers").rows
    assert [row[1:] for row in layer_rows] == [
        (row["λ"], *heads) for row, heads in zip(rows[2:], heads_left[2:], strict=True)
    ]
    p_values = [row["p"] for row in rows[1:]]
    adjusted_p_values = [row["p, Holm"] for row in rows[1:]]
    assert adjusted_p_values == pytest.approx(reference.holm_by_steps(p_values))
    assert all(row["trained, s"] >= 0 for row in rows)
    assert JOINT_NOTE not in report.notes
    assert any("what another seed would change is not in them" in note for note in report.notes)
    assert report.seconds > sum(row["trained, s"] for row in rows)
    assert report.spec["data"]["train"]["sentences"] == 40
    assert report.spec["options"]["steps"] == 4
    assert report.spec["threads"] >= 1
    log_probability_rows = report.table("gates-log-probability").rows
    assert [row[:5] for row in log_probability_rows] == [tuple(row.values())[:5] for row in rows]
    for row in log_probability_rows:
        mean, low, high = row[5:8]
        assert low < mean < high < 0
    (scratch_row,) = report.table("gates-scratch").rows
    assert scratch_row[:2] == (WEIGHTS[1], 0)
    (first_removed,) = report.table("gates-first").rows
    assert first_removed[0] == WEIGHTS[1]
    assert all(step > 0 for step in first_removed[1:4])
    assert first_removed[4:7] == (0.0, 0.0, 0.0)
    assert set(first_removed[7].split(", ")) <= {"encoder", "decoder", "cross"}
    for _, weight, _, kept_heads, heads, chance, *_ in report.table("gates-roles").rows:
        assert 0 <= kept_heads <= heads
        if weight == WEIGHTS[1]:
            assert kept_heads == chance == 0


def test_seconds_of_pruned_models_are_of_their_steps_alone(
    plan: GatesPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of_run(tmp_path, "translation", capsys)
    stored_gates = {}
    for stored in Store(tmp_path / "cache").gates().results:
        stacks = stored.record.spec["options"]["stacks"]
        stored_gates[stacks, stored.record.weight] = stored
    for row in rows_by_column(report.table("gates-bleu"))[2:]:
        stored = stored_gates[row["gates on"], row["λ"]]
        seconds = row["trained, s"]
        assert seconds == pytest.approx(6 * stored.meta["step_seconds"])
        assert seconds < stored.record.seconds  # which are with the judging


def test_what_is_lost_or_foreign_in_the_cache_is_told_with_what_to_do(
    plan: GatesPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--part", "translation") == OK
    capsys.readouterr()
    record_file = next((tmp_path / "cache/adapters").glob("mt-*/training.json"))
    record = record_file.read_text()
    foreign_refusal = (
        f"{record_file.parent} is not what this version writes; delete it and run the command again"
    )
    for foreign_record in (
        "{}",
        "[]",
        "torn",
        '{"seconds": null, "example_forwards": 1}',
        '{"seconds": 1, "example_forwards": {}}',
    ):
        record_file.write_text(foreign_record)
        assert run(tmp_path, "--part", "translation") == FAILED
        assert foreign_refusal in capsys.readouterr().err
    record_file.write_text(record)
    lost_model = next((tmp_path / "cache").glob("*/model"))
    shutil.rmtree(lost_model)
    assert run(tmp_path, "--part", "translation") == FAILED
    loss_refusal = (
        "is no longer in the cache; to train it again, "
        f"delete folder {lost_model.parent.name[:12]}… of"
    )
    assert loss_refusal in capsys.readouterr().err


def test_a_cached_model_is_named_by_the_version_that_wrote_it(
    plan: GatesPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = TranslationWork(plan.translator, toy_task(), Store(tmp_path), "cpu", 0, lambda *_: None)
    place_of_this_version = gates_translation.place_of(work, "x")
    monkeypatch.setattr(gates_translation, "VERSION", gates_translation.VERSION + 1)
    assert gates_translation.place_of(work, "x") != place_of_this_version


def test_a_vocabulary_that_is_too_small_for_a_pair_is_told_with_what_to_do_here(
    plan: GatesPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = toy_folder(tmp_path / "data")
    lines = "".join(f"{chr(0x4E00 + number)}\ttik\n" for number in range(40))
    (data / "mt/aa-bb.train.tsv").write_text("source\ttarget\n" + lines)
    assert run(tmp_path, "--part", "translation") == FAILED
    messages = capsys.readouterr().err
    assert "no vocabulary of 24 pieces can be made" in messages
    assert "name another with --language, or give --translation-model" in messages
    assert "vocabulary=N" not in messages


def test_what_is_lacking_is_said_before_anything_is_trained(
    plan: GatesPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--part", "xnli") == FAILED
    assert "unknown part 'xnli'; this plan has intents, translation" in capsys.readouterr().err
    (toy_folder(tmp_path / "other") / "mt/aa-bb.train.tsv").unlink()
    arguments = ["--data", str(tmp_path / "other"), "--smoke", "--cache", str(tmp_path / "cache")]
    assert main(["reproduce", "voita-gates", *arguments]) == FAILED
    assert "train" in capsys.readouterr().err
    assert not list((tmp_path / "cache").glob("*/result.npz"))


def test_xnli_is_learned_on_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "xnli").mkdir()
    header = "premise\thypothesis\tlabel\n"
    for split in ("dev", "test"):
        (tmp_path / "xnli" / f"en.{split}.tsv").write_text(header + f"a {split}\tb\t1\n")
    classifier = Classifier(XNLI, WEIGHTS, LEARN, 2, 2, None)
    task = gates_classifiers.task_for(classifier, tmp_path)
    assert [example.text for example in task.examples("en", "test")] == ["a test"]
    with raises("reproduce.train_missing", "nli_en", "train.tsv"):
        task.examples("en", "train")
    (tmp_path / "nli_en").mkdir()
    (tmp_path / "nli_en" / "train.tsv").write_text(header + 'a "man"\tsits\t2\nno\tyes\t0\n')
    (first_example, second_example) = task.examples("en", "train")
    assert first_example.text == 'a "man"'
    assert first_example.pair == "sits"
    assert first_example.label == 2
    assert second_example.label == 0
    (tmp_path / "nli_en" / "train.tsv").write_text(header + "a\tb\t7\n")
    with raises("data.number_invalid", "line 2", "column label"):
        task.examples("en", "train")


def test_a_user_s_own_model_and_pair_are_pruned_and_no_model_is_trained_from_scratch(
    plan: GatesPlan,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = toy_folder(tmp_path / "data")
    for file in (data / "mt").glob("aa-bb.*"):
        file.rename(file.with_name(file.name.replace("aa-bb", "cc-dd")))
    options = plan.translator.model
    folder = train_translation(
        toy_examples("train"), pair="cc-dd", out=tmp_path / "own", options=options
    )
    monkeypatch.setattr("headlab.reproduce.gates_translation.train_translation", None)
    arguments = ["--part", "translation", "--language", "cc-dd", "--translation-model", str(folder)]
    assert run(tmp_path, "--json", *arguments, "--seed", "2") == OK
    printed = json.loads(capsys.readouterr().out)
    assert printed["command"] == (
        "headlab reproduce voita-gates --data DIR --smoke --part translation --language cc-dd --translation-model "
        "FOLDER --seed 2"
    )
    report = Report.from_json(printed["reports"]["gates-translation"])
    assert report.spec["pair"] == "cc-dd"
    assert report.spec["model"]["name"] == "own"
    assert report.spec["options"] is None
    assert report.spec["gates"]["model_rate"] == GateOptions.model_rate
    assert report.table("gates-scratch").rows == ()
    assert any("no architecture was trained from scratch" in note for note in report.notes)
    assert run(tmp_path, "--part", "intents", "--language", "cc-dd") == FAILED
    assert "belong to --part translation" in capsys.readouterr().err
    assert run(tmp_path, *arguments[:-1], str(tmp_path / "nowhere")) == FAILED
    assert "nowhere" in capsys.readouterr().err


def test_which_type_goes_first_is_read_from_the_history() -> None:
    grid = HeadGrid.from_json({"encoder": [2, 2], "cross": [2, 2]})
    is_on = [
        [1, 1, 1, 1, 1, 1, 1, 1],
        [0, 1, 1, 1, 1, 1, 1, 1],
        [0, 0, 1, 1, 0, 1, 1, 1],
        [0, 0, 0, 0, 0, 1, 1, 1],
    ]
    history = np.where(np.array(is_on, bool), 9.0, -9.0).astype(np.float32)
    steps = np.array([0, 5, 10, 15])
    gates = LearnedGates(grid, "aa-bb", steps, history, np.zeros(4), np.zeros(4), 0.1, 0, 0.0)
    assert half_gone_steps(gates) == {"encoder": 10, "cross": None}
    assert first_half_gone(gates) == ["encoder"]


def test_the_time_left_is_that_of_the_step_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 110.0, 200.0])
    monkeypatch.setattr("headlab.cli.reproduce.time.monotonic", lambda: next(times))
    pace = TimeLeft()
    assert pace.time_left("a", Progress(4, 20)) == ""  # where it went on
    assert pace.time_left("a", Progress(9, 20)) == ", 0:00:22 left"
    assert pace.time_left("b", Progress(0, 5)) == ""


def test_the_real_translation_part_is_one_of_hours_not_of_days() -> None:
    translator = REAL.translator
    assert len(translator.encoder) >= 4
    assert len(translator.every) >= 3
    assert len(translator.scratch) >= 1
    assert translator.steps == 3000 + 8 * 300 + 3300
    assert set(translator.scratch) <= set(translator.encoder)


def test_the_plan_names_parts_once(plan: GatesPlan) -> None:
    assert gates.parts_of(plan, None) == ("intents", "translation")
    assert gates.parts_of(plan, ["translation", "intents"]) == ("intents", "translation")
