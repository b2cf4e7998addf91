"""Gates on a classifier and a translation model, the whole reproduction on tiny models and made-up data."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import reference
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from support.toy_language import toy_examples, toy_folder, toy_task

pytest.importorskip("sentencepiece")
pytest.importorskip("sacrebleu")

from headlab.cli.main import FAILED, OK, main
from headlab.cli.reproduce import Pace
from headlab.core import HeadGrid, Progress, Report
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
    tiny = TranslationOptions(
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
    small = GatesPlan(
        (Classifier("intents", WEIGHTS, LEARN, 2, 2, 24),),
        replace(
            SMOKE.translator,
            pair="aa-bb",
            sentences=40,
            model=tiny,
            gates=replace(LEARN, trained="all", steps=6),
            encoder=WEIGHTS,
            every=WEIGHTS[1:],
            scratch=WEIGHTS[1:],
            dev=8,
            test=12,
            roles=12,
        ),
    )
    monkeypatch.setattr("headlab.reproduce.gates_classifiers.SMOKE", small)
    return small


def run(tmp_path: Path, *more: str) -> int:
    data = tmp_path / "data"
    if not data.exists():
        toy_folder(data)
    cache = ["--data", str(data), "--cache", str(tmp_path / "cache")]
    return main(["reproduce", "voita-gates", *cache, "--smoke", *more])


def test_the_whole_is_made_written_and_found_again(
    plan: GatesPlan,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(tmp_path, "--json", "--out", str(tmp_path / "out")) == OK
    told = json.loads(capsys.readouterr().out)
    assert set(told["reports"]) == {"gates-intents", "gates-translation"}
    for name, value in told["reports"].items():
        written = json.loads((tmp_path / "out" / f"{name}.json").read_text())
        assert Report.from_json(written) == Report.from_json(value)
        assert (
            written["command"]
            == told["command"]
            == "headlab reproduce voita-gates --data DIR --smoke"
        )
        for table in Report.from_json(value).tables:
            assert (tmp_path / "out" / f"{table.name}.csv").is_file()
    # nothing is learned or trained a second time
    monkeypatch.setattr("headlab.training.l0_learn.Learner", None)
    monkeypatch.setattr("headlab.reproduce.gates_translation.train_translation", None)
    monkeypatch.setattr("headlab.reproduce.gates_translation.train_on", None)
    assert run(tmp_path, "--json") == OK
    again = json.loads(capsys.readouterr().out)
    tables = [[r["tables"] for r in found["reports"].values()] for found in (told, again)]
    assert tables[0] == tables[1]


def test_every_choice_keeps_as_many_heads_as_the_gates(
    plan: GatesPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--json", "--part", "intents") == OK
    report = Report.from_json(json.loads(capsys.readouterr().out)["reports"]["gates-intents"])
    table = report.table("gates-intents-test")
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["λ"], row["chosen by"]) for row in rows] == [
        (weight, name) for weight in WEIGHTS for name in (GATES, SHAPLEY, "gradient", RANDOM)
    ]
    heads = report.table("gates-intents-layers")
    for n, weight in enumerate(WEIGHTS):
        assert {row["heads left"] for row in rows if row["λ"] == weight} == {sum(heads.rows[n][1:])}
    assert rows[-1]["heads left"] == 0  # a penalty that nothing outweighs
    # all have removed the same
    assert len({row["accuracy, %"] for row in rows if row["λ"] == WEIGHTS[1]}) == 1
    none = [row for row in rows if row["λ"] == WEIGHTS[1] and row["chosen by"] != GATES]
    assert all(row["against gates: difference, points"] == 0 for row in none)
    assert all(1 >= row["p, Holm"] >= row["p"] for row in rows)


def test_a_translation_model_is_pruned_by_stack(
    plan: GatesPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--json", "--part", "translation") == OK
    report = Report.from_json(json.loads(capsys.readouterr().out)["reports"]["gates-translation"])
    table = report.table("gates-bleu")
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["gates on"], row["λ"]) for row in rows] == [
        (WITHOUT_GATES, None),
        (BEFORE_GATES, None),
        *((ENCODER, weight) for weight in WEIGHTS),
        (ALL_STACKS, WEIGHTS[1]),
    ]
    left = [[row[f"{stack} heads"] for stack in ("encoder", "decoder", "cross")] for row in rows]
    assert left[0] == left[1] == [2, 2, 2]
    assert left[3] == [0, 2, 2]  # the encoder's alone have gates
    assert left[4] == [0, 0, 0]
    assert [row[1:] for row in report.table("gates-layers").rows] == [
        (row["λ"], *heads) for row, heads in zip(rows[2:], left[2:], strict=True)
    ]
    p = [row["p"] for row in rows[1:]]
    assert [row["p, Holm"] for row in rows[1:]] == pytest.approx(reference.holm_by_steps(p))
    assert all(row["trained, s"] >= 0 for row in rows)
    assert JOINT_NOTE not in report.notes
    assert any("what another seed would change is not in them" in note for note in report.notes)
    assert report.seconds > sum(row["trained, s"] for row in rows)
    assert report.spec["data"]["train"]["sentences"] == 40
    assert report.spec["options"]["steps"] == 4
    assert report.spec["threads"] >= 1
    sure = report.table("gates-log-probability")
    assert [row[:5] for row in sure.rows] == [tuple(row.values())[:5] for row in rows]
    assert all(
        low < mean < high < 0 for _, _, *_, mean, low, high in (row[:8] for row in sure.rows)
    )
    (scratch,) = report.table("gates-scratch").rows
    assert scratch[:2] == (WEIGHTS[1], 0)
    (first,) = report.table("gates-first").rows
    assert first[0] == WEIGHTS[1]
    assert first[4:7] == (0.0, 0.0, 0.0)
    assert set(first[7].split(", ")) <= {"encoder", "decoder", "cross"}
    assert all(step > 0 for step in first[1:4])
    for _, weight, _, stay, of, chance, *_ in report.table("gates-roles").rows:
        assert 0 <= stay <= of
        if weight == WEIGHTS[1]:
            assert stay == chance == 0


def test_seconds_of_pruned_models_are_of_their_steps_alone(
    plan: GatesPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--json", "--part", "translation") == OK
    table = Report.from_json(
        json.loads(capsys.readouterr().out)["reports"]["gates-translation"]
    ).table("gates-bleu")
    runs = {
        (r.record.spec["options"]["stacks"], r.record.weight): r
        for r in Store(tmp_path / "cache").gates().results
    }
    for on, weight, seconds in list(
        zip(*(table.column(c) for c in ("gates on", "λ", "trained, s")), strict=True)
    )[2:]:
        found = runs[on, weight]
        assert seconds == pytest.approx(6 * found.meta["step_seconds"])
        assert seconds < found.record.seconds  # which are with the judging


def test_what_is_lost_or_foreign_in_the_cache_is_told_with_what_to_do(
    plan: GatesPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--part", "translation") == OK
    capsys.readouterr()
    record = next((tmp_path / "cache/adapters").glob("mt-*/training.json"))
    whole = record.read_text()
    for text in (
        "{}",
        "[]",
        "torn",
        '{"seconds": null, "example_forwards": 1}',
        '{"seconds": 1, "example_forwards": {}}',
    ):
        record.write_text(text)
        assert run(tmp_path, "--part", "translation") == FAILED
        told = capsys.readouterr().err
        assert (
            f"{record.parent} is not what this version writes; delete it and run the command again"
            in told
        )
    record.write_text(whole)
    lost = next((tmp_path / "cache").glob("*/model"))
    shutil.rmtree(lost)
    assert run(tmp_path, "--part", "translation") == FAILED
    told = capsys.readouterr().err
    assert (
        f"is no longer in the cache; to train it again, delete folder {lost.parent.name[:12]}… of"
        in told
    )


def test_a_cached_model_is_named_by_the_version_that_wrote_it(
    plan: GatesPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = TranslationWork(plan.translator, toy_task(), Store(tmp_path), "cpu", 0, lambda *_: None)
    before = gates_translation.place_of(work, "x")
    monkeypatch.setattr(gates_translation, "VERSION", gates_translation.VERSION + 1)
    assert gates_translation.place_of(work, "x") != before


def test_a_vocabulary_that_is_too_small_for_a_pair_is_told_with_what_to_do_here(
    plan: GatesPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = toy_folder(tmp_path / "data")
    lines = "".join(f"{chr(0x4E00 + n)}\ttik\n" for n in range(40))
    (data / "mt/aa-bb.train.tsv").write_text("source\ttarget\n" + lines)
    assert run(tmp_path, "--part", "translation") == FAILED
    told = capsys.readouterr().err
    assert "no vocabulary of 24 pieces can be made" in told
    assert "name another with --language, or give --translation-model" in told
    assert "vocabulary=N" not in told


def test_what_is_lacking_is_said_before_anything_is_trained(
    plan: GatesPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--part", "xnli") == FAILED
    assert "unknown part 'xnli'; this plan has intents, translation" in capsys.readouterr().err
    (toy_folder(tmp_path / "other") / "mt/aa-bb.train.tsv").unlink()
    given = ["--data", str(tmp_path / "other"), "--smoke", "--cache", str(tmp_path / "cache")]
    assert main(["reproduce", "voita-gates", *given]) == FAILED
    assert "train" in capsys.readouterr().err
    assert not list((tmp_path / "cache").glob("*/result.npz"))


def test_xnli_is_learned_on_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "xnli").mkdir()
    header = "premise\thypothesis\tlabel\n"
    for split in ("dev", "test"):
        (tmp_path / "xnli" / f"en.{split}.tsv").write_text(header + f"a {split}\tb\t1\n")
    classifier = Classifier(XNLI, WEIGHTS, LEARN, 2, 2, None)
    task = gates_classifiers.task_for(classifier, tmp_path)
    assert [e.text for e in task.examples("en", "test")] == ["a test"]
    with raises("reproduce.train_missing", "nli_en", "train.tsv"):
        task.examples("en", "train")
    (tmp_path / "nli_en").mkdir()
    (tmp_path / "nli_en" / "train.tsv").write_text(header + 'a "man"\tsits\t2\nno\tyes\t0\n')
    (first, second) = task.examples("en", "train")
    assert (first.text, first.pair, first.label, second.label) == ('a "man"', "sits", 2, 0)
    (tmp_path / "nli_en" / "train.tsv").write_text(header + "a\tb\t7\n")
    with raises("data.number_invalid", "line 2", "column label"):
        task.examples("en", "train")


def test_a_model_and_a_pair_of_one_s_own_are_pruned_and_nothing_is_trained_from_nothing(
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
    own = ["--part", "translation", "--language", "cc-dd", "--translation-model", str(folder)]
    assert run(tmp_path, "--json", *own, "--seed", "2") == OK
    told = json.loads(capsys.readouterr().out)
    assert told["command"] == (
        "headlab reproduce voita-gates --data DIR --smoke --part translation --language cc-dd --translation-model "
        "FOLDER --seed 2"
    )
    report = Report.from_json(told["reports"]["gates-translation"])
    assert report.spec["pair"] == "cc-dd"
    assert report.spec["model"]["name"] == "own"
    assert report.spec["options"] is None
    assert report.spec["gates"]["model_rate"] == GateOptions.model_rate
    assert report.table("gates-scratch").rows == ()
    assert any("no architecture was trained from scratch" in note for note in report.notes)
    assert run(tmp_path, "--part", "intents", "--language", "cc-dd") == FAILED
    assert "belong to --part translation" in capsys.readouterr().err
    assert run(tmp_path, *own[:-1], str(tmp_path / "nowhere")) == FAILED
    assert "nowhere" in capsys.readouterr().err


def test_which_type_goes_first_is_read_from_the_history() -> None:
    grid = HeadGrid.from_json({"encoder": [2, 2], "cross": [2, 2]})
    on = 9.0
    off = -9.0
    history = np.array([[on] * 8, [off, on, on, on, on, on, on, on], [off, off, on, on, off, on, on, on],
                        [off, off, off, off, off, on, on, on]], np.float32)  # fmt: skip
    gates = LearnedGates(
        grid, "aa-bb", np.array([0, 5, 10, 15]), history, np.zeros(4), np.zeros(4), 0.1, 0, 0.0
    )
    assert half_gone_steps(gates) == {"encoder": 10, "cross": None}
    assert first_half_gone(gates) == ["encoder"]


def test_time_left_is_told_of_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 110.0, 200.0])
    monkeypatch.setattr("headlab.cli.reproduce.time.monotonic", lambda: next(times))
    pace = Pace()
    assert pace.time_left("a", Progress(4, 20)) == ""  # where it went on
    assert pace.time_left("a", Progress(9, 20)) == ", 0:00:22 left"
    assert pace.time_left("b", Progress(0, 5)) == ""


def test_the_real_translation_part_is_one_of_hours_not_of_days() -> None:
    real = REAL.translator
    assert len(real.encoder) >= 4
    assert len(real.every) >= 3
    assert len(real.scratch) >= 1
    assert real.steps == 3000 + 8 * 300 + 3300
    assert set(real.scratch) <= set(real.encoder)


def test_the_plan_names_parts_once(plan: GatesPlan) -> None:
    assert gates.parts_of(plan, None) == ("intents", "translation")
    assert gates.parts_of(plan, ["translation", "intents"]) == ("intents", "translation")
