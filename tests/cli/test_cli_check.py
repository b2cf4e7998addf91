"""`headlab check` as continuous integration uses it: three answers, exit codes, and JUnit XML."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from support.saved_models import save_classifier

import headlab
from headlab.cli.check import EXIT_CODES
from headlab.cli.junit import JUnitCase, JUnitSuite
from headlab.cli.run import main
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.stats import Verdict

ON_INTENTS = {"task": "intents", "languages": ["de"]}
FIELDS = {"verdict", "reason", "accuracy", "n", "baseline", "difference", "low", "high", "groups"}
FIELDS |= {"flipped_right", "flipped_wrong", "examples", "examples_cut", "token_limit"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return headlab.load(str(save_classifier(tmp_path_factory.mktemp("model") / "tiny")))


def mask_of(model: Model, *removed_heads: int, **chosen: object) -> Mask:
    is_kept = np.ones(model.grid.size, bool)
    is_kept[list(removed_heads)] = False
    return Mask(model.grid, is_kept, model.identity(), chosen)


@pytest.fixture
def mask_file(model: Model, tmp_path: Path) -> Path:
    file = tmp_path / "mask.json"
    mask_of(model, 1, **ON_INTENTS).save(file)
    return file


@pytest.mark.parametrize(
    ("size", "within", "code", "verdict"),
    [("24", "99", 0, "holds"), ("24", "0", 3, "undecided"), ("3", "99", 3, "undecided")],
)
def test_the_exit_code_is_the_answer(
    mask_file: Path,
    size: str,
    within: str,
    code: int,
    verdict: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["check", str(mask_file), "--within", within, "--size", size]
    assert main(words) == code
    output = capsys.readouterr()
    assert output.err == ""
    assert output.out.startswith(f"de     {verdict}: ")
    assert output.out.count("\n") == 1
    assert main([*words, "--json"]) == code
    record = json.loads(capsys.readouterr().out)
    assert (record["verdict"], record["exit_code"]) == (verdict, code)
    assert (record["task"], record["split"]) == ("intents", "test")
    assert record["languages"].keys() == {"de"}
    assert record["languages"]["de"].keys() == FIELDS


def test_the_codes_are_of_three_answers_and_none_is_that_of_a_mistake() -> None:
    assert EXIT_CODES == {Verdict.HOLDS: 0, Verdict.FAILS: 1, Verdict.UNDECIDED: 3}


@pytest.mark.slow
def test_a_mask_without_any_head_fails_in_every_language(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mask_file = tmp_path / "mask.json"
    junit = tmp_path / "out" / "junit.xml"
    model = headlab.load("e5-small-intents")
    mask_of(model, *range(model.grid.size), task="intents", languages=["de", "en"]).save(mask_file)
    words = ["check", str(mask_file), "--within", "5", "--size", "60", "--junit", str(junit)]
    assert main(words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].split()[-1] for line in lines] == ["fails", "fails", "fails"]
    assert lines[-1] == "fails: more than 5 points lost in de, en"
    suite = ElementTree.parse(junit).getroot()[0]
    assert suite.get("failures") == "2"
    assert [case.find("failure") is not None for case in suite.iter("testcase")] == [True, True]


def test_junit_has_a_test_for_each_language(
    mask_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "new" / "out.xml"
    words = ["check", str(mask_file), "--within", "0", "--size", "24", "--languages", "de,en"]
    assert main([*words, "--junit", str(junit)]) == 3
    assert capsys.readouterr().out.splitlines()[-1].startswith("undecided: ")
    root = ElementTree.parse(junit).getroot()
    suite = root[0]
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "0", "2")
    cases = list(suite.iter("testcase"))
    assert [case.get("name") for case in cases] == ["de", "en"]
    assert {case.get("classname") for case in cases} == {"headlab.check.intents"}
    for case in cases:
        (error,) = case.iter("error")
        assert error.get("type") == "undecided"
        assert "neither ruled out nor certain" in str(error.get("message"))


def test_junit_is_xml_whatever_the_names_are() -> None:
    name = "a&<b>\"'\x00\x1b[2J\ud800\ufffe\n😀]]>"
    cases = [
        JUnitCase(name, name, 0.25, outcome, name, name) for outcome in (None, "failure", "error")
    ]
    root = ElementTree.fromstring(JUnitSuite(name, cases, {name: name}).xml())
    counts = {key: root.get(key) for key in ("tests", "failures", "errors", "time")}
    assert counts == {"tests": "3", "failures": "1", "errors": "1", "time": "0.750"}
    assert "a&<b>\"'??[2J??" in str(root[0].get("name"))
    assert root.findtext(".//system-out") == "a&<b>\"'??[2J??\n😀]]>"


def test_what_the_mask_records_can_be_overruled(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mask_file = tmp_path / "mask.json"
    unnamed = replace(mask_of(model, 0), model={})
    unnamed.save(mask_file)
    words = ["check", str(mask_file), "--within", "99", "--size", "12"]
    assert main(words) == 2
    assert "name one with --task" in capsys.readouterr().err
    words += ["--task", "intents", "--languages", "th"]
    assert main(words) == 2
    assert "--model" in capsys.readouterr().err
    assert main([*words, "--model", str(model.name), "--split", "dev"]) == 0
    output = capsys.readouterr()
    assert "dev is not held out" in output.err
    assert output.out.startswith("th     holds: ")


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["--within", "nan"], "from 0 to below 100"),
        (["--within", "-1"], "from 0 to below 100"),
        (["--within", "100"], "from 0 to below 100"),
        (["--within", "one"], "--within"),
        ([], "--within"),
        (["--within", "1", "--split", "all"], "split"),
        (["--within", "1", "--ablation", "x"], "ablation"),
        (["--within", "1", "--languages", "xx"], "xx"),
        (["--within", "1", "--junit", "mask.json"], "the mask to check"),
        (["--within", "1", "--junit", "."], "folder"),
        (["--within", "1", "--size", "0"], "--size"),
    ],
)
def test_a_mistake_is_2_and_computes_nothing(
    mask_file: Path,
    words: list[str],
    phrase: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(mask_file.parent)
    before = mask_file.read_bytes()
    assert main(["check", "mask.json", *words]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert phrase in output.err
    assert mask_file.read_bytes() == before


def test_a_mask_of_another_model_is_2(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = headlab.load(str(save_classifier(tmp_path / "other", seed=1)))
    mask_of(other, 0, **ON_INTENTS).save(tmp_path / "mask.json")
    words = ["check", str(tmp_path / "mask.json"), "--within", "1", "--model", str(model.name)]
    assert main(words) == 2
    assert "the mask was made for" in capsys.readouterr().err
