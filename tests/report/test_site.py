"""A site of results: what its pages hold, what it never replaces, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.cached_reports import keep_report, made_report
from support.cached_scores import GRID, HARMFUL, made_scores
from support.expected_errors import raises
from support.synthetic_roles import made_roles

from headlab.cli.run import FAILED, OK, main
from headlab.core import HeadGrid, Stack
from headlab.report.site.build import (
    PAGES,
    head_link,
    head_name,
    inline_json,
    script_hash,
    write_site,
)
from headlab.results import Store

PAGE_NAMES = {"index.html", "scatter.html", "head.html", "report.html"}


@pytest.fixture
def store(tmp_path) -> Store:
    """Scores of one model by two methods in two languages, and a report on its roles."""
    store = Store(tmp_path / "cache")
    for method in ("shapley", "confidence"):
        for language in ("de", "th"):
            keep(store, made_scores(language, method))
    keep_report(store.root, made_roles("de", grid=GRID))
    return store


def keep(store, scores) -> str:
    run = store.run(scores.spec)
    run.finish(scores, {"created": "2026-11-21T05:00:00+00:00", "versions": {}})
    return run.key


def keys_of(store: Store) -> list[str]:
    return sorted(folder.name for folder in store.folders())


def data_of(page: Path) -> dict:
    """What a page gives its scripts."""
    text = page.read_text("utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_a_site_has_maps_scatter_heads_and_the_report(store, tmp_path):
    folder = tmp_path / "site"
    report, bytes_by_page = write_site(keys_of(store), folder, store)
    assert set(bytes_by_page) == PAGE_NAMES
    assert {path.name for path in folder.iterdir()} == {*PAGE_NAMES, "site.json"}
    assert len(report.sections) == 3
    record = json.loads((folder / "site.json").read_text())
    assert sorted(record["runs"]) == keys_of(store)
    assert set(record["files"]) == PAGE_NAMES
    maps = (folder / "index.html").read_text("utf-8")
    assert "<script" not in maps
    assert maps.count('href="head.html#model=e5-small-intents&amp;head=3.7"') == 4
    assert "Shapley value (TMAB) on intents: de, th" in maps


def test_the_pages_hold_every_value_with_its_interval_and_roles(store, tmp_path):
    write_site(keys_of(store), tmp_path / "site", store)
    (model,) = data_of(tmp_path / "site" / "head.html")["models"]
    assert data_of(tmp_path / "site" / "scatter.html")["models"] == [model]
    assert model["heads"][HARMFUL] == "3.7"
    measures = {(measure["name"], measure["language"]): measure for measure in model["measures"]}
    scores = made_scores("de", "shapley")
    value = measures["value by shapley", "de"]
    np.testing.assert_allclose(value["values"], 100 * scores.values, rtol=1e-5)
    np.testing.assert_allclose(value["low"], 100 * scores.low, rtol=1e-5)
    assert value["texts"][HARMFUL] == "−5.00 [−5.60, −4.40] points"
    assert measures["layer", ""]["values"][HARMFUL] == 3
    assert measures["attention: entropy", "de"]["unit"] == "nats"
    groupings = {grouping["name"]: grouping["groups"] for grouping in model["groupings"]}
    assert set(groupings) == {
        "sign: value by shapley, de",
        "sign: value by shapley, th",
        "role, de",
        "none",
    }
    for groups in groupings.values():
        assert sorted(head for group in groups for head in group["heads"]) == list(range(GRID.size))
    assert model["roles"][0]["roles"][0][0].startswith("position −1, ")


def test_results_of_one_method_are_told_apart_by_what_sets_them_apart(store, tmp_path):
    scores = made_scores("de", "shapley")
    full = dataclasses.replace(
        scores, estimand="shapley", spec={**scores.spec, "seed": 1}, values=scores.values / 2
    )
    keep(store, full)
    write_site(keys_of(store), tmp_path / "site", store)
    (model,) = data_of(tmp_path / "site" / "head.html")["models"]
    names = {measure["name"] for measure in model["measures"] if measure["language"] == "de"}
    assert f"value by shapley ({scores.estimand})" in names
    assert "value by shapley (shapley)" in names


def test_no_page_asks_for_anything_and_only_its_own_script_may_run(store, tmp_path):
    write_site(keys_of(store), tmp_path / "site", store)
    for page in PAGES:
        text = (tmp_path / "site" / page.file).read_text("utf-8")
        assert "http://" not in text.replace("http://www.w3.org/", "")
        assert "https://" not in text
        policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
        assert policy.startswith("default-src 'none'")
        scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
        hashes = [f"'sha256-{script_hash(script)}'" for script in scripts]
        expected = " ".join(hashes) or "&#39;none&#39;"
        assert f"script-src {expected};" in policy.replace("&#39;", "'" if hashes else "&#39;")


def test_no_text_leaves_the_script_that_holds_the_data(store, tmp_path):
    name = "</script><img src=x onerror=alert(1)>\u2028&amp;"
    keep(store, made_scores("fr", "shapley", "1" * 64, name))
    folder = tmp_path / "site"
    write_site(keys_of(store), folder, store)
    for page in PAGES:
        text = (folder / page.file).read_text("utf-8")
        assert "<img" not in text
    assert name in [model["name"] for model in data_of(folder / "head.html")["models"]]
    assert json.loads(inline_json({"a": name})) == {"a": name}


def test_a_name_that_no_page_can_hold_is_the_same_in_links_and_data(store, tmp_path):
    keep(store, made_scores("fr", "shapley", "1" * 64, "odd\x85name"))
    write_site(keys_of(store), tmp_path / "site", store)
    models = data_of(tmp_path / "site" / "head.html")["models"]
    (name,) = [model["name"] for model in models if model["name"].startswith("odd")]
    assert name == "odd\N{REPLACEMENT CHARACTER}name"
    link = head_link(name, GRID.heads[0], GRID).replace("&", "&amp;")
    assert f'href="{link}"' in (tmp_path / "site" / "index.html").read_text("utf-8")


def test_two_results_of_one_language_have_names_of_their_own(store, tmp_path):
    scores = made_scores("de", "shapley")
    keep(store, dataclasses.replace(scores, spec={**scores.spec, "seed": 1}))
    write_site(keys_of(store), tmp_path / "site", store)
    (model,) = data_of(tmp_path / "site" / "head.html")["models"]
    names = [measure["name"] for measure in model["measures"]]
    assert "value by shapley, result 2" in names
    assert "<bdi>de, result 2</bdi>" in (tmp_path / "site" / "index.html").read_text("utf-8")


def test_heads_of_several_stacks_are_named_with_their_stack():
    grid = HeadGrid((Stack("encoder", (2,)), Stack("decoder", (2,))))
    assert [head_name(head, grid) for head in grid.heads] == [
        "encoder.0.0",
        "encoder.0.1",
        "decoder.0.0",
        "decoder.0.1",
    ]
    assert head_link("a b", grid.heads[2], grid) == "head.html#model=a+b&head=decoder.0.0"


def test_a_site_replaces_itself_but_nothing_else(store, tmp_path):
    folder = tmp_path / "site"
    keys = keys_of(store)
    write_site(keys, folder, store, title="First")
    write_site(keys[:1], folder, store, title="Second")
    assert "Second" in (folder / "index.html").read_text("utf-8")
    (folder / "index.html").write_text("mine")
    with raises("output.files_changed", "index.html", "--site"):
        write_site(keys, folder, store)
    assert (folder / "index.html").read_text() == "mine"
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    with raises("output.not_replaceable", "--site"):
        write_site(keys, other, store)
    assert (other / "thesis.tex").read_text() == "years of work"


def test_results_without_scores_make_no_site(store, tmp_path):
    key = keep_report(store.root, made_report("targeted"))
    with raises("report.site_without_scores"):
        write_site([key], tmp_path / "site", store)
    assert not (tmp_path / "site").exists()


def test_a_full_disk_leaves_nothing_half_written(store, tmp_path, monkeypatch):
    def no_space(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", no_space)
    with raises("file.no_space", "site"):
        write_site(keys_of(store), tmp_path / "site", store)
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_the_command_writes_a_site_a_report_or_both(store, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    key = keys_of(store)[0]
    arguments = ["report", key, "--cache", str(store.root)]
    assert main([*arguments, "--site", "site", "--json"]) == OK
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["pages"]) == PAGE_NAMES
    assert printed["site"] == "site"
    assert not Path("report.html").exists()
    assert main([*arguments, "--site", "site", "--out", "one.html"]) == OK
    assert "4 pages" in capsys.readouterr().out
    assert Path("one.html").exists()
    for refused in (["--site", "one.html"], ["--site", "site", "--out", "site/report.html"]):
        before = Path("site", "report.html").read_bytes()
        assert main([*arguments, *refused]) == FAILED
        assert "--" in capsys.readouterr().err
        assert Path("site", "report.html").read_bytes() == before


def test_two_reports_of_one_language_are_both_there(store, tmp_path):
    keep_report(store.root, made_roles("de", name="intents", grid=GRID), 2)
    write_site(keys_of(store), tmp_path / "site", store)
    (model,) = data_of(tmp_path / "site" / "head.html")["models"]
    assert {roles["language"] for roles in model["roles"]} == {"de (treebank)", "de (intents)"}
    measures = [measure for measure in model["measures"] if measure["name"] == "attention: entropy"]
    assert {measure["language"] for measure in measures} == {"de (treebank)", "de (intents)"}


def test_every_page_leads_to_the_others_and_links_of_maps_say_what_they_are(store, tmp_path):
    write_site(keys_of(store), tmp_path / "site", store)
    for name in PAGE_NAMES:
        text = (tmp_path / "site" / name).read_text("utf-8")
        assert text.count(f'<a href="{name}" aria-current="page">') == 1
        for other in PAGE_NAMES - {name}:
            assert f'<a href="{other}">' in text
    maps = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert 'aria-label="layer 3, head 7: −5.00 points' in maps
