"""The report of roles, stored, looked up and read back; and what `headlab roles` prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.expected_errors import raises
from support.role_trees import FREQUENCIES, random_trees
from support.saved_models import save_classifier
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.cli.run import main
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


def conllu(treebank: list[Tree]) -> str:
    """The text of a CoNLL-U file of these trees."""
    lines = []
    for tree in treebank:
        for index, word in enumerate(tree.words):
            number = str(index + 1)
            governor = str(tree.governors[index] + 1)
            relation = tree.relations[index]
            fields = [number, word, "_", "X", "_", "_", governor, relation, "_", "_"]
            lines.append("\t".join(fields))
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(save_classifier(tmp_path_factory.mktemp("model") / "tiny"))


def test_a_report_is_stored_and_looked_up_by_everything_it_depends_on(tmp_path: Path) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    store = Store(tmp_path)
    sentences = of_trees(random_trees(6), "xx", "dev")
    steps: list[Progress] = []
    report = study(model, sentences, store=store, frequencies=FREQUENCIES, on_progress=steps.append)
    assert [table.name for table in report.tables] == list(TABLES)
    assert steps[-1].done == 6
    assert steps[-1].total == 6
    assert report.example_forwards == 6
    assert forwards(sentences) == 6
    assert report.spec["task"] == {
        "name": "treebank",
        "language": "xx",
        "split": "dev",
        "size": 6,
        "seed": 0,
        "data_hash": sentences.data_hash,
    }
    assert report.spec["options"] == resolve({})
    assert report.spec["kind"] == "report"
    assert report.spec["experiment"] == "roles"
    (stored_report,) = store.reports().results
    assert stored_report.record == report
    report_json = json.loads(json.dumps(report.to_json()))
    assert Report.from_json(report_json | {"spec": report.spec}) == report
    steps.clear()
    looked_up = study(
        model,
        sentences,
        store=store,
        frequencies=FREQUENCIES,
        on_progress=steps.append,
    )
    assert looked_up == report
    assert steps == []
    other_options = {"margin": 0.2}
    study(model, sentences, store=store, frequencies=FREQUENCIES, options=other_options)
    other_frequencies = Frequencies({"w4": 1.0}, {"source": "another"})
    study(model, sentences, store=store, frequencies=other_frequencies)
    other_sentences = of_trees(random_trees(6, seed=1), "xx", "dev")
    study(model, other_sentences, store=store, frequencies=FREQUENCIES)
    assert len(store.reports().results) == 4
    assert store.reports().problems == ()


def test_a_stopped_study_stores_no_report(tmp_path: Path) -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    store = Store(tmp_path)

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(model, of_trees(random_trees(6), "xx", "dev"), store=store, tick=stop)
    assert store.reports().results == ()


def test_a_language_without_frequencies_says_so_and_judges_no_rare_words() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    report = study(model, of_trees(random_trees(6), "xx", "dev"))
    (note,) = [note for note in report.notes if "Rare words are not judged" in note]
    assert "--frequencies" in note
    assert "rare word" not in report.table("roles").column("role")
    assert report.spec["frequencies"] == {"source": "none"}


def test_texts_of_a_task_have_no_syntax_but_everything_else() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    report = study(model, of_task(tiny_task(), "xx"), frequencies=FREQUENCIES)
    roles = report.table("roles").column("role")
    kinds = {kind_of(role) for role in roles}
    token_kinds = {"separator", "first token", "same token elsewhere"}
    assert kinds == {"positional", "rare word"} | token_kinds
    assert report.table("relations").rows == ()
    assert any("syntactic roles are not judged" in note for note in report.notes)
    warning = "Some belong to one group, so intervals are too narrow."
    assert any(warning in note for note in report.notes)


def test_p_values_are_adjusted_over_all_heads_and_roles_together() -> None:
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    sentences = of_trees(random_trees(6), "xx", "dev")
    report = study(model, sentences, frequencies=FREQUENCIES)
    table = report.table("roles")
    p_values = table.column("p")
    adjusted_p_values = table.column("p (Benjamini-Hochberg)")
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    for rank, index in enumerate(order, start=1):
        smallest = 1.0
        for larger_rank, larger_index in enumerate(order[rank - 1 :], start=rank):
            adjusted_p = p_values[larger_index] * len(p_values) / larger_rank
            smallest = min(smallest, adjusted_p)
        assert adjusted_p_values[index] == pytest.approx(smallest)


def test_every_kind_of_role_has_a_threshold_and_options_are_checked() -> None:
    assert set(THRESHOLDS) == set(KINDS)
    assert set(THRESHOLDS.values()) <= set(OPTIONS)
    assert resolve({})["positional"] == 0.9
    assert resolve({})["margin"] == 0.1
    assert resolve({})["rare"] == 0.5
    assert position(-1) == "position -1"
    assert position(0) == "position 0"
    assert position(2) == "position +2"
    with raises("roles.option_unknown", "margins"):
        resolve({"margins": 1})
    assert "margins" not in OPTIONS
    invalid_options = {
        "positional": 1.5,
        "examples": -1,
        "exclude": "all",
        "level": 1.0,
    }
    for name, value in invalid_options.items():
        assert name in OPTIONS
        with raises("roles.option_invalid", name, repr(value)):
            resolve({name: value})


def test_words_of_a_corpus_are_counted_and_compounds_are_judged_by_their_parts(
    tmp_path: Path,
) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("The cat saw the dog\nthe cat\n", encoding="utf-8")
    frequencies = corpus_frequencies(path)
    assert frequencies.of("The") == 3
    assert frequencies.of("cat") == 2
    assert frequencies.of("saw") == 1
    assert frequencies.of("bird") == 0
    assert frequencies.of("cat-dog") == pytest.approx(1 / (1 / 2 + 1 / 1))
    is_rarest = frequencies.rarest(["the", "dog", ".", "saw", "9"])
    assert is_rarest == [False, True, False, True, False]
    assert frequencies.rarest([".", "!"]) == [False, False]
    path.write_text("the cat saw the dog\nthe cat saw\n", encoding="utf-8")
    assert corpus_frequencies(path).about != frequencies.about
    path.write_text("\n", encoding="utf-8")
    with raises("file.no_words"):
        corpus_frequencies(path)


def test_words_are_found_in_the_package_however_they_are_spelled() -> None:
    pytest.importorskip("wordfreq")
    english = package_frequencies("en")
    chinese = package_frequencies("zh")
    turkish = package_frequencies("tr")
    assert isinstance(english, Frequencies)
    assert isinstance(chinese, Frequencies)
    assert isinstance(turkish, Frequencies)
    assert english.of("The") > english.of("aardvark") > english.of("xqzzyv") == 0
    assert chinese.of("國家") == chinese.of("国家") > 0
    assert turkish.of("İSTANBUL") == turkish.of("istanbul") > 0
    words = ["the", "20th", "anniversary", "of", "idiosyncratic", "defenestration"]
    is_rarest = english.rarest(words)
    assert is_rarest[words.index("20th")] is False
    assert "wordfreq has no frequencies for th" in str(package_frequencies("th"))


def test_the_words_of_a_region_are_those_of_its_language() -> None:
    pytest.importorskip("wordfreq")
    of_region = package_frequencies("pt-BR")
    of_language = package_frequencies("pt")
    assert isinstance(of_region, Frequencies)
    assert isinstance(of_language, Frequencies)
    assert of_region.of("casa") == of_language.of("casa") > 0
    assert "no frequencies for xx-YY" in str(package_frequencies("xx-YY"))


def test_the_command_gives_every_head_its_measures_and_roles(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})
    words = ("turn", "on", "the", "light")
    tree = Tree("1", words, (-1, 0, 3, 0), ("root", "advmod", "amod", "obj"))
    path = tmp_path / "mine.conllu"
    path.write_text(conllu([tree] * 3), encoding="utf-8")
    arguments = ["roles", "--model", str(folder), "--task", "tiny", "--language", "xx"]
    arguments += ["--conllu", str(path), "--size", "3", "--cache", str(tmp_path / "cache")]
    arguments += ["--option", "examples=1"]
    assert main([*arguments, "--out", str(tmp_path / "out"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["reports"]) == {"treebank", "tiny"}
    for head in printed["heads"]:
        assert head["measures"]["on"] == "tiny"
        assert {"confidence", "entropy, nats", "tokens"} <= set(head["measures"])
        assert {role["on"] for role in head["roles"]} == {"treebank"}
        first_role = head["roles"][0]
        assert {"role", "hits", "asked", "sentences", "p", "has it"} <= set(first_role)
    measures = printed["reports"]["tiny"]["tables"][0]
    assert len(printed["heads"]) == len(measures["rows"])
    for name in TABLES:
        assert (tmp_path / "out" / "treebank" / f"{name}.csv").is_file()
    assert main(arguments) == 0
    printed_text = capsys.readouterr().out
    assert "# treebank: 3 sentences of xx (file)" in printed_text
    assert "| obj | dependent to governor |" in printed_text


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
