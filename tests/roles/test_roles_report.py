"""The report of roles: kept and looked up, read back from JSON, and what `headlab roles` prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.expected_errors import raises
from support.role_trees import FREQUENCIES, trees
from support.saved_models import save_classifier
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.cli.main import main
from headlab.core import Progress, Report
from headlab.results import Store
from headlab.roles import (
    KINDS,
    OPTIONS,
    Frequencies,
    corpus_frequencies,
    kind_of,
    of_task,
    of_trees,
    resolve,
)
from headlab.roles.sentences import package_frequencies
from headlab.roles.study import forwards, study
from headlab.roles.table import THRESHOLDS, position
from headlab.tasks import Tree

TABLES = ("measures", "roles", "relations", "role-counts", "role-examples")


def conllu(bank: list[Tree]) -> str:
    lines = []
    for t in bank:
        for i, (word, governor, relation) in enumerate(
            zip(t.words, t.governors, t.relations, strict=True), start=1
        ):
            lines.append(
                "\t".join([str(i), word, "_", "X", "_", "_", str(governor + 1), relation, "_", "_"])
            )
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(save_classifier(tmp_path_factory.mktemp("model") / "tiny"))


def test_a_report_is_kept_and_looked_up_by_everything_it_depends_on(tmp_path: Path) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    store = Store(tmp_path)
    sentences = of_trees(trees(6), "xx", "dev")
    steps: list[Progress] = []
    first = study(model, sentences, store=store, frequencies=FREQUENCIES, on_progress=steps.append)
    assert [table.name for table in first.tables] == list(TABLES)
    assert (
        (steps[-1].done, steps[-1].total) == (6, 6) == (first.example_forwards, forwards(sentences))
    )
    assert first.spec["task"] == {
        "name": "treebank",
        "language": "xx",
        "split": "dev",
        "size": 6,
        "seed": 0,
        "data_hash": sentences.data_hash,
    }
    assert first.spec["options"] == resolve({})
    assert first.spec["kind"] == "report"
    assert first.spec["experiment"] == "roles"
    (kept,) = store.reports().results
    assert (
        kept.record
        == first
        == Report.from_json(json.loads(json.dumps(first.to_json())) | {"spec": first.spec})
    )
    steps.clear()
    assert (
        study(model, sentences, store=store, frequencies=FREQUENCIES, on_progress=steps.append)
        == first
    )
    assert steps == []
    for other in (
        {"options": {"margin": 0.2}},
        {"frequencies": Frequencies({"w4": 1.0}, {"source": "another"})},
    ):
        study(model, sentences, store=store, **({"frequencies": FREQUENCIES} | other))  # type: ignore[arg-type]
    study(model, of_trees(trees(6, seed=1), "xx", "dev"), store=store, frequencies=FREQUENCIES)
    assert len(store.reports().results) == 4
    assert store.reports().problems == ()


def test_whoever_stops_a_study_leaves_nothing_behind(tmp_path: Path) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    store = Store(tmp_path)

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(model, of_trees(trees(6), "xx", "dev"), store=store, tick=stop)
    assert store.reports().results == ()


def test_a_language_without_frequencies_says_so_and_judges_no_rare_words() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    report = study(model, of_trees(trees(6), "xx", "dev"))
    assert any(
        "Rare words are not judged" in note and "--frequencies" in note for note in report.notes
    )
    assert "rare word" not in report.table("roles").column("role")
    assert report.spec["frequencies"] == {"source": "none"}


def test_texts_of_a_task_have_no_syntax_but_everything_else() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    report = study(model, of_task(tiny_task(), "xx"), frequencies=FREQUENCIES)
    assert {kind_of(role) for role in report.table("roles").column("role")} == {
        "positional",
        "separator",
        "first token",
        "same token elsewhere",
        "rare word",
    }
    assert report.table("relations").rows == ()
    assert any("syntactic roles are not judged" in note for note in report.notes)
    assert any(
        "Some belong to one group, so intervals are too narrow." in note for note in report.notes
    )


def test_p_values_are_adjusted_over_all_heads_and_roles_together() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    table = study(model, of_trees(trees(6), "xx", "dev"), frequencies=FREQUENCIES).table("roles")
    p = table.column("p")
    adjusted = table.column("p (Benjamini-Hochberg)")
    order = sorted(range(len(p)), key=lambda i: p[i])
    for rank, i in enumerate(order, start=1):
        want = min(
            min(p[j] * len(p) / (rank + later) for later, j in enumerate(order[rank - 1 :])), 1
        )
        assert adjusted[i] == pytest.approx(want)


def test_every_kind_of_role_has_a_threshold_and_options_are_checked() -> None:
    assert set(THRESHOLDS) == set(KINDS)
    assert set(THRESHOLDS.values()) <= set(OPTIONS)
    assert resolve({})["positional"] == 0.9
    assert resolve({})["margin"] == 0.1
    assert resolve({})["rare"] == 0.5
    assert [position(offset) for offset in (-1, 0, 2)] == [
        "position -1",
        "position 0",
        "position +2",
    ]
    for wrong in (
        {"margins": 1},
        {"positional": 1.5},
        {"examples": -1},
        {"exclude": "all"},
        {"level": 1.0},
    ):
        ((name, value),) = wrong.items()
        known = name in OPTIONS
        with raises(
            f"roles.option_{'invalid' if known else 'unknown'}",
            name,
            *([repr(value)] if known else []),
        ):
            resolve(wrong)


def test_words_of_a_corpus_are_counted_and_those_of_parts_are_put_together(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("The cat saw the dog\nthe cat\n", encoding="utf-8")
    found = corpus_frequencies(path)
    assert [found.of(word) for word in ("The", "cat", "saw", "bird")] == [3, 2, 1, 0]
    assert found.of("cat-dog") == pytest.approx(1 / (1 / 2 + 1 / 1))
    assert found.rarest(["the", "dog", ".", "saw", "9"]) == [False, True, False, True, False]
    assert found.rarest([".", "!"]) == [False, False]
    path.write_text("the cat saw the dog\nthe cat saw\n", encoding="utf-8")
    assert corpus_frequencies(path).about != found.about
    path.write_text("\n", encoding="utf-8")
    with raises("file.no_words"):
        corpus_frequencies(path)


def test_the_package_spells_words_its_own_way() -> None:
    pytest.importorskip("wordfreq")
    english, chinese, turkish = (package_frequencies(language) for language in ("en", "zh", "tr"))
    assert isinstance(english, Frequencies)
    assert isinstance(chinese, Frequencies)
    assert isinstance(turkish, Frequencies)
    assert english.of("The") > english.of("aardvark") > english.of("xqzzyv") == 0
    assert chinese.of("國家") == chinese.of("国家") > 0
    assert turkish.of("İSTANBUL") == turkish.of("istanbul") > 0
    assert (
        english.rarest(["the", "20th", "anniversary", "of", "idiosyncratic", "defenestration"])[1]
        is False
    )
    assert "wordfreq has no frequencies for th" in str(package_frequencies("th"))


def test_a_region_s_words_are_those_of_its_language() -> None:
    pytest.importorskip("wordfreq")
    here = package_frequencies("pt-BR")
    whole = package_frequencies("pt")
    assert isinstance(here, Frequencies)
    assert isinstance(whole, Frequencies)
    assert here.of("casa") == whole.of("casa") > 0
    assert "no frequencies for xx-YY" in str(package_frequencies("xx-YY"))


def test_the_command_gives_every_head_its_measures_and_roles(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})
    bank = [
        Tree("1", ("turn", "on", "the", "light"), (-1, 0, 3, 0), ("root", "advmod", "amod", "obj"))
    ] * 3
    path = tmp_path / "mine.conllu"
    path.write_text(conllu(bank), encoding="utf-8")
    arguments = [
        "roles",
        "--model",
        str(folder),
        "--task",
        "tiny",
        "--language",
        "xx",
        "--conllu",
        str(path),
        "--size",
        "3",
        "--cache",
        str(tmp_path / "cache"),
        "--option",
        "examples=1",
    ]
    assert main([*arguments, "--out", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told["reports"]) == {"treebank", "tiny"}
    for head in told["heads"]:
        assert head["measures"]["on"] == "tiny"
        assert {"confidence", "entropy, nats", "tokens"} <= set(head["measures"])
        assert {role["on"] for role in head["roles"]} == {"treebank"}
        assert {"role", "hits", "asked", "sentences", "p", "has it"} <= set(head["roles"][0])
    assert len(told["heads"]) == len(told["reports"]["tiny"]["tables"][0]["rows"])
    for name in TABLES:
        assert (tmp_path / "out" / "treebank" / f"{name}.csv").is_file()
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "# treebank: 3 sentences of xx (file)" in shown
    assert "| obj | dependent to governor |" in shown


def test_the_command_says_what_is_missing(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HEADLAB_DATA", raising=False)
    assert main(["roles", "--model", str(folder), "--language", "xx"]) == 2
    assert "no sentences to find roles on in xx" in capsys.readouterr().err
    path = tmp_path / "broken.conllu"
    path.write_text("1\ta\t_\tX\t_\t_\t2\tx\t_\t_\n", encoding="utf-8")
    assert main(["roles", "--model", str(folder), "--conllu", str(path)]) == 2
    assert "broken.conllu, line 1, column HEAD" in capsys.readouterr().err
    assert main(["roles", "--model", str(folder), "--option", "margin=2"]) == 2
    assert "margin is 2" in capsys.readouterr().err
