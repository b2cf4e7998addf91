"""`headlab report`: what a user names is found, what is shown are the result's own numbers, in one file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest
from support import cached_reports, cached_scores, synthetic_gates
from support.expected_errors import raises
from support.fake_client import job
from support.synthetic_curves import made_curve

from headlab.cli.main import main
from headlab.core import BEYOND_LIMIT, WITHOUT_TOKEN, HeadGrid, Omissions, Report, Stack, Table
from headlab.dashboard.pages.jobs import results
from headlab.dashboard.pages.jobs.results import offer_report
from headlab.masks import Mask
from headlab.report import build
from headlab.report.build import document, find_results, ordered_on
from headlab.report.parts import Item
from headlab.results import Curve, HeadScores, Store
from headlab.stats import holm

VOID = {"meta", "br"}
CREATED = {
    "created": "2026-11-22T01:00:00+00:00",
    "versions": {"headlab": "0.7", "torch": "2.13.0"},
}


class Read(HTMLParser):
    """An HTML file as a browser without script reads it. Asserts that every element is closed in its turn."""

    def __init__(self, data: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(data.decode("utf-8"))
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        """All that is written, and what the pointer shows."""
        return "\n".join(self.words)

    def titles(self) -> list[str]:
        return [
            words
            for words in self.words
            if re.match(r"(decoder |cross )?layer \d+, head \d+: ", words)
        ]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def keep(store: Store, record: HeadScores | Curve | Report) -> str:
    run = store.run(record.spec)
    run.finish(record, CREATED)
    return run.key


def scores(
    language: str = "de", method: str = "shapley", fingerprint: str = "0" * 64
) -> HeadScores:
    return cached_scores.made_up(language, method, fingerprint)


def read(*records: object) -> Read:
    return Read(
        build.html_of_document(
            document([Item(record, f"key {at}") for at, record in enumerate(records)])
        )
    )


# What a word names.


def test_a_key_its_beginning_and_its_folder_name_the_same_run_once(store):
    key = keep(store, scores())
    (item,) = find_results([key, key[:6], str(store.root / key)], store)
    assert item.key == key
    assert item.meta["created"] == CREATED["created"]


def test_every_kind_of_run_is_found(store):
    keys = [
        keep(store, scores()),
        keep(store, made_curve()),
        keep(store, cached_reports.made_up("heads")),
        synthetic_gates.keep(store.root, synthetic_gates.made_gates()),
    ]
    kinds = [type(item.record).__name__ for item in find_results(keys, store)]
    assert kinds == ["HeadScores", "Curve", "Report", "LearnedGates"]


def test_a_beginning_of_two_keys_is_refused_and_names_both(store):
    one, other = ("abcd" + letter * 60 for letter in "01")
    for name in (one, other):
        (store.root / name).mkdir(parents=True)
    with raises("report.key_ambiguous", one[:12], other[:12]):
        find_results(["abcd"], store)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("ab", ("report.key_too_short", "'ab'")),
        ("abcdef", ("report.key_unknown", "abcdef")),
        ("nowhere.json", ("report.unknown", "nowhere.json")),
        ("", ("report.unknown", "''")),
        ("\ud800", ("report.unknown",)),
    ],
)
def test_what_names_nothing_is_a_sentence(store, word, expected):
    with raises(*expected):
        find_results([word], store)


def test_a_run_that_is_not_finished_or_holds_answers_is_a_sentence(store):
    store.run(scores().spec).open()
    with raises("report.run_unfinished"):
        find_results([store.run(scores().spec).key], store)
    answers = store.run({**scores().spec, "kind": "answers"})
    answers.open()
    with raises("report.kind_unknown", "answers"):
        find_results([answers.key], store)


def test_a_torn_run_is_a_sentence(store):
    key = keep(store, scores())
    (store.root / key / "result.npz").write_bytes(b"PK torn")
    with raises("arrays.torn"):
        find_results([key], store)


def test_reports_are_found_in_every_json_that_headlab_writes(store, tmp_path):
    one, two = (cached_reports.made_up(name).to_json() for name in ("heads", "gap"))
    files = {
        "plain.json": one,
        "step.json": {"command": "headlab reproduce held --data DIR", **one},
        "whole.json": {
            "command": "c",
            "plan": {"dev": 1},
            "reports": {"xnli": {"heads": one, "gap": two}},
        },
        "roles.json": {"heads": [], "reports": {"treebank": one}},
        "voita.json": {"command": "c", "summary": one, "reports": {"a-de": two}},
        "front.json": {"mask": scores().mask("bottom", k=3).to_json(), "report": one},
    }
    for name, value in files.items():
        (tmp_path / name).write_text(json.dumps(value), encoding="utf-8")
    found = {name: find_results([str(tmp_path / name)], store) for name in files}
    assert {name: len(items) for name, items in found.items()} == {
        "plain.json": 1,
        "step.json": 1,
        "whole.json": 2,
        "roles.json": 1,
        "voita.json": 2,
        "front.json": 2,
    }
    assert found["step.json"][0].command == "headlab reproduce held --data DIR"
    assert [item.key for item in found["whole.json"]] == [
        "whole.json: reports: xnli: heads",
        "whole.json: reports: xnli: gap",
    ]


def test_a_folder_with_a_report_is_read(store, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text(
        json.dumps(cached_reports.made_up("gap").to_json()), encoding="utf-8"
    )
    (item,) = find_results([str(tmp_path / "out")], store)
    assert isinstance(item.record, Report)
    with raises("report.folder_empty"):
        find_results([str(tmp_path)], store)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "json.invalid"),
        ("[]", "report.file_unknown"),
        ("{}", "report.file_unknown"),
        ('{"reports": {"a": {"b": {"c": {"d": {}}}}}}', "report.file_unknown"),
        ('{"tables": 3}', "report.malformed"),
        ('{"format": "headlab-mask"}', "mask.version_unknown"),
    ],
)
def test_a_file_that_is_none_of_headlabs_is_a_sentence(store, tmp_path, text, code):
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    with raises(code, "x.json"):
        find_results([str(tmp_path / "x.json")], store)


def test_two_masks_of_one_name_are_two_masks(store, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        scores().mask("bottom", k=3 if name == "a" else 4).save(tmp_path / name / "mask.json")
    found = find_results([str(tmp_path / name / "mask.json") for name in "ab"], store)
    assert [len(item.record.removed) for item in found if isinstance(item.record, Mask)] == [3, 4]
    assert [(item.key, item.file) for item in found] == [
        ("a/mask.json", "a/mask.json"),
        ("b/mask.json", "b/mask.json"),
    ]


def test_files_of_one_name_are_told_apart_by_as_much_of_their_paths_as_it_takes(store, tmp_path):
    places = ["x/de/front.json", "y/de/front.json", "x/th/front.json", "only.json"]
    for at, place in enumerate(places):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        value = {"mask": scores().mask("bottom", k=at + 1).to_json()}
        (tmp_path / place).write_text(json.dumps(value), encoding="utf-8")
    found = find_results([str(tmp_path / place) for place in places], store)
    assert [item.key for item in found] == [
        "x/de/front.json: mask",
        "y/de/front.json: mask",
        "th/front.json: mask",
        "only.json: mask",
    ]


def test_a_result_that_lies_in_several_places_is_there_once(store, tmp_path):
    report = cached_reports.made_up("heads")
    key = keep(store, report)
    # most came from the cache
    again = replace(report, example_forwards=report.example_forwards + 7, seconds=0.5)
    mask = scores().mask("bottom", k=3)
    files = {
        "a/report.json": again.to_json(),
        "front.json": {"mask": mask.to_json(), "report": report.to_json()},
        "mask.json": {**mask.to_json(), "created": "2026-11-22T01:00:00+00:00"},
    }
    for name, value in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(value), encoding="utf-8")
    words = [key, str(tmp_path / "a"), str(tmp_path / "front.json"), str(tmp_path / "mask.json")]
    assert [type(item.record) for item in find_results(words, store)] == [Report, Mask]
    other = {**report.to_json(), "notes": ["Of another machine."]}
    (tmp_path / "other.json").write_text(json.dumps(other), encoding="utf-8")
    assert len(find_results([key, str(tmp_path / "other.json")], store)) == 2


# What is shown.


def test_every_heads_value_interval_and_adjusted_p_is_in_the_table_and_the_map():
    s = scores()
    found = read(s)
    adjusted = holm(s.p_values)
    for at, head in enumerate(s.grid.heads):
        value, low, high = (f"{100 * part[at]:+.3f}" for part in (s.values, s.low, s.high))
        row = [
            "encoder",
            str(head.layer),
            str(head.head),
            str(s.ranks[at]),
            value,
            low,
            high,
            "2,048",
        ]
        assert [*row, f"{s.p_values[at]:.4f}", f"{adjusted[at]:.4f}"] in found.rows
    assert len(found.titles()) == s.grid.size
    assert found.titles()[0].startswith("layer 0, head 0: ")


def test_scores_of_one_method_share_a_section_and_one_scale(store):
    found = document([Item(scores(language), language) for language in ("de", "th")])
    (section,) = found.sections
    assert [made.key for made in section.made] == ["de", "th"]
    assert section.again.lines == (
        "headlab score --model e5-small-intents --task intents --languages de,th --method shapley",
    )
    summary = section.tables[0]
    assert isinstance(summary, Table)
    assert summary.column("harmful") == [
        int(scores(language).harmful.sum()) for language in ("de", "th")
    ]


def test_scores_without_intervals_say_so_and_have_no_columns_for_them():
    found = read(scores(method="random"))
    assert "have no intervals" in found.text
    assert not any("low" in row or "p (Holm)" in row for row in found.rows)


def test_sizes_have_intervals_and_no_signs():
    found = read(scores(method="gradient"))
    assert "Intervals, each at 95%, cover the sampling of the examples." in found.text
    assert "excludes 0" not in found.text
    assert not any("p (Holm)" in row or "helpful" in row for row in found.rows)


def test_two_models_are_told_apart_by_name_and_fingerprint():
    found = read(scores(), scores(fingerprint="1" * 64), scores("th"))
    assert "Results of 2 models are here." in found.text
    assert found.text.count("0" * 12) >= 2
    assert found.text.count("1" * 12) >= 2
    sections = document([Item(scores(), "a"), Item(scores(fingerprint="1" * 64), "b")]).sections
    assert [section.model[1][0] for section in sections] == ["0", "1"]


def test_a_curve_has_its_points_its_order_and_its_caution():
    curve = replace(made_curve(), caution="ordered on test too")
    found = read(curve)
    assert "ordered on test too" in found.text
    for at in range(len(curve.removed)):
        numbers = (curve.accuracy[at], curve.difference[at], curve.low[at], curve.high[at])
        shown = [
            f"{100 * n:{form}}".replace("-0.0", "+0.0")
            for n, form in zip(numbers, (".1f", *["+.1f"] * 3), strict=True)
        ]
        assert [str(curve.removed[at]), *shown, f"{curve.p_values[at]:.4f}"] in found.rows
    first = curve.grid.heads[int(curve.order[0])]
    assert f"layer {first.layer}, head {first.head}: leaves as number 1" in found.text


def test_reported_06_the_report_says_what_was_cut_and_which_words_have_no_answer():
    omitted = Omissions(512, 3, 128, {WITHOUT_TOKEN: 2, BEYOND_LIMIT: 190})
    one = scores()
    figure = {"accuracy": 0.7, "n": 900, **omitted.to_json()}
    mask = one.mask("bottom", k=2)
    mask = replace(
        mask,
        chosen=mask.chosen | {"evaluated": {"dev": {"task": "slots", "languages": {"de": figure}}}},
    )
    for record in (replace(one, omissions=omitted), replace(made_curve(), omissions=omitted), mask):
        assert omitted.sentence in " ".join(read(record).text.split())
    for record in (one, made_curve()):
        assert "not counted" not in read(record).text


def test_curves_alike_are_told_apart_by_their_seed():
    (section,) = document([Item(made_curve(seed=seed), f"{seed}") for seed in (0, 1)]).sections
    assert [made.title for made in section.made] == ["shapley, seed 0", "shapley, seed 1"]


def test_gates_of_several_weights_are_one_sweep_by_rising_weight():
    gates = [
        synthetic_gates.made_gates(weight=weight, grid=synthetic_gates.THREE)
        for weight in (0.1, 0.01)
    ]
    (section,) = document([Item(g, str(g.weight)) for g in gates]).sections
    assert [made.key for made in section.made] == ["0.01", "0.1"]
    assert section.again.lines[0].endswith("--language de --weight 0.01 -o steps=100 -o history=6")
    found = read(*gates)
    assert "Made up for a test." in found.text
    assert sum(words.startswith("cross layer") for words in found.titles()) == 2 * 8
    kept = [str(int(g.kept.sum())) for g in gates]
    assert all(
        any(row[:2] == [f"{g.weight:g}", k] for row in found.rows)
        for g, k in zip(gates, kept, strict=True)
    )


def test_gates_that_only_some_heads_have_leave_the_others_blank():
    found = read(synthetic_gates.made_gates(grid=synthetic_gates.THREE, stacks="cross"))
    assert sum(words.endswith("no gate") for words in found.titles()) == 16


def test_a_mask_shows_what_it_keeps_what_it_is_worth_and_how_it_is_used():
    mask = scores().mask("bottom", k=2)
    worth = {
        "accuracy": 0.754,
        "n": 1000,
        "baseline": 0.707,
        "difference": 0.047,
        "low": 0.022,
        "high": 0.073,
        "p": 0.001,
    }
    chosen = {**mask.chosen, "evaluated": {"test": {"task": "intents", "languages": {"de": worth}}}}
    found = read(replace(mask, chosen=chosen))
    assert sum(words.endswith(": removed") for words in found.titles()) == 2
    assert ["de", "1,000", "75.4", "70.7", "+4.7", "+2.2", "+7.3", "0.0010"] in found.rows
    assert "headlab evaluate --model e5-small-intents --mask" in " ".join(found.text.split())
    bare = read(
        Mask(
            HeadGrid((Stack("encoder", (2, 0)), Stack("decoder", (1,)))),
            np.array([True, False, False]),
        )
    )
    assert "carries no accuracies" in bare.text
    assert "more than half" in bare.text
    assert "MODEL" in bare.text


def test_a_reports_tables_and_notes_are_there_as_they_are():
    report = cached_reports.made_up("heads")
    found = read(report)
    assert "Made up for a test." in found.text
    assert "A note." in found.text
    assert ["th", "encoder", "3", "7", "-2.50", "–"] in found.rows
    # these tables lack what figures are drawn from
    assert "The figures are left out: " in found.text


def test_reported_24_a_report_says_what_parts_of_letters_are():
    def examples(looks_at: str) -> Report:
        columns = ("role", "sentence", "word", "looks at", "should look at")
        row = ("previous token", "游戏", "▁a", looks_at, None)
        tables = (Table("role-examples", "Examples", columns, ("",) * len(columns), (row,)),)
        return replace(cached_reports.made_up("heads"), tables=tables)

    assert "戏[1/2]: a letter that takes several tokens" in read(examples("戏[1/2]")).text
    assert "a letter that takes several tokens" not in read(examples("戏")).text


def test_where_it_comes_from_names_model_data_options_versions_and_key():
    s = scores()
    found = Read(build.html_of_document(document([Item(s, "the key", CREATED)])))
    for words in (
        "0" * 64,
        "made-up",
        "512",
        "option samples",
        "headlab 0.7, torch 2.13.0",
        "the key",
        s.values_sha256(),
    ):
        assert words in found.text, words


def test_long_tables_are_folded_and_cut_with_a_note():
    rows = tuple((at, float(at), at % 3 == 0) for at in range(900))
    table = Table("long", "Long", ("a", "b", "has it"), ("d", ".1f", ""), rows)
    found = build.printed(table)
    assert found.folded
    assert len(found.rows) == 300
    assert found.notes == ("300 of 900 rows: those that have it; all are in the result itself.",)
    plain = replace(table, columns=("a", "b", "c"))
    assert build.printed(plain).notes == (
        "The first 400 of 900 rows; all are in the result itself.",
    )


# The file.


def test_the_file_asks_for_nothing_and_runs_nothing():
    found = read(
        scores(),
        made_curve(),
        synthetic_gates.made_gates(),
        cached_reports.made_up("heads"),
        scores().mask("harmful"),
    )
    tags = {tag for tag, _ in found.tags}
    assert not tags & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "foreignobject",
        "use",
        "a ",
    }
    for tag, attributes in found.tags:
        assert not [
            name
            for name in attributes
            if name.startswith("on") or name in ("src", "xlink:href", "srcset")
        ], tag
        assert str(attributes.get("href", "#")).startswith("#")
    policy = next(a["content"] for tag, a in found.tags if tag == "meta" and a.get("http-equiv"))
    assert str(policy).startswith("default-src 'none'")
    assert not re.search(r"url\(|@import|expression", "".join(found.words))


def test_a_link_of_the_contents_leads_to_its_section():
    found = read(scores(), made_curve())
    links = [str(a["href"])[1:] for tag, a in found.tags if tag == "a"]
    assert links == [a["id"] for tag, a in found.tags if tag == "section"]


def test_what_is_folded_is_printed_and_headers_are_repeated():
    css = build.file_text("report.css")
    paper = css[css.index("@media print") :]
    assert "details::details-content { content-visibility: visible" in paper
    assert "table-header-group" in paper
    assert "@media screen and (prefers-color-scheme: dark)" in css  # so paper is light


def test_a_file_that_would_be_too_large_has_shorter_tables_and_then_is_refused(monkeypatch):
    rows = tuple((f"{at}" * 20, at) for at in range(400))
    report = Report("mine", (Table("t", "T", ("a", "b"), ("", "d"), rows),))
    whole = len(build.html_of_document(document([Item(report, "k")])))
    monkeypatch.setattr(build, "LIMIT", whole - 1)
    found = Read(build.html_of_document(document([Item(report, "k")])))
    assert "The first 100 of 400 rows" in found.text
    monkeypatch.setattr(build, "LIMIT", 10)
    with raises("report.too_large"):
        build.html_of_document(document([Item(report, "k")]))


# The command.


def test_the_command_writes_the_file_and_says_what_is_in_it(store, tmp_path, capsys):
    key = keep(store, scores())
    out = tmp_path / "deep" / "report.html"
    told = [
        "report",
        key[:8],
        "--out",
        str(out),
        "--cache",
        str(store.root),
        "--title",
        "Mine & yours",
    ]
    assert main([*told, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["bytes"] == out.stat().st_size
    assert printed["sections"][0]["runs"] == [key]
    assert "Mine & yours" in Read(out.read_bytes()).text
    assert main(told) == 0
    assert "scores of heads" in capsys.readouterr().out


def test_the_command_ends_with_a_sentence_and_leaves_the_old_file(store, tmp_path, capsys):
    out = tmp_path / "report.html"
    out.write_text("old", encoding="utf-8")
    assert main(["report", "abcdef", "--out", str(out), "--cache", str(store.root)]) == 2
    assert capsys.readouterr().err.startswith("headlab: no run in ")
    assert out.read_text(encoding="utf-8") == "old"
    key = keep(store, scores())
    assert main(["report", key, "--out", str(tmp_path), "--cache", str(store.root)]) == 2
    assert "a folder has that name" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["mask", "{}", "not empty", b"\x89PNG\r\n"])
def test_a_report_takes_no_other_files_place(store, tmp_path, capsys, content):
    given = tmp_path / "mask.json"
    out = tmp_path / "out"
    scores().mask("bottom", k=3).save(given)
    out = given if content == "mask" else out
    if out != given:
        out.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = out.read_bytes()
    assert main(["report", str(given), "--out", str(out), "--cache", str(store.root)]) == 2
    assert (
        "exists and is not an HTML file, so it is not a report; give --out another name"
        in capsys.readouterr().err
    )
    assert out.read_bytes() == before


def test_a_report_takes_an_older_ones_place(store, tmp_path, capsys):
    given = tmp_path / "mask.json"
    out = tmp_path / "report.html"
    scores().mask("bottom", k=3).save(given)
    for before in (b"", b"\xef\xbb\xbf\n<!doctype html><p>old"):
        out.write_bytes(before)
        assert main(["report", str(given), "--out", str(out), "--cache", str(store.root)]) == 0
    first = out.read_bytes()
    assert (
        main(
            ["report", str(given), "--out", str(out), "--cache", str(store.root), "--title", "Anew"]
        )
        == 0
    )
    assert out.read_bytes() != first


def test_how_many_examples_ordered_a_curve_is_looked_up(store):
    key = keep(store, scores())
    assert ordered_on(store)(key) == 512
    assert ordered_on(store)("f" * 64) is None
    assert ordered_on(store)("../../etc") is None


# The Jobs page.


def test_a_finished_jobs_results_can_be_downloaded_as_a_report(store, monkeypatch):
    monkeypatch.setenv("HEADLAB_CACHE", str(store.root))
    key = keep(store, scores())
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(
        results.st,
        "download_button",
        lambda label, data, name, *_, **more: asked.append(locals()),
    )
    offer_report(job(7, "done"), [key, "f" * 64])
    (button,) = asked
    assert (button["label"], button["name"]) == ("Report (HTML)", "headlab-job-7.html")
    assert key in Read(button["data"]()).text
    offer_report(job(8, "done"), ["f" * 64])  # kept in the cache of a worker elsewhere
    assert len(asked) == 1


def test_the_jobs_page_offers_the_report(store, monkeypatch):
    monkeypatch.setenv("HEADLAB_CACHE", str(store.root))
    done = job(1, "done", kind="curve", result={"keys": [keep(store, made_curve())]})

    def show(job):  # run by itself, so it names no type
        from headlab.dashboard.pages.jobs.results import draw_results

        draw_results(job)

    app = AppTest.from_function(show, kwargs={"job": done}, default_timeout=30).run()
    assert not app.exception
    assert [button.label for button in app.get("download_button")][-1] == "Report (HTML)"
