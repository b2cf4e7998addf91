"""The documents against the code.

What they name exists, what exists is named, and their examples run.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image

from headlab.cli.application import on_demand
from headlab.cli.check import EXIT_CODES
from headlab.cli.doctor import FOUND
from headlab.cli.run import FAILED, INTERRUPTED, OK, build
from headlab.masks import load_mask, mask_from_json
from headlab.methods import METHODS
from headlab.methods.table import BUILT_IN
from headlab.stats import Verdict

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(page for page in ROOT.glob("docs/**/*.md") if page.name != "findings.md"),
        *ROOT.glob("recipes/**/*.md"),
        *ROOT.glob("templates/**/*.md"),
    ]
)


def commands_by_name(group, prefix=""):
    """The commands that can be run; those of a group have its name before their own."""
    commands = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            commands |= commands_by_name(command, f"{prefix}{name} ")
        else:
            commands[prefix + name] = command
    return commands


COMMANDS = commands_by_name(typer.main.get_command(build()))
ALLOWED_HOSTS = {"host"}  # what an address in a document may point to
ABSOLUTE_PATH = re.compile(r"(?<![\w.])/(?:home|Users|root|work|tmp|opt|mnt|srv)/|[A-Z]:\\")


def text(path: str | Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(path: str | Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text(path), re.MULTILINE | re.DOTALL)


def sections(path: str | Path) -> dict[str, str]:
    """{heading of level 2: what stands below it}."""
    parts = re.split(r"^## (.*)$", text(path), flags=re.MULTILINE)
    titles = parts[1::2]
    bodies = parts[2::2]
    return dict(zip(titles, bodies, strict=True))


def rows(markdown: str) -> list[list[str]]:
    """Cells of every table row."""
    cells_of_rows = []
    for line in markdown.splitlines():
        if line.startswith("|"):
            cells = line.strip("|").split("|")
            cells_of_rows.append([cell.strip() for cell in cells])
    return cells_of_rows


def anchors(path: Path) -> set[str]:
    """What a link can point to in a page: its headings, as GitHub spells them."""
    headings = re.findall(r"^#+ (.*)$", text(path), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def command_section(name: str) -> str:
    matching_sections = []
    for title, body in sections("docs/cli.md").items():
        if f"`headlab {name}`" in title:
            matching_sections.append(body)
    (section,) = matching_sections
    return section


def test_the_readme_takes_two_screens_and_says_the_purpose_before_results():
    readme = text(README)
    assert len(readme.splitlines()) < 90
    assert readme.index("which attention heads") < readme.index("](docs/images/") < 1500
    assert [len(block.splitlines()) for block in blocks(README, "sh")] == [2]
    tables = re.findall(r"^\|[ -]+\|", readme, re.MULTILINE)
    assert len(tables) == 1


def test_the_readme_leads_to_every_document():
    named = set(re.findall(r"\]\(docs/([\w-]+\.md)", text(README)))
    of_the_code = {"contributing.md"}  # by way of CONTRIBUTING.md
    assert named == {path.name for path in ROOT.glob("docs/*.md")} - of_the_code


def test_the_animation_moves_and_is_small():
    path = ROOT / "docs" / "images" / "prune.gif"
    assert path.stat().st_size < 1_500_000
    with Image.open(path) as animation:
        assert animation.n_frames >= 10
        assert animation.width <= 1000


def test_the_methods_are_listed_as_the_table_does():
    section = sections("docs/methods.md")["All methods"]
    table = {cells[0]: cells[1:] for cells in rows(section)}
    yes_or_no = {True: "yes", False: "no"}
    for method in METHODS.values():
        assert table.pop(f"`{method.key}`") == [
            method.title,
            method.costs.words,
            method.paper,
            yes_or_no[method.signed],
            yes_or_no[method.intervals],
        ], method.key
    assert set(table) == {"method", "---"}


def test_the_list_of_places_names_files_that_exist():
    section = sections("docs/architecture.md")["Where things are"]
    names = re.findall(r"`((?:headlab|pages)/[\w./]*|\w+\.(?:py|yaml))`", section)
    assert len(names) > 10
    missing_names = []
    for name in names:
        if not (ROOT / name).exists():
            missing_names.append(name)
    assert missing_names == []


@pytest.mark.parametrize("key", METHODS)
def test_a_method_is_documented_with_its_options_and_defaults(key):
    method = METHODS[key]
    section = sections("docs/methods.md")[f"`{key}`"]
    table = {cells[0]: cells[1:] for cells in rows(section)}
    if method.options or method.signed:
        assert table["cost"][0].startswith(method.costs.words)
        unit = method.unit.split()[0]
        assert unit in table["unit, sign"][0]
        assert table["interval"][0].startswith("yes" if method.intervals else "no")
        assert table["paper"][0].startswith(method.paper)
    default_by_name = {}
    for name, cells in table.items():
        if name.startswith("`"):
            default_by_name[name] = cells[0]
    expected_defaults = {}
    for name, option in method.options.items():
        expected_defaults[f"`{name}`"] = f"`{json.dumps(option.default)}`"
    assert default_by_name == expected_defaults
    for name, option in method.options.items():
        assert option.help
        for choice in option.choices:
            assert f"`{choice}`" in section or f'"{choice}"' in section, name


def test_every_section_about_a_method_is_of_a_method():
    documented_methods = set()
    for title in sections("docs/methods.md"):
        if title.startswith("`"):
            documented_methods.add(title.strip("`"))
    assert documented_methods == set(METHODS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_documented_with_every_option(name):
    command = COMMANDS[name]
    section = command_section(name)
    assert command.help
    assert "headlab " + name in sections("docs/cli.md")["All commands at a glance"]
    for parameter in command.params:
        option = parameter.opts[0]
        if option == "--help":
            continue
        assert getattr(parameter, "help", None), f"{name} {option} has no help"
        pattern = rf"(?<![\w-]){re.escape(option)}(?![\w-])"
        assert re.search(pattern, section.replace("TASK", "task")), option


def test_no_option_is_documented_that_no_command_has():
    flags = {"--help"}
    for command in (on_demand(), *COMMANDS.values()):
        for parameter in command.params:
            flags.update([*parameter.opts, *parameter.secondary_opts])
    document = text("docs/cli.md") + text(README)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", document)) <= flags


def test_commands_in_shell_blocks_can_be_parsed():
    """Every `headlab ...` line in a shell block names a command and options of that command."""
    shell_blocks = blocks("docs/cli.md", "sh")
    calls = []
    for line in "\n".join(shell_blocks).splitlines():
        without_comment = line.split("#")[0]
        for part in without_comment.split(";"):
            words_of_call = part.split()
            if words_of_call[:1] == ["headlab"]:
                calls.append(words_of_call)
    names = set()
    for call in calls:
        words = 3 if " ".join(call[1:3]) in COMMANDS else 2
        name = " ".join(call[1:words])
        COMMANDS[name].make_context(name, call[words:], resilient_parsing=False)
        names.add(name)
    assert names == set(COMMANDS)


def test_exit_codes_are_the_documented_ones():
    codes = []
    for cells in rows(text("docs/cli.md")):
        if cells[0].isdigit():
            codes.append(int(cells[0]))
    assert codes == [OK, FOUND, FAILED, EXIT_CODES[Verdict.UNDECIDED], INTERRUPTED]
    assert EXIT_CODES[Verdict.HOLDS] == OK
    assert EXIT_CODES[Verdict.FAILS] == FOUND


def test_the_examples_in_the_mask_format_are_masks():
    block, block_of_players = blocks("docs/mask-format.md", "json")
    players = json.loads(block_of_players)
    mask_of_players = mask_from_json(players)
    assert mask_of_players.to_json() | players == mask_of_players.to_json()
    assert [str(player) for player in mask_of_players.removed] == ["0.1", "encoder-neurons 1.1"]
    example = json.loads(block)
    mask = mask_from_json(example)
    removed_heads = [tuple(head) for head in mask.removed]
    assert removed_heads == [("encoder", 1, 1), ("encoder", 2, 2)]
    assert {**mask.to_json(), "created": example["created"]} == example
    table = rows(text("docs/mask-format.md"))
    first_cells = {cells[0].strip("`") for cells in table}
    assert first_cells - {"field", "---"} == set(example)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", text(page))
    for link in links:
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target) if target else page
        assert path.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(path), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_no_machine(page):
    """No absolute path of somebody's computer, and no address of a registry."""
    assert ABSOLUTE_PATH.findall(text(page)) == []
    hosts = re.findall(r"https?://([^/\s:)\"`]+)", text(page))
    assert set(hosts) <= ALLOWED_HOSTS


def test_tests_that_the_statistics_name_exist():
    names = re.findall(r"`(test_\w+)`", text("docs/statistics.md"))
    source = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")
    )
    assert names
    missing_names = [name for name in names if f"def {name}(" not in source]
    assert missing_names == []


def test_the_python_block_has_eight_lines():
    (block,) = blocks(README, "python")
    assert len(block.splitlines()) == 8


@pytest.mark.slow
def test_the_python_block_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """As it stands, on the embedded model, with fewer examples and samples than the defaults."""
    import headlab

    shapley = METHODS["shapley"]
    four_samples = replace(shapley.options["samples"], default=4)
    options = {**shapley.options, "samples": four_samples}
    monkeypatch.setitem(BUILT_IN, "shapley", replace(shapley, options=options))
    for name in ("score", "evaluate"):
        with_8_examples = partial(getattr(headlab, name), size=8)
        monkeypatch.setattr(headlab, name, with_8_examples)
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(README, "python")
    namespace: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), namespace)
    model = namespace["model"]
    mask = load_mask(tmp_path / "mask.json")
    assert isinstance(model, headlab.hooks.Model)
    mask.check(model.grid, model.fingerprint)
    assert (namespace["scores"].samples == 4).all()
    output = capsys.readouterr().out
    lines = [line.split() for line in output.splitlines()]
    assert [words[0] for words in lines] == ["de", "th"]
    assert all("n=8" in words for words in lines)
