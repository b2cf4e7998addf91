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

from headlab.cli.run import FAILED, OK, main
from headlab.core import Report
from headlab.hooks import Model
from headlab.reproduce import voita

TREES = 20
RELATIONS = ("nsubj", "obj", "amod", "advmod", "det")
Reports = dict[tuple[str, str], Report]  # by model and language
HeadsOfRoles = dict[Any, set[Any]]  # by role
HeadsByRole = dict[tuple[str, str], HeadsOfRoles]  # by model and language, then by role


def random_tree(rng: np.random.Generator) -> str:
    """A sentence in CoNLL-U: five words below the first one, which is the root."""
    root_word = f"w{rng.integers(4, VOCAB)}"
    words = [(root_word, 0, "root")]
    for relation in rng.permutation(RELATIONS):
        word = f"w{rng.integers(4, VOCAB)}"
        words.append((word, 1, relation))
    lines = []
    for number, (word, head, relation) in enumerate(words, 1):
        lines.append(f"{number}\t{word}\t_\tX\t_\t_\t{head}\t{relation}\t_\t_\n")
    return "".join(lines) + "\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    treebank_folder = root / "ud"
    treebank_folder.mkdir()
    for language in (*voita.SMOKE_LANGUAGES, "de"):
        trees = [random_tree(rng) for _ in range(TREES)]
        treebank = treebank_folder / f"{language}.dev.conllu"
        treebank.write_text("".join(trees))
    return root


@pytest.fixture
def tiny_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny models in place of those that the reproduction names, each with weights of its own."""

    def model_of(name: str, *_: Any) -> Model:
        seed = voita.MODELS.index(name)
        return tiny_model("bert", seed=seed, tokenizer=tiny_tokenizer())

    monkeypatch.setattr(voita, "model_of", model_of)


def read_report(path: Path) -> Report:
    return Report.from_json(json.loads(path.read_text()))


@pytest.mark.usefixtures("tiny_models")
def test_every_model_and_language_is_studied_and_found_again(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    arguments = [
        "reproduce",
        "voita-roles",
        "--data",
        str(data),
        "--smoke",
        "--cache",
        str(tmp_path / "cache"),
    ]
    output_arguments = ["--out", str(folder), "--json"]
    assert main([*arguments, *output_arguments]) == OK
    printed = json.loads(capsys.readouterr().out)
    names = set()
    for model in voita.MODELS[:2]:
        for language in voita.SMOKE_LANGUAGES:
            names.add(f"{model}-{language}")
    assert set(printed["reports"]) == names
    written_names = {path.stem for path in folder.glob("*.json")}
    assert written_names == names | {"voita-roles"}
    summary = read_report(folder / "voita-roles.json")
    assert summary == Report.from_json(printed["summary"])
    for name in names:
        printed_report = Report.from_json(printed["reports"][name])
        printed_roles = printed_report.table("roles")
        stored_report = read_report(folder / f"{name}.json")
        stored_roles = stored_report.table("roles")
        rows_with_role = [row for row in printed_roles.rows if row[-1]]
        assert stored_roles.rows == tuple(rows_with_role)
        row_count = len(printed_roles.rows)
        assert f"of {row_count} rows" in stored_roles.notes[-1]
        assert not printed_report.table("role-examples").rows
    monkeypatch.setattr("headlab.roles.study.read", None)  # nothing is computed a second time
    assert main([*arguments, *output_arguments]) == OK
    assert json.loads(capsys.readouterr().out) == printed
    assert main(arguments) == OK
    markdown = capsys.readouterr().out
    for table in summary.tables:
        assert f"### {table.title}" in markdown


def with_roles(report: Report, name: str) -> Report:
    """The same report where a third of the heads have each role, since tiny models have none.

    Args:
        name: Seeds the choice of heads.
    """
    rng = np.random.default_rng(list(name.encode()))
    roles = report.table("roles")
    assert roles.columns[-1] == "has it"
    rows = []
    for row in roles.rows:
        has_role = bool(rng.random() < 1 / 3)
        rows.append((*row[:-1], has_role))
    tables = []
    for table in report.tables:
        if table is roles:
            tables.append(replace(roles, rows=tuple(rows)))
        else:
            tables.append(table)
    return replace(report, tables=tuple(tables))


def heads_by_role(report: Report) -> dict[str, set[Any]]:
    """Stack, layer and head of the heads that have each kind of role."""
    roles = report.table("roles")
    have_role = roles.column("has it")
    heads: dict[str, set[Any]] = {}
    for row, has_role in zip(roles.rows, have_role, strict=True):
        if has_role:
            kind = voita.kind_of(str(row[3]))
            heads.setdefault(kind, set()).add(row[:3])
    return heads


def assert_relations_and_excess(summary: Report, reports: Reports) -> None:
    """Relations are those of the reports; their excess is the best head's share above the baseline."""
    for (model, language), report in reports.items():
        relations = report.table("relations")
        rows = []
        for row in summary.table("voita-relations").rows:
            if row[:2] == (model, language):
                rows.append(row[2:])
        assert rows == list(relations.rows)
        column = 3 + voita.SMOKE_LANGUAGES.index(language)
        for relation_row in relations.rows:
            relation, direction, *_, best, _, _, baseline, _, _, _ = relation_row
            excess_rows = [
                row
                for row in summary.table("voita-excess").rows
                if row[:3] == (model, relation, direction)
            ]
            best_share = float(best or 0)
            baseline_share = float(baseline or 0)
            excess = best_share - baseline_share
            assert excess_rows[0][column] == pytest.approx(excess)


def assert_counts(summary: Report, reports: Reports) -> None:
    counts = summary.table("voita-counts")
    for (model, language), report in reports.items():
        counts_of_language = counts.column(language)
        model_names = counts.column("model")
        counts_of_model = []
        for count, name in zip(counts_of_language, model_names, strict=True):
            if name == model and count is not None:
                counts_of_model.append(count)
        assert counts_of_model == report.table("role-counts").column("heads")


def assert_kept_heads(summary: Report, heads: HeadsByRole) -> None:
    """Heads with a role in the base model, in the tuned one, and in both are counted."""
    kept = summary.table("voita-kept")
    assert kept.rows
    for row in kept.rows:
        model, language, role, base_count, tuned_count, count_of_both = row
        heads_of_base = heads[voita.BASE, str(language)]
        heads_of_tuned = heads[str(model), str(language)]
        base_heads = heads_of_base.get(role, set())
        tuned_heads = heads_of_tuned.get(role, set())
        assert base_count == len(base_heads)
        assert tuned_count == len(tuned_heads)
        assert count_of_both == len(base_heads & tuned_heads)


def assert_nearest_heads(summary: Report, reports: Reports) -> None:
    """The nearest head to a role that no head has is the one with the largest share."""
    nearest = summary.table("voita-nearest")
    for row in nearest.rows:
        model = str(row[0])
        language = str(row[1])
        roles = reports[model, language].table("roles")
        shares = []
        for role in roles.rows:
            if voita.kind_of(str(role[3])) == row[2]:
                shares.append(role[4])
        assert row[6] == max(shares)
    roles_without_head = {row[2] for row in nearest.rows}
    assert roles_without_head >= {"positional", "separator", "first token"}


def assert_heads_across_languages(summary: Report, heads: HeadsByRole) -> None:
    """Heads with a role in the source language are followed into the others."""
    across = summary.table("voita-across")
    syntactic_heads = set()
    for (model, language), heads_of_roles in heads.items():
        for role, role_heads in heads_of_roles.items():
            if language == voita.SOURCE and ":" in role:
                for head in role_heads:
                    syntactic_heads.add((model, role, head))
    followed_heads = set()
    for row in across.rows:
        if ":" in str(row[2]):
            followed_heads.add((row[0], row[2], row[3:6]))
    assert followed_heads == syntactic_heads
    languages = {row[1] for row in across.rows}
    assert languages == set(voita.SMOKE_LANGUAGES)
    for row in across.rows:
        model, language, role, *head = row[:6]
        heads_in_source = heads[str(model), voita.SOURCE]
        heads_in_language = heads[str(model), str(language)]
        assert tuple(head) in heads_in_source[role]
        has_role = tuple(head) in heads_in_language.get(role, set())
        assert row[-1] == has_role


@pytest.mark.usefixtures("tiny_models")
def test_the_summary_says_what_the_reports_say(data: Path) -> None:
    plan = voita.VoitaPlan(TREES, few=True)
    reports = {}
    for name in plan.models:
        model = voita.model_of(name, data, None, None, "")
        for language, report in voita.role_reports(model, plan, data, None, 0, print):
            reports[name, language] = with_roles(report, name + language)
    heads = {}
    for model_and_language, report in reports.items():
        heads[model_and_language] = heads_by_role(report)
    summary = voita.summary(reports, {})
    assert_relations_and_excess(summary, reports)
    assert_counts(summary, reports)
    assert_kept_heads(summary, heads)
    assert_nearest_heads(summary, reports)
    assert_heads_across_languages(summary, heads)


def test_all_languages_that_are_there_are_taken_english_first(data: Path, tmp_path: Path) -> None:
    assert voita.languages(voita.REAL, data) == ("en", "de", "hi", "zh")
    assert voita.languages(voita.SMOKE, data) == voita.SMOKE_LANGUAGES
    (tmp_path / "ud").mkdir()
    german_tree = random_tree(np.random.default_rng(0))
    (tmp_path / "ud" / "de.dev.conllu").write_text(german_tree)
    with raises("treebank.missing", "en", "dev.conllu"):
        voita.languages(voita.REAL, tmp_path)


def test_a_folder_without_treebanks_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "reproduce",
        "voita-roles",
        "--data",
        str(tmp_path),
        "--smoke",
    ]
    assert main(arguments) == FAILED
    assert "treebank of en" in capsys.readouterr().err
