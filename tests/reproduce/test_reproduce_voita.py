"""Roles in many languages and models, on tiny models and made-up treebanks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.expected_errors import raises
from support.tiny_models import VOCAB, tiny_model
from support.tiny_task import tiny_tokenizer

from headlab.cli.main import FAILED, OK, main
from headlab.core import Report
from headlab.hooks import Model
from headlab.reproduce import voita

TREES = 20
RELATIONS = ("nsubj", "obj", "amod", "advmod", "det")


def tree(rng: np.random.Generator) -> str:
    """Five words below the first one, which is the root."""
    rows = [(f"w{rng.integers(4, VOCAB)}", 0, "root")]
    rows += [(f"w{rng.integers(4, VOCAB)}", 1, relation) for relation in rng.permutation(RELATIONS)]
    return (
        "".join(
            f"{i}\t{w}\t_\tX\t_\t_\t{to}\t{name}\t_\t_\n" for i, (w, to, name) in enumerate(rows, 1)
        )
        + "\n"
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    (root / "ud").mkdir()
    for language in (*voita.SMOKE_LANGUAGES, "de"):
        (root / "ud" / f"{language}.dev.conllu").write_text(
            "".join(tree(rng) for _ in range(TREES))
        )
    return root


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny models in place of those that the reproduction names, each with weights of its own."""

    def model_of(name: str, *_: Any) -> Model:
        return tiny_model("bert", seed=voita.MODELS.index(name), tokenizer=tiny_tokenizer())

    monkeypatch.setattr(voita, "model_of", model_of)


@pytest.mark.usefixtures("tiny")
def test_every_model_and_language_is_studied_and_found_again(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [
        "reproduce",
        "voita-roles",
        "--data",
        str(data),
        "--smoke",
        "--cache",
        str(tmp_path / "cache"),
    ]
    more = ["--out", str(tmp_path / "out"), "--json"]
    assert main([*arguments, *more]) == OK
    first = json.loads(capsys.readouterr().out)
    names = {
        f"{model}-{language}" for model in voita.MODELS[:2] for language in voita.SMOKE_LANGUAGES
    }
    assert set(first["reports"]) == names
    kept = {path.stem for path in (tmp_path / "out").glob("*.json")}
    assert kept == names | {"voita-roles"}
    summary = Report.from_json(json.loads((tmp_path / "out" / "voita-roles.json").read_text()))
    assert summary == Report.from_json(first["summary"])
    for name in names:
        written, told = (
            Report.from_json(value).table("roles")
            for value in (
                json.loads((tmp_path / "out" / f"{name}.json").read_text()),
                first["reports"][name],
            )
        )
        assert written.rows == tuple(row for row in told.rows if row[-1])
        assert f"of {len(told.rows)} rows" in written.notes[-1]
    assert not any(
        Report.from_json(report).table("role-examples").rows for report in first["reports"].values()
    )
    monkeypatch.setattr("headlab.roles.study.read", None)  # nothing is computed a second time
    assert main([*arguments, *more]) == OK
    assert json.loads(capsys.readouterr().out) == first
    assert main(arguments) == OK
    out = capsys.readouterr().out
    for table in summary.tables:
        assert f"### {table.title}" in out


def with_roles(report: Report, name: str) -> Report:
    """The same report where a third of the heads have each role, since tiny models have none."""
    rng = np.random.default_rng(list(name.encode()))
    table = report.table("roles")
    rows = tuple((*row[:-1], bool(rng.random() < 1 / 3)) for row in table.rows)
    assert table.columns[-1] == "has it"
    return replace(
        report, tables=tuple(replace(t, rows=rows) if t is table else t for t in report.tables)
    )


@pytest.mark.usefixtures("tiny")
def test_the_summary_says_what_the_reports_say(data: Path) -> None:
    plan = voita.VoitaPlan(TREES, few=True)
    reports = {
        (name, language): with_roles(report, name + language)
        for name in plan.models
        for language, report in voita.role_reports(
            voita.model_of(name, data, None, None, ""), plan, data, None, 0, print
        )
    }
    found = voita.summary(reports, {})
    for (model, language), report in reports.items():
        own = [
            row[2:] for row in found.table("voita-relations").rows if row[:2] == (model, language)
        ]
        assert own == list(report.table("relations").rows)
        for relation, direction, *_, best, _, _, baseline, _, _, _ in report.table(
            "relations"
        ).rows:
            points = [
                row
                for row in found.table("voita-excess").rows
                if row[:3] == (model, relation, direction)
            ]
            assert points[0][3 + voita.SMOKE_LANGUAGES.index(language)] == pytest.approx(
                float(best or 0) - float(baseline or 0)
            )
        column = found.table("voita-counts").column(language)
        rows = [
            r
            for r, name in zip(column, found.table("voita-counts").column("model"), strict=True)
            if name == model
        ]
        assert [count for count in rows if count is not None] == report.table("role-counts").column(
            "heads"
        )
    having = {
        key: {
            (voita.kind_of(str(row[3])), row[:3])
            for row in report.table("roles").rows
            if row[report.table("roles").columns.index("has it")]
        }
        for key, report in reports.items()
    }
    for model, language, role, base, tuned, both in found.table("voita-kept").rows:
        sets = [
            {head for name, head in having[one, str(language)] if name == role}
            for one in (voita.BASE, str(model))
        ]
        assert (base, tuned, both) == (len(sets[0]), len(sets[1]), len(sets[0] & sets[1]))
    assert found.table("voita-kept").rows
    followed = {
        (model, role, head)
        for (model, language), roles in having.items()
        for role, head in roles
        if language == voita.SOURCE and ":" in role
    }
    nearest = found.table("voita-nearest")
    for row in nearest.rows:
        table = reports[str(row[0]), str(row[1])].table("roles")
        shares = [r[4] for r in table.rows if voita.kind_of(str(r[3])) == row[2]]
        assert row[6] == max(shares)
    assert {row[2] for row in nearest.rows} >= {"positional", "separator", "first token"}
    across = found.table("voita-across")
    assert {(row[0], row[2], row[3:6]) for row in across.rows if ":" in str(row[2])} == followed
    assert {row[1] for row in across.rows} == set(voita.SMOKE_LANGUAGES)
    for row in across.rows:
        model, language, role, *head = row[:6]
        assert (role, tuple(head)) in having[str(model), voita.SOURCE]
        assert row[-1] == ((role, tuple(head)) in having[str(model), str(language)])


def test_all_languages_that_are_there_are_taken_english_first(data: Path, tmp_path: Path) -> None:
    assert voita.languages(voita.REAL, data) == ("en", "de", "hi", "zh")
    assert voita.languages(voita.SMOKE, data) == voita.SMOKE_LANGUAGES
    (tmp_path / "ud").mkdir()
    (tmp_path / "ud" / "de.dev.conllu").write_text(tree(np.random.default_rng(0)))
    with raises("treebank.missing", "en", "dev.conllu"):
        voita.languages(voita.REAL, tmp_path)


def test_a_folder_without_treebanks_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "voita-roles", "--data", str(tmp_path), "--smoke"]) == FAILED
    assert "treebank of en" in capsys.readouterr().err
