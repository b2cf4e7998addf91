"""What others wrote into names, notes and files stays text and never becomes markup of the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import cached_reports, cached_scores
from support.expected_errors import raises
from support.html_pages import HtmlPage
from support.synthetic_scores import scores_of

from headlab.core import HeadlabError, Report, Table
from headlab.masks import mask_from_json
from headlab.report import build
from headlab.report.build import document, find_results
from headlab.report.commands import again
from headlab.report.parts import Item, cell
from headlab.results import Store

TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "h3", "bdi", "p", "nav", "ol",
    "li", "a", "span", "main", "section", "details", "summary", "code", "dl", "dt", "dd", "pre", "ul", "div",
    "figure", "figcaption", "table", "thead", "tbody", "tr", "th", "td", "strong", "svg", "g", "rect", "text",
    "path", "circle",
}  # fmt: skip
HOSTILE = (
    "</script><script>alert(1)</script>",
    "</style><svg onload=x>",
    "\"'><img src=x onerror=y>",
    "{{ 7 * 7 }}{% raw %}",
    "\u202etxt.exe",
    "עברית ו-english",
    "a\x00b\x1bc\ud800d\ufffe",
    "]]>&amp;<!--",
    "javascript:alert(1)",
    "https://example.org/x",
)
anything = st.one_of(
    st.sampled_from(HOSTILE), st.text(max_size=12), st.characters(categories=["Cs", "Cc", "Cf"])
)


def report_of(text: str) -> Report:
    table = Table(text, text, (text, "n"), ("", text), ((text, 1.5), (text, 2)), (text,))
    spec = {
        "model": {"name": text, "revision": text, "fingerprint": text}, "task": {"name": text, "language": text},
        "options": {text: text, "deep": {text: [text, None, True]}}, text: text, "command": text,
    }  # fmt: skip
    return Report(text, (table,), (text,), spec)


def shown_text(text: str) -> str:
    """A text as the page shows it."""
    return text.translate(build.REPLACED_CHARACTERS)


def as_lines(text: str) -> str:
    """A text with the line ends that a browser makes of all kinds of line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


@settings(max_examples=25, deadline=None)
@given(anything)
@example("0\r2")
def test_no_text_becomes_markup(text):
    mask = replace(
        scores_of(text, [1, -2]).mask("bottom", k=1), model={"name": text}, chosen={text: text}
    )
    items = [Item(report_of(text), text, {text: text}), Item(mask, text)]
    page = HtmlPage(build.html_of_document(document(items, title=text)))
    assert {tag for tag, _ in page.tags} <= TAGS
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert str(attributes.get("href", "#s")).startswith("#s")
    assert as_lines(shown_text(text)).strip() in as_lines(page.text)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_scores_names_stay_text(text):
    scores = cached_scores.made_scores("de", "shapley")
    spec = {**scores.spec, "model": {"name": text, "revision": "folder", "fingerprint": text}}
    page = HtmlPage(
        build.html_of_document(
            document([Item(replace(scores, spec=spec, language=text, unit=text), text)])
        )
    )
    assert {tag for tag, _ in page.tags} <= TAGS
    assert shown_text(text) in page.text


def test_a_text_that_runs_from_right_to_left_is_isolated():
    data = build.html_of_document(document([Item(report_of("עברית"), "k")])).decode()
    assert data.count("<bdi>עברית</bdi>") >= 4


def test_a_command_with_a_hostile_name_is_one_word_of_the_shell():
    spec = cached_scores.made_scores("de", "shapley").spec | {
        "model": {"name": "x; rm -rf ~ $(id)", "revision": "r", "fingerprint": "f"}
    }
    assert "--model 'x; rm -rf ~ $(id)' --task" in again("score", spec).lines[0]


@pytest.mark.parametrize(
    ("value", "form", "words"),
    [
        (1.5, "1000000000d", "1.5"),
        (1.5, "d", "1.5"),
        (2, "d", "2"),
        (-0.04, "+.1f", "+0.0"),
        (-0.4, ".0f", "0"),
        (10**400, ".2f", str(10**400)),
        ("<b>", "d", "<b>"),
        (None, "d", "–"),
        (True, "d", "yes"),
        (3, "{0}", "3"),
    ],
)
def test_any_format_of_a_file_gives_a_cell(value, form, words):
    assert cell(value, form) == words


json_types = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=12,
)
KEYS = (
    "name",
    "tables",
    "notes",
    "spec",
    "columns",
    "rows",
    "reports",
    "model",
    "task",
    "options",
    "kept",
    "grid",
    "chosen",
)


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(st.sampled_from(KEYS), json_types, max_size=8),
    st.sampled_from(["report", "mask", "whole"]),
)
def test_a_broken_file_is_a_sentence_or_a_page(tmp_path_factory, value, kind):
    """Parts of a valid file are replaced by anything."""
    valid_file = json.loads(json.dumps(report_of("x").to_json()))
    if kind == "mask":
        valid_file = scores_of("de", [1, -2]).mask("bottom", k=1).to_json()
    broken_file = {**valid_file, **value}
    if kind == "whole":
        broken_file = {"reports": {"a": broken_file}}
    text = json.dumps(broken_file)
    path = Path(tmp_path_factory.getbasetemp()) / "broken.json"
    path.write_text(text, encoding="utf-8")
    try:
        items = find_results([str(path)], Store(path.parent / "none"))
    except HeadlabError:  # a sentence; anything else fails the test
        return
    assert {tag for tag, _ in HtmlPage(build.html_of_document(document(items))).tags} <= TAGS


def test_a_files_command_is_passed_on_only_if_it_is_headlabs():
    def printed_lines(command: str) -> tuple[str, ...]:
        (section,) = document([Item(report_of("x"), "k", {}, command)]).sections
        return section.again.lines

    assert printed_lines("headlab reproduce held --data DIR") == (
        "headlab reproduce held --data DIR",
    )
    assert printed_lines("headlab cache; rm -rf ~") == ("headlab 'cache;' rm -rf '~'",)
    assert printed_lines("rm -rf ~") == printed_lines("headlab 'open") == ()


def test_a_spec_that_says_little_gives_a_note_in_place_of_a_command():
    for kind in ("score", "curve", "gates", "report"):
        for spec in (
            {},
            {"model": 3},
            {"method": {"name": "no such"}},
            {"experiment": "heads", "options": []},
        ):
            remake = again(kind, spec)
            assert remake.commands == ()
            assert remake.notes


def test_the_example_mask_is_reported_whatever_its_model_is_called():
    mask = cached_scores.made_scores("de", "shapley").mask("bottom", k=1)
    value = {**mask.to_json(), "model": {"name": "</script>", "fingerprint": "f"}}
    page = HtmlPage(build.html_of_document(document([Item(mask_from_json(value), "mask.json")])))
    assert "--model '</script>'" in " ".join(page.text.split())


@pytest.mark.parametrize("options", ["=1+1", [1], 3])
def test_reported_19_a_report_whose_settings_are_none(tmp_path: Path, options: object) -> None:
    report = cached_reports.made_report("transfer").to_json()
    report["spec"]["options"] = options
    (tmp_path / "report.json").write_text(json.dumps(report))
    with raises("result.spec_incomplete", "options"):
        build.write_report(
            [str(tmp_path / "report.json")], tmp_path / "report.html", Store(tmp_path)
        )


@pytest.mark.parametrize("form", ["d", "no format"])
def test_reported_19_a_number_that_its_column_cannot_format_is_shown_as_it_is(form: str) -> None:
    table = Table("t", "T", ("heads",), (form,), ((2.5,),))
    assert table.shown_cells() == [["2.5"]]
    assert "2.5" in table.markdown()
