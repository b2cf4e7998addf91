"""The documentation as a site: its pages, its gallery, its pages of errors, and the built site."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headlab.cli.run import main
from headlab.core import HeadlabError

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

import docs_diagrams  # noqa: E402 - after the path to it
import docs_errors  # noqa: E402
import docs_gallery  # noqa: E402
import docs_links  # noqa: E402

DOCS = ROOT / "docs"
MAX_SECONDS = 300


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# Pages.


def test_every_document_is_in_the_sites_tree():
    named = set()
    for page in DOCS.glob("**/*.md"):
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```$", text(page), re.M | re.S):
            for line in block.splitlines():
                if line and not line.startswith(":"):
                    named.add((page.parent / f"{line}.md").resolve())
    documents = {page for page in DOCS.glob("**/*.md") if page.name != "findings.md"}
    notes = set(docs_errors.NOTES.glob("*.*.md"))
    assert documents - notes - named == {DOCS / "index.md"}
    assert {page for page in named if not page.exists()} == {DOCS / "gallery" / "index.md"}


def test_pages_ask_no_other_host_for_anything():
    for path in (DOCS / "conf.py", *DOCS.glob("_static/*")):
        assert "://" not in text(path), path.name


# Pages of errors.


def test_every_code_has_a_page_and_every_page_is_of_a_code(tmp_path):
    shutil.copy(docs_errors.NOTES / "index.md", tmp_path)
    docs_errors.write_pages(tmp_path)
    codes = set(docs_errors.messages_by_code())
    assert len(codes) > 700
    assert {path.stem for path in tmp_path.glob("*.md")} == codes | {"index"}
    listed = set(re.findall(r"\]\((\w+\.\w+)\.md\)", text(tmp_path / "index.md")))
    assert listed == codes


def test_every_area_of_codes_is_described_and_leads_to_a_page():
    assert set(docs_errors.AREAS) == set(docs_errors.codes_by_area())
    for area in docs_errors.AREAS.values():
        assert (docs_errors.NOTES / area.page).resolve().exists(), area


def test_a_note_is_of_a_code():
    notes = {path.stem for path in docs_errors.NOTES.glob("*.*.md")}
    assert notes <= set(docs_errors.messages_by_code())


@pytest.mark.parametrize(
    ("wording", "words"),
    [
        ("no head {head}", "no head ⟨head⟩"),
        ("{len(texts)} texts, {', '.join(sorted(names))}", "⟨number of texts⟩ texts, ⟨names⟩"),
        ("{path.name}: {value!r:.60}", "⟨path⟩: ⟨value⟩"),
        ("{type(module).__name__}", "⟨type of module⟩"),
        ("{row['label']}", "⟨label⟩"),
    ],
)
def test_what_is_filled_in_is_named_in_words(wording, words):
    assert docs_errors.in_words(wording) == words


def test_a_refused_command_names_the_page_of_its_error(capsys):
    assert main(["mask", "show", "nowhere.json"]) == 2
    message = capsys.readouterr().err
    (code,) = re.findall(r"^headlab: \[([\w.]+)\] ", message)
    assert code in docs_errors.messages_by_code()


# Diagrams.


def diagrams() -> list[str]:
    found = []
    for page in sorted(DOCS.rglob("*.md")):
        found += docs_diagrams.DIAGRAM.findall(text(page))
    return found


@pytest.mark.parametrize("diagram", diagrams())
def test_a_diagram_of_a_document_is_drawn_with_every_word(diagram):
    drawn = {"title": [], "below": [], "arrow": []}
    shapes = []
    for element in ElementTree.fromstring(docs_diagrams.svg_of(diagram)).iter():
        if element.tag.endswith("text"):
            drawn[element.get("class")].append(element.text)
        shapes.append(element.tag.rpartition("}")[2])
    boxes = re.findall(r'\["(?:<b>)?(.+?)(?:</b>)?<br/>(.+?)"\]', diagram)
    assert len(boxes) >= 10
    assert drawn["title"] == [title for title, _ in boxes]
    assert " ".join(drawn["below"]) == " ".join(below for _, below in boxes)
    assert drawn["arrow"] == re.findall(r"-- (\d+) -->", diagram)
    assert shapes.count("rect") == len(boxes)
    assert shapes.count("path") == len(boxes) - 1
    assert max(map(len, drawn["below"])) <= docs_diagrams.MAX_LETTERS


def test_the_documents_have_diagrams():
    assert len(diagrams()) >= 3


@pytest.mark.parametrize(
    "lines",
    [
        "graph LR\nA --> B",
        'flowchart TD\nA["a"] --> B',
        'flowchart TD\nA["a"]\nB["b"]',
        'flowchart TD\nA["a"] --> B["b"]\nA --> C["c"]',
        'flowchart TD\nA["a"] --> B["b"]\nB --> A',
        'flowchart TD\nA["a"] ==> B["b"]',
        "flowchart TD\nA(a)",
    ],
)
def test_a_diagram_of_another_kind_ends_the_build(lines):
    with pytest.raises(SystemExit, match="diagram"):
        docs_diagrams.svg_of(lines)


def test_a_diagram_is_a_picture_on_the_site_and_lines_in_its_markdown(tmp_path):
    pytest.importorskip("bs4", reason="the packages of `make docs` are not installed")
    import docs_markdown
    import docs_site

    source = 'flowchart TD\n    A["<b>a & b</b><br/>c"] -- 1 --> B["d<br/>e"]'
    page = tmp_path / "a.html"
    page.write_text(f'<article role="main">{docs_diagrams.html_of(source)}</article>')
    assert docs_markdown.markdown(page) == f"```mermaid\n{source}\n```\n"
    assert "```{flow-chart}" in docs_site.with_links_of_the_site(
        f"```mermaid\n{source}\n```\n", "architecture.md", DOCS
    )


# The gallery.


def examples() -> list[Path]:
    return sorted(docs_gallery.EXAMPLES.glob("*.py"))


def test_the_gallery_has_every_example_once():
    assert sorted(docs_gallery.GALLERY_ORDER) == [path.name for path in examples()]
    assert len(examples()) >= 12


@pytest.mark.parametrize("path", examples(), ids=lambda path: path.stem)
def test_an_example_asks_a_question_and_ends_in_a_picture(path):
    source = text(path)
    question = source.splitlines()[1]
    assert source.startswith('"""\n')
    assert question.endswith("?")
    assert source.count("\nchart = ") == 1
    assert "\n# %%\n" in source
    assert max(map(len, source.splitlines())) <= 100


# Links.


def test_links_that_lead_nowhere_are_counted(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top"><a href="#top"><a href="b.html#x"><a href="b.html#y"><a href="c.html">'
        '<a href="https://host/"><img src="d.png"><a href="mailto:x">'
    )
    (tmp_path / "b.html").write_text('<p id="x">')
    (tmp_path / "a.md").write_text("[b](b.html), [no](e.md), `[no](f.md)`\n")
    counts = docs_links.count(tmp_path)
    assert (counts.pages, counts.outside) == (2, 1)
    assert counts.dead == ("a.html: b.html#y", "a.html: c.html", "a.html: d.png", "a.md: e.md")


def test_a_page_becomes_markdown(tmp_path):
    pytest.importorskip("bs4", reason="the packages of `make docs` are not installed")
    import docs_markdown

    page = tmp_path / "a.html"
    page.write_text(
        '<article role="main"><h1>Heads<a class="headerlink" href="#h">¶</a></h1>'
        '<p>One <em>word</em>, <a href="b.html#x">a link</a>.</p>'
        '<div class="highlight-python notranslate"><pre>a = 1\n</pre></div>'
        "<table><tr><th>a</th></tr><tr><td>1|2</td></tr></table>"
        "<ul><li><p>x</p></li><li><p>y</p></li></ul></article>"
    )
    assert docs_markdown.markdown(page) == (
        "# Heads\n\nOne *word*, [a link](b.md#x).\n\n```python\na = 1\n```\n\n"
        "| a |\n| --- |\n| 1\\|2 |\n\n- x\n- y\n"
    )


# The built site.


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built anew."""
    for package in ("sphinx", "furo", "myst_parser", "sphinx_gallery"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install -r requirements-docs.txt")
    command = [sys.executable, str(ROOT / "tools" / "docs_site.py")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return ROOT / "site"


@pytest.mark.soak
def test_the_site_is_built_without_a_warning_or_a_dead_link(site):
    figures = json.loads(text(site / "build.json"))
    assert figures["dead_links"] == 0
    assert figures["gallery_examples"] == len(examples())
    assert figures["docs_seconds"] < MAX_SECONDS
    assert (site / "index.html").exists()
    for code in docs_errors.messages_by_code():
        assert (site / "errors" / f"{code}.html").exists(), code


@pytest.mark.soak
def test_every_page_is_there_as_markdown_and_listed(site):
    import docs_markdown

    listed = set(re.findall(r"\]\(([^)]+)\)", text(site / "llms.txt")))
    for page in docs_markdown.pages(site):
        place = page.relative_to(site).with_suffix(".md")
        assert (site / place).exists(), place
        is_of_a_code = place.parts[0] == "errors" and place.name != "index.md"
        assert is_of_a_code or place.as_posix() in listed or place.name == "sg_execution_times.md"
    for name in docs_gallery.GALLERY_ORDER:
        assert "```" in text(site / "gallery" / f"{Path(name).stem}.md"), name


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.soak
@pytest.mark.browser
@pytest.mark.parametrize(
    "place",
    [
        "index.html",
        "tutorial.html",
        "gallery/index.html",
        "gallery/plot_curve.html",
        "results-held.html",
        "reference/library.html",
        "errors/mask.not_a_mask.html",
        "search.html?q=interval",
    ],
)
def test_a_page_asks_no_other_host_and_has_no_error(site, address, place):
    from playwright.sync_api import sync_playwright

    browsers = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, browsers)), None)
    if path is None:
        pytest.skip("no Chromium on the PATH")
    requests = []
    errors = []
    said = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for width, scheme in ((1440, "light"), (390, "dark")):
            tab = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            tab.on("request", lambda request: requests.append(request.url))
            tab.on("console", lambda message: said.append((message.type, message.text)))
            tab.on("pageerror", lambda error: errors.append(str(error)))
            tab.goto(f"{address}/{place}")
            tab.wait_for_load_state("networkidle")
            wider = tab.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wider <= 0, f"{place} is wider than the screen at {width} by {wider} pixels"
            tab.close()
        chromium.close()
    assert [url for url in requests if not url.startswith((address, "data:"))] == []
    assert errors + [words for kind, words in said if kind == "error"] == []


def test_an_error_of_the_library_has_the_code_of_a_page():
    import headlab

    with pytest.raises(HeadlabError) as caught:
        headlab.load_mask(ROOT / "nowhere.json")
    assert caught.value.code in docs_errors.messages_by_code()
