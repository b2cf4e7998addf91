"""The commands of the documents: each is run here, or says beside it why not."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
import typer

from headlab.cli.run import build, main
from headlab.masks import Mask
from headlab.results import store_with_demo

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
TASK_PAGES = sorted([DOCS / "tutorial.md", *DOCS.glob("howto/*.md")])
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`((?:headlab|make|pip|python) [^`]+)`(?: \(([^)]+)\))?")
REASON = re.compile(r"\(((?:needs|takes|serves?)\b[^()]+)\)$")
"""Why a command is not run, at the end of a comment or behind a command in a sentence."""
SOAKED = "takes minutes"
"""Of a page about a task, `make soak` runs what says so."""
OF_THE_READER = re.compile(r"(?<![\w-])[A-Z_]{3,}(?!\w)|…|\$|owner/name|//host")
"""What stands for something of the reader's."""
OTHER_PROGRAMS = {"pip", "make", "python", "llama-server"}


@dataclass(frozen=True)
class Line:
    """A command of a document.

    Attributes:
        command: Without comment.
        block: Which shell block of the page it stands in, counted from 0; -1 for a sentence.
        reason: Why it is not run, as the document says beside it; empty if it is.
    """

    command: str
    block: int
    reason: str

    @property
    def words(self) -> list[str]:
        """Its words, without variables before them and files that take the output."""
        words = shlex.split(self.command.partition(" > ")[0])
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        return words

    @property
    def is_of_headlab(self) -> bool:
        """Whether it is a command of headlab's."""
        return self.words[:1] == ["headlab"]

    @property
    def is_of_the_reader(self) -> bool:
        """Whether something in it stands for something of the reader's."""
        return OF_THE_READER.search(self.command) is not None

    @property
    def is_run(self) -> bool:
        """Whether it is run as it stands in the suite."""
        return self.is_of_headlab and not self.reason and not self.is_of_the_reader

    @property
    def is_soaked(self) -> bool:
        """Whether it is run as it stands in `make soak`."""
        return self.is_of_headlab and self.reason == SOAKED and not self.is_of_the_reader


def lines_of(page: Path) -> Iterator[Line]:
    """The commands of a page's shell blocks; of a page about a task, those in its sentences too."""
    content = page.read_text(encoding="utf-8")
    for number, block in enumerate(SHELL_BLOCK.findall(content)):
        yield from _lines_of_block(block, number)
    if page not in TASK_PAGES:
        return
    for command, reason in NAMED.findall(BLOCK.sub("", content)):
        command = " ".join(command.split())
        if len(command.split()) > 2:
            match = REASON.fullmatch(f"({reason})")
            yield Line(command, -1, match.group(1) if match else "")


def _lines_of_block(block: str, number: int) -> Iterator[Line]:
    """The commands of a shell block; a reason on a line of its own is of all down to the next."""
    reason_above = ""
    for line in block.splitlines():
        command, _, comment = line.partition("#")
        match = REASON.search(comment.strip())
        reason = match.group(1) if match else ""
        if command.strip():
            yield Line(command.strip(), number, reason or reason_above)
        else:
            reason_above = reason


def pages_with(kind: str, pages: list[Path]) -> list[Path]:
    return [page for page in pages if any(getattr(line, kind) for line in lines_of(page))]


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_command_of_a_page_is_one_of_headlabs(page):
    for line in lines_of(page):
        words = line.words
        if not line.is_of_headlab:
            assert page not in TASK_PAGES or words[0] in OTHER_PROGRAMS, line
            continue
        if "…" in words or "NAME" in words or words[-1] == "PROJECT":
            continue
        name = " ".join(words[1:3])
        if name not in commands_by_name():
            name = words[1]
        rest = words[len(name.split()) + 1 :]
        if rest:
            commands_by_name()[name].make_context(name, rest, resilient_parsing=False)


def test_a_reason_stands_where_the_reader_sees_it():
    block = (
        "# all of it (takes minutes)\nheadlab a\nheadlab b  # (needs Ray)\n\nheadlab c # words\n"
        "# more words\nheadlab d  # (or not)\n"
    )
    assert [line.reason for line in _lines_of_block(block, 0)] == [
        "takes minutes",
        "needs Ray",
        "",
        "",
    ]


def test_most_commands_of_the_tutorial_are_run():
    lines = list(lines_of(DOCS / "tutorial.md"))
    assert len([line for line in lines if line.is_run]) >= 5
    assert len([line for page in PAGES for line in lines_of(page) if line.is_run]) >= 25
    assert len([line for page in TASK_PAGES for line in lines_of(page) if line.is_soaked]) >= 5


@pytest.fixture(scope="module")
def tutorial_mask() -> Mask:
    """The mask that the tutorial makes."""
    import headlab

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HEADLAB_DEMO", raising=False)
        model = headlab.load("e5-small-intents")
        task = headlab.task("intents", languages=["vi"])
        scores = headlab.score(model, task, target=0.01, stop="width", store=store_with_demo())
    return scores.mask("bottom", k=10)


@pytest.fixture
def new_folder(
    tutorial_mask: Mask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Path]:
    """Makes a working folder with what a reader has by then: masks, and an old script."""
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADLAB_DEMO", raising=False)
    numbers = count()

    def make() -> Path:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        for name in ("mask", "de", "th", "fr"):
            tutorial_mask.save(folder / f"{name}.json")
        (folder / "my-project").mkdir()
        (folder / "my-project" / "train.py").write_text("model(**batch, head_mask=mask)\n")
        monkeypatch.chdir(folder)
        return folder

    return make


def run(line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(line.words[1:])
    output = capsys.readouterr()
    codes_of_success = {"check": (0, 1, 3), "doctor": (0, 1)}.get(line.words[1], (0,))
    assert code in codes_of_success, (line.command, output.err)
    assert "Traceback" not in output.err


@pytest.mark.slow
@pytest.mark.filterwarnings("default::UserWarning")  # notes on stderr, as a command prints them
@pytest.mark.parametrize("page", pages_with("is_run", PAGES), ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page, new_folder, capsys):
    """In their order, as they stand, on the embedded model with the demo's results.

    On a page about a task, they follow each other; elsewhere each block begins anew.
    """
    block = None
    for line in lines_of(page):
        if not line.is_run:
            continue
        if block is None or (page not in TASK_PAGES and line.block != block):
            new_folder()
        block = line.block
        run(line, capsys)


@pytest.mark.soak
@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("page", pages_with("is_soaked", TASK_PAGES), ids=lambda page: page.stem)
def test_the_commands_of_a_page_that_take_minutes_run(page, new_folder, capsys):
    new_folder()
    for line in lines_of(page):
        if line.is_run or line.is_soaked:
            run(line, capsys)


@pytest.mark.slow
def test_what_is_shared_comes_back(new_folder, capsys):
    folder = new_folder()
    for line in lines_of(DOCS / "howto" / "share-a-mask.md"):
        if line.is_run:
            run(line, capsys)
    assert (folder / "theirs.json").read_bytes() == (folder / "mask.json").read_bytes()
