"""`headlab report`: it finds the results that a user names and shows their numbers in a file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest
from support import cached_reports, cached_scores, synthetic_gates
from support.expected_errors import raises
from support.fake_client import job_row
from support.html_pages import HtmlPage
from support.synthetic_curves import made_curve

from headlab.cli.run import main
from headlab.core import BEYOND_LIMIT, WITHOUT_TOKEN, HeadGrid, Omissions, Report, Stack, Table
from headlab.dashboard.pages.jobs import results
from headlab.dashboard.pages.jobs.results import offer_report
from headlab.masks import Mask
from headlab.report import build
from headlab.report.build import document, find_results, ordered_on
from headlab.report.parts import Item
from headlab.results import Curve, HeadScores, Store
from headlab.stats import holm

META = {
    "created": "2026-11-22T01:00:00+00:00",
    "versions": {"headlab": "0.7", "torch": "2.13.0"},
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def keep(store: Store, record: HeadScores | Curve | Report) -> str:
    """Keep a record in a store; gives its key."""
    stored_run = store.run(record.spec)
    stored_run.finish(record, META)
    return stored_run.key


def scores(
    language: str = "de", method: str = "shapley", fingerprint: str = "0" * 64
) -> HeadScores:
    return cached_scores.made_scores(language, method, fingerprint)


def read(*records: object) -> HtmlPage:
    return HtmlPage(
        build.html_of_document(
            document([Item(record, f"key {number}") for number, record in enumerate(records)])
        )
    )


# What the words of the command name.


def test_a_key_its_beginning_and_its_folder_name_one_run(store):
    key = keep(store, scores())
    (item,) = find_results([key, key[:6], str(store.root / key)], store)
    assert item.key == key
    assert item.meta["created"] == META["created"]


def test_every_kind_of_run_is_found(store):
    keys = [
        keep(store, scores()),
        keep(store, made_curve()),
        keep(store, cached_reports.made_report("heads")),
        synthetic_gates.keep_gates(store.root, synthetic_gates.made_gates()),
    ]
    kinds = [type(item.record).__name__ for item in find_results(keys, store)]
    assert kinds == ["HeadScores", "Curve", "Report", "LearnedGates"]


def test_a_beginning_of_two_keys_is_refused_and_names_both(store):
    first_key = "abcd" + "0" * 60
    second_key = "abcd" + "1" * 60
    for name in (first_key, second_key):
        (store.root / name).mkdir(parents=True)
    with raises("report.key_ambiguous", first_key[:12], second_key[:12]):
        find_results(["abcd"], store)


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("ab", ("report.key_too_short", "'ab'")),
        ("abcdef", ("report.key_unknown", "abcdef")),
        ("nowhere.json", ("report.unknown", "nowhere.json")),
        ("", ("report.unknown", "''")),
        ("\ud800", ("report.unknown",)),
    ],
)
def test_a_word_that_names_nothing_is_a_sentence(store, word, error):
    code, *values = error
    with raises(code, *values):
        find_results([word], store)


def test_a_run_that_is_not_finished_or_holds_answers_is_a_sentence(store):
    store.run(scores().spec).make_folder()
    with raises("report.run_unfinished"):
        find_results([store.run(scores().spec).key], store)
    answers = store.run({**scores().spec, "kind": "answers"})
    answers.make_folder()
    with raises("report.kind_unknown", "answers"):
        find_results([answers.key], store)


def test_a_torn_run_is_a_sentence(store):
    key = keep(store, scores())
    (store.root / key / "result.npz").write_bytes(b"PK torn")
    with raises("arrays.torn"):
        find_results([key], store)


def test_reports_are_found_in_every_json_that_headlab_writes(store, tmp_path):
    heads_report = cached_reports.made_report("heads").to_json()
    gap_report = cached_reports.made_report("gap").to_json()
    files = {
        "plain.json": heads_report,
        "step.json": {"command": "headlab reproduce held --data DIR", **heads_report},
        "whole.json": {
            "command": "c",
            "plan": {"dev": 1},
            "reports": {"xnli": {"heads": heads_report, "gap": gap_report}},
        },
        "roles.json": {"heads": [], "reports": {"treebank": heads_report}},
        "voita.json": {"command": "c", "summary": heads_report, "reports": {"a-de": gap_report}},
        "front.json": {"mask": scores().mask("bottom", k=3).to_json(), "report": heads_report},
    }
    for name, value in files.items():
        (tmp_path / name).write_text(json.dumps(value), encoding="utf-8")
    items_by_file = {name: find_results([str(tmp_path / name)], store) for name in files}
    item_counts = {name: len(items) for name, items in items_by_file.items()}
    assert item_counts == {
        "plain.json": 1,
        "step.json": 1,
        "whole.json": 2,
        "roles.json": 1,
        "voita.json": 2,
        "front.json": 2,
    }
    assert items_by_file["step.json"][0].command == "headlab reproduce held --data DIR"
    assert [item.key for item in items_by_file["whole.json"]] == [
        "whole.json: reports: xnli: heads",
        "whole.json: reports: xnli: gap",
    ]


def test_a_folder_with_a_report_is_read(store, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text(
        json.dumps(cached_reports.made_report("gap").to_json()), encoding="utf-8"
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
    for name, removed_count in (("a", 3), ("b", 4)):
        (tmp_path / name).mkdir()
        scores().mask("bottom", k=removed_count).save(tmp_path / name / "mask.json")
    masks = find_results([str(tmp_path / name / "mask.json") for name in "ab"], store)
    assert [len(item.record.removed) for item in masks if isinstance(item.record, Mask)] == [3, 4]
    assert [(item.key, item.file) for item in masks] == [
        ("a/mask.json", "a/mask.json"),
        ("b/mask.json", "b/mask.json"),
    ]


def test_files_of_one_name_are_told_apart_by_the_shortest_ends_of_their_paths(store, tmp_path):
    names = ["x/de/front.json", "y/de/front.json", "x/th/front.json", "only.json"]
    for removed_count, name in enumerate(names, start=1):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        value = {"mask": scores().mask("bottom", k=removed_count).to_json()}
        (tmp_path / name).write_text(json.dumps(value), encoding="utf-8")
    items = find_results([str(tmp_path / name) for name in names], store)
    assert [item.key for item in items] == [
        "x/de/front.json: mask",
        "y/de/front.json: mask",
        "th/front.json: mask",
        "only.json: mask",
    ]


def test_a_result_that_lies_in_several_places_is_there_once(store, tmp_path):
    report = cached_reports.made_report("heads")
    key = keep(store, report)
    # In this run, most scores came from the cache.
    same_report = replace(report, example_forwards=report.example_forwards + 7, seconds=0.5)
    mask = scores().mask("bottom", k=3)
    files = {
        "a/report.json": same_report.to_json(),
        "front.json": {"mask": mask.to_json(), "report": report.to_json()},
        "mask.json": {**mask.to_json(), "created": "2026-11-22T01:00:00+00:00"},
    }
    for name, value in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(value), encoding="utf-8")
    words = [key, str(tmp_path / "a"), str(tmp_path / "front.json"), str(tmp_path / "mask.json")]
    assert [type(item.record) for item in find_results(words, store)] == [Report, Mask]
    other_report = {**report.to_json(), "notes": ["Of another machine."]}
    (tmp_path / "other.json").write_text(json.dumps(other_report), encoding="utf-8")
    assert len(find_results([key, str(tmp_path / "other.json")], store)) == 2


# What the report shows.


def test_every_heads_value_interval_and_adjusted_p_is_in_the_table_and_the_map():
    head_scores = scores()
    page = read(head_scores)
    adjusted_p = holm(head_scores.p_values)
    for index, head in enumerate(head_scores.grid.heads):
        value = f"{100 * head_scores.values[index]:+.3f}"
        low = f"{100 * head_scores.low[index]:+.3f}"
        high = f"{100 * head_scores.high[index]:+.3f}"
        row = [
            "encoder",
            str(head.layer),
            str(head.head),
            str(head_scores.ranks[index]),
            value,
            low,
            high,
            "2,048",
        ]
        assert [*row, f"{head_scores.p_values[index]:.4f}", f"{adjusted_p[index]:.4f}"] in page.rows
    assert len(page.head_titles()) == head_scores.grid.size
    assert page.head_titles()[0].startswith("layer 0, head 0: ")


def test_scores_of_one_method_share_a_section_and_one_scale(store):
    report = document([Item(scores(language), language) for language in ("de", "th")])
    (section,) = report.sections
    assert [result.key for result in section.made] == ["de", "th"]
    assert section.again.lines == (
        "headlab score --model e5-small-intents --task intents --languages de,th --method shapley",
    )
    summary = section.tables[0]
    assert isinstance(summary, Table)
    harmful_counts = [int(scores(language).harmful.sum()) for language in ("de", "th")]
    assert summary.column("harmful") == harmful_counts


def test_scores_without_intervals_say_so_and_have_no_columns_for_them():
    page = read(scores(method="random"))
    assert "have no intervals" in page.text
    assert not any("low" in row or "p (Holm)" in row for row in page.rows)


def test_sizes_have_intervals_and_no_signs():
    page = read(scores(method="gradient"))
    assert "Intervals, each at 95\u00a0%, cover the sampling of the examples." in page.text
    assert "excludes 0" not in page.text
    assert not any("p (Holm)" in row or "helpful" in row for row in page.rows)


def test_two_models_are_told_apart_by_name_and_fingerprint():
    page = read(scores(), scores(fingerprint="1" * 64), scores("th"))
    assert "Results of 2 models are here." in page.text
    assert page.text.count("0" * 12) >= 2
    assert page.text.count("1" * 12) >= 2
    sections = document([Item(scores(), "a"), Item(scores(fingerprint="1" * 64), "b")]).sections
    assert [section.model[1][0] for section in sections] == ["0", "1"]


def test_a_curve_has_its_points_its_order_and_its_caution():
    curve = replace(made_curve(), caution="ordered on test too")
    page = read(curve)
    assert "ordered on test too" in page.text
    for index in range(len(curve.removed)):
        numbers = (
            curve.accuracy[index],
            curve.difference[index],
            curve.low[index],
            curve.high[index],
        )
        formats = (".1f", "+.1f", "+.1f", "+.1f")
        percentages = [
            f"{100 * number:{form}}".replace("-0.0", "+0.0")
            for number, form in zip(numbers, formats, strict=True)
        ]
        assert [
            str(curve.removed[index]),
            *percentages,
            f"{curve.p_values[index]:.4f}",
        ] in page.rows
    first_head = curve.grid.heads[int(curve.order[0])]
    assert f"layer {first_head.layer}, head {first_head.head}: leaves as number 1" in page.text


def test_reported_06_the_report_says_what_was_cut_and_which_words_have_no_answer():
    omissions = Omissions(512, 3, 128, {WITHOUT_TOKEN: 2, BEYOND_LIMIT: 190})
    head_scores = scores()
    figure = {"accuracy": 0.7, "n": 900, **omissions.to_json()}
    mask = head_scores.mask("bottom", k=2)
    mask = replace(
        mask,
        chosen=mask.chosen | {"evaluated": {"dev": {"task": "slots", "languages": {"de": figure}}}},
    )
    for record in (
        replace(head_scores, omissions=omissions),
        replace(made_curve(), omissions=omissions),
        mask,
    ):
        assert omissions.sentence in " ".join(read(record).text.split())
    for record in (head_scores, made_curve()):
        assert "not counted" not in read(record).text


def test_curves_alike_are_told_apart_by_their_seed():
    (section,) = document([Item(made_curve(seed=seed), f"{seed}") for seed in (0, 1)]).sections
    assert [result.title for result in section.made] == ["shapley, seed 0", "shapley, seed 1"]


def test_gates_of_several_weights_are_one_sweep_by_rising_weight():
    sweep = [
        synthetic_gates.made_gates(weight=weight, grid=synthetic_gates.THREE_STACKS)
        for weight in (0.1, 0.01)
    ]
    (section,) = document([Item(gates, str(gates.weight)) for gates in sweep]).sections
    assert [result.key for result in section.made] == ["0.01", "0.1"]
    assert section.again.lines[0].endswith("--language de --weight 0.01 -o steps=100 -o history=6")
    page = read(*sweep)
    assert "Made up for a test." in page.text
    assert sum(title.startswith("cross layer") for title in page.head_titles()) == 2 * 8
    first_cells = [row[:2] for row in page.rows]
    for gates in sweep:
        kept_count = int(gates.kept.sum())
        assert [f"{gates.weight:g}", str(kept_count)] in first_cells


def test_gates_that_only_some_heads_have_leave_the_others_blank():
    page = read(synthetic_gates.made_gates(grid=synthetic_gates.THREE_STACKS, stacks="cross"))
    assert sum(title.endswith("no gate") for title in page.head_titles()) == 16


def test_a_mask_shows_what_it_keeps_what_it_is_worth_and_how_it_is_used():
    mask = scores().mask("bottom", k=2)
    evaluation = {
        "accuracy": 0.754,
        "n": 1000,
        "baseline": 0.707,
        "difference": 0.047,
        "low": 0.022,
        "high": 0.073,
        "p": 0.001,
    }
    provenance = {
        **mask.chosen,
        "evaluated": {"test": {"task": "intents", "languages": {"de": evaluation}}},
    }
    page = read(replace(mask, chosen=provenance))
    assert sum(title.endswith(": removed") for title in page.head_titles()) == 2
    assert ["de", "1,000", "75.4", "70.7", "+4.7", "+2.2", "+7.3", "0.0010"] in page.rows
    assert "headlab evaluate --model e5-small-intents --mask" in " ".join(page.text.split())
    grid = HeadGrid((Stack("encoder", (2, 0)), Stack("decoder", (1,))))
    page_of_bare_mask = read(Mask(grid, np.array([True, False, False])))
    assert "carries no accuracies" in page_of_bare_mask.text
    assert "more than half" in page_of_bare_mask.text
    assert "MODEL" in page_of_bare_mask.text


def test_a_reports_tables_and_notes_are_there_as_they_are():
    report = cached_reports.made_report("heads")
    page = read(report)
    assert "Made up for a test." in page.text
    assert "A note." in page.text
    assert ["th", "encoder", "3", "7", "-2.50", "–"] in page.rows
    # These tables lack the columns that figures are drawn from.
    assert "The figures are left out: " in page.text


def test_reported_24_a_report_says_what_parts_of_letters_are():
    def examples(looks_at: str) -> Report:
        columns = ("role", "sentence", "word", "looks at", "should look at")
        row = ("previous token", "游戏", "▁a", looks_at, None)
        tables = (Table("role-examples", "Examples", columns, ("",) * len(columns), (row,)),)
        return replace(cached_reports.made_report("heads"), tables=tables)

    assert "戏[1/2]: a letter that takes several tokens" in read(examples("戏[1/2]")).text
    assert "a letter that takes several tokens" not in read(examples("戏")).text


def test_where_it_comes_from_names_model_data_options_versions_and_key():
    head_scores = scores()
    page = HtmlPage(build.html_of_document(document([Item(head_scores, "the key", META)])))
    for phrase in (
        "0" * 64,
        "made-up",
        "512",
        "option samples",
        "headlab 0.7, torch 2.13.0",
        "the key",
        head_scores.values_sha256(),
    ):
        assert phrase in page.text, phrase


def test_long_tables_are_folded_and_cut_with_a_note():
    rows = tuple((number, float(number), number % 3 == 0) for number in range(900))
    table = Table("long", "Long", ("a", "b", "has it"), ("d", ".1f", ""), rows)
    printed_table = build.printed(table)
    assert printed_table.folded
    assert len(printed_table.rows) == 300
    assert printed_table.notes == (
        "300 of 900 rows: those that have it; all are in the result itself.",
    )
    plain = replace(table, columns=("a", "b", "c"))
    assert build.printed(plain).notes == (
        "The first 400 of 900 rows; all are in the result itself.",
    )


# The file.


def test_the_file_requests_nothing_and_runs_nothing():
    page = read(
        scores(),
        made_curve(),
        synthetic_gates.made_gates(),
        cached_reports.made_report("heads"),
        scores().mask("harmful"),
    )
    tags = {tag for tag, _ in page.tags}
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
    }
    for tag, attributes in page.tags:
        for name in attributes:
            assert not name.startswith("on"), tag
            assert name not in ("src", "xlink:href", "srcset"), tag
        assert str(attributes.get("href", "#")).startswith("#")
    policies = [
        str(attributes["content"])
        for tag, attributes in page.tags
        if tag == "meta" and attributes.get("http-equiv")
    ]
    assert policies[0].startswith("default-src 'none'")
    assert not re.search(r"url\(|@import|expression", "".join(page.words))


def test_a_link_of_the_contents_leads_to_its_section():
    page = read(scores(), made_curve())
    links = [str(attributes["href"])[1:] for tag, attributes in page.tags if tag == "a"]
    assert links == [attributes["id"] for tag, attributes in page.tags if tag == "section"]


def test_what_is_folded_is_printed_and_headers_are_repeated():
    css = build.template_text("report.css")
    paper = css[css.index("@media print") :]
    assert "details::details-content { content-visibility: visible" in paper
    assert "table-header-group" in paper
    assert "@media screen and (prefers-color-scheme: dark)" in css  # so that paper is light


def test_a_file_that_would_be_too_large_has_shorter_tables_and_then_is_refused(monkeypatch):
    rows = tuple((f"{number}" * 20, number) for number in range(400))
    report = Report("mine", (Table("t", "T", ("a", "b"), ("", "d"), rows),))
    full_size = len(build.html_of_document(document([Item(report, "k")])))
    monkeypatch.setattr(build, "LIMIT", full_size - 1)
    page = HtmlPage(build.html_of_document(document([Item(report, "k")])))
    assert "The first 100 of 400 rows" in page.text
    monkeypatch.setattr(build, "LIMIT", 10)
    with raises("report.too_large"):
        build.html_of_document(document([Item(report, "k")]))


# The command.


def test_the_command_writes_the_file_and_prints_what_is_in_it(store, tmp_path, capsys):
    key = keep(store, scores())
    path = tmp_path / "deep" / "report.html"
    command = ["report", key[:8], "--out", str(path), "--cache", str(store.root)]
    command += ["--title", "Mine & yours"]
    assert main([*command, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["bytes"] == path.stat().st_size
    assert summary["sections"][0]["runs"] == [key]
    assert "Mine & yours" in HtmlPage(path.read_bytes()).text
    assert main(command) == 0
    assert "scores of heads" in capsys.readouterr().out


def test_the_command_ends_with_a_sentence_and_leaves_the_old_file(store, tmp_path, capsys):
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")
    assert main(["report", "abcdef", "--out", str(path), "--cache", str(store.root)]) == 2
    assert capsys.readouterr().err.startswith("headlab: [report.key_unknown] no run in ")
    assert path.read_text(encoding="utf-8") == "old"
    key = keep(store, scores())
    assert main(["report", key, "--out", str(tmp_path), "--cache", str(store.root)]) == 2
    assert "a folder has that name" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["mask", "{}", "not empty", b"\x89PNG\r\n"])
def test_a_report_replaces_no_other_file(store, tmp_path, capsys, content):
    mask_path = tmp_path / "mask.json"
    scores().mask("bottom", k=3).save(mask_path)
    if content == "mask":
        path = mask_path
    else:
        path = tmp_path / "out"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    bytes_before = path.read_bytes()
    assert main(["report", str(mask_path), "--out", str(path), "--cache", str(store.root)]) == 2
    refusal = "exists and is not an HTML file, so it is not a report; give --out another name"
    assert refusal in capsys.readouterr().err
    assert path.read_bytes() == bytes_before


def test_a_report_replaces_an_older_one(store, tmp_path, capsys):
    mask_path = tmp_path / "mask.json"
    path = tmp_path / "report.html"
    scores().mask("bottom", k=3).save(mask_path)
    command = ["report", str(mask_path), "--out", str(path), "--cache", str(store.root)]
    for older_report in (b"", b"\xef\xbb\xbf\n<!doctype html><p>old"):
        path.write_bytes(older_report)
        assert main(command) == 0
    first_report = path.read_bytes()
    assert main([*command, "--title", "Anew"]) == 0
    assert path.read_bytes() != first_report


def test_how_many_examples_ordered_a_curve_is_looked_up(store):
    key = keep(store, scores())
    assert ordered_on(store)(key) == 512
    assert ordered_on(store)("f" * 64) is None
    assert ordered_on(store)("../../etc") is None


# The Jobs page.


def test_a_finished_jobs_results_can_be_downloaded_as_a_report(store, monkeypatch):
    monkeypatch.setenv("HEADLAB_CACHE", str(store.root))
    key = keep(store, scores())
    buttons: list[dict[str, Any]] = []
    monkeypatch.setattr(
        results.st,
        "download_button",
        lambda label, data, name, *_, **options: buttons.append(locals()),
    )
    offer_report(job_row(7, "done"), [key, "f" * 64])
    (button,) = buttons
    assert button["label"] == "Report (HTML)"
    assert button["name"] == "headlab-job-7.html"
    assert key in HtmlPage(button["data"]()).text
    offer_report(job_row(8, "done"), ["f" * 64])  # kept in the cache of a worker elsewhere
    assert len(buttons) == 1


def test_the_jobs_page_offers_the_report(store, monkeypatch):
    monkeypatch.setenv("HEADLAB_CACHE", str(store.root))
    finished_job = job_row(1, "done", kind="curve", result={"keys": [keep(store, made_curve())]})

    def show(job):  # run on its own, so that it cannot name types of this file
        from headlab.dashboard.pages.jobs.results import draw_results

        draw_results(job)

    app = AppTest.from_function(show, kwargs={"job": finished_job}, default_timeout=30).run()
    assert not app.exception
    assert [button.label for button in app.get("download_button")][-1] == "Report (HTML)"
