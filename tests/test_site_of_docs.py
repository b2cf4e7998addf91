"""The documentation as a site: its pages, its gallery, its pages of errors, and the built site."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from headlab.cli.run import build, main
from headlab.core import HeadlabError
from headlab.results import store_with_demo

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

import docs_errors  # noqa: E402 - after the path to it
import docs_gallery  # noqa: E402
import docs_links  # noqa: E402

DOCS = ROOT / "docs"
TASK_PAGES = sorted([DOCS / "tutorial.md", *DOCS.glob("howto/*.md")])
MAX_SECONDS = 300
# Commands of the pages that are not run here, by what they hold, and why.
NOT_RUN = {
    "headlab app": "serves until it is stopped; tests/browser serve it",
    "headlab worker": "serves until it is stopped; tests/worker start it",
    "FOLDER": "needs a model of the reader's; tests/cli run such commands on tiny models",
    "smollm2-135m": "needs a package of 93 MB; tests/models and tests/cli load it where it is",
    "--ray": "needs Ray; tests/cluster run it",
    "headlab reproduce": "needs the papers' data; tests/reproduce run it",
    "--as small": "takes minutes; tests/shrink and tests/cli run it",
    "headlab shrink": "takes minutes on two cores; tests/cli run it on tiny models",
    "--model small": "follows headlab shrink",
    "headlab worth": "times passes for minutes; tests/cli run it on tiny models",
    "headlab front": "measures models for minutes; tests/cli run it on tiny models",
    "--as folder": "writes half a gigabyte; tests/shrink run it",
    "--as onnx": "writes half a gigabyte; tests/shrink run it",
    "--as gguf": "needs the decoder; tests/shrink run it",
    "headlab push": "see test_what_is_shared_comes_back",
    "headlab pull": "see test_what_is_shared_comes_back",
    "headlab experiment": "is named, not shown whole; tests/cli run it",
    "headlab score …": "is named, not shown whole",
    "headlab doctor": "is named, not shown whole; tests/cli/test_cli_doctor.py runs it",
    "NAME": "stands for a key of the reader's; tests/test_extending.py runs such commands",
}
OTHER_PROGRAMS = {
    "pip": "installs packages; benchmarks/package.py installs the wheel",
    "make": "is tested by the suite itself",
    "python": "runs a benchmark, which writes its own results",
}


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def shell_lines(page: Path) -> list[str]:
    """The lines of a page's shell blocks, and the commands of headlab within its sentences."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text(page), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    without_blocks = re.sub(r"^```.*?^```$", "", text(page), flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"`((?:headlab|make|pip|python) [^`]+)`", without_blocks)
    return lines + [line for line in named if len(line.split()) > 2]


def words_of(line: str) -> list[str]:
    """The words of a line, without variables before them and files that take the output."""
    words = shlex.split(line.partition(" > ")[0].replace("\n", " "), comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        del words[0]
    return words


def reason_not_to_run(line: str) -> str:
    return next((reason for part, reason in NOT_RUN.items() if part in " ".join(line.split())), "")


def lines_to_run(page: Path) -> list[str]:
    lines = []
    for line in shell_lines(page):
        if words_of(line)[0] == "headlab" and not reason_not_to_run(line):
            lines.append(line)
    return lines


@functools.cache
def commands_by_name() -> dict[str, typer.core.TyperCommand]:
    found = {}

    def add(group, prefix):
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                add(command, f"{prefix}{name} ")
            else:
                found[prefix + name] = command

    add(typer.main.get_command(build()), "")
    return found


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


@pytest.mark.parametrize("page", TASK_PAGES, ids=lambda page: page.stem)
def test_a_command_of_a_page_is_one_of_headlabs(page):
    for line in shell_lines(page):
        words = words_of(line)
        if words[0] != "headlab":
            assert words[0] in OTHER_PROGRAMS, line
            continue
        if "…" in line or "NAME" in line or words[-1] in ("NAME", "PROJECT"):
            continue
        name = " ".join(words[1:3])
        if name not in commands_by_name():
            name = words[1]
        if len(words) > len(name.split()) + 1:
            rest = words[len(name.split()) + 1 :]
            commands_by_name()[name].make_context(name, rest, resilient_parsing=False)


@pytest.fixture
def mask_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the tutorial's mask and a cache of its own."""
    import headlab

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADLAB_DEMO", raising=False)
    model = headlab.load("e5-small-intents")
    task = headlab.task("intents", languages=["vi"])
    scores = headlab.score(model, task, target=0.01, stop="width", store=store_with_demo())
    scores.mask("bottom", k=10).save("mask.json")
    return tmp_path


@pytest.mark.slow
@pytest.mark.filterwarnings("default::UserWarning")  # notes on stderr, as a command prints them
@pytest.mark.parametrize("page", [*filter(lines_to_run, TASK_PAGES)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page, mask_folder, capsys):
    """In their order, as they stand, on the embedded model with the demo's results."""
    for line in lines_to_run(page):
        code = main(words_of(line)[1:])
        output = capsys.readouterr()
        is_check = words_of(line)[1] == "check"
        assert code in ((0, 1, 3) if is_check else (0,)), (line, output.err)
        assert "Traceback" not in output.err
    assert (mask_folder / "mask.json").exists()


def test_a_command_that_is_not_run_stands_on_a_page():
    lines = [" ".join(line.split()) for page in TASK_PAGES for line in shell_lines(page)]
    unused = [part for part in NOT_RUN if not any(part in line for line in lines)]
    assert unused == []
    assert len([line for page in TASK_PAGES for line in lines_to_run(page)]) >= 8


@pytest.mark.slow
def test_what_is_shared_comes_back(mask_folder):
    for line in shell_lines(DOCS / "howto" / "share-a-mask.md"):
        if "owner/name" not in line and line.startswith("headlab"):
            assert main(words_of(line)[1:]) == 0, line
    assert (mask_folder / "theirs.json").read_bytes() == (mask_folder / "mask.json").read_bytes()


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
