"""Which files the doctor reads in a folder of other people's, and what it says of the others."""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path

import pytest
from support.expected_errors import raises

from headlab.doctor import Examination, examine
from headlab.doctor.files import MAX_BYTES, Walk

FOUND = "model.prune_heads({0: [1]})\n"
SCRIPTS = Path(__file__).parents[1] / "data" / "v4_scripts"


def write(folder: Path, *names: str, text: str = FOUND) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names_found(examination: Examination) -> list[str]:
    paths = [finding.path.relative_to(examination.path) for finding in examination.findings]
    return [path.as_posix() for path in paths]


def test_the_scripts_of_transformers_4_are_examined() -> None:
    examination = examine(SCRIPTS)
    assert set(names_found(examination)) == {"checkpoint/config.json", "explore.ipynb", "train.py"}
    assert examination.files == {"Python": 2, "notebook": 1, "config": 1}
    (unread,) = examination.unread
    assert (unread.path.name, unread.line) == ("old_report.py", 6)
    assert "cannot parse it" in unread.reason
    record = json.loads(json.dumps(examination.record()))
    assert record["complete"] is True
    assert all(finding["does"] and finding["instead"] for finding in record["findings"])
    cells = {f["cell"] for f in record["findings"] if f["file"].endswith(".ipynb")}
    assert cells == {4, 5, 7, 8}


def test_folders_that_are_not_a_person_s_own_code_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "src/b.PY", "src/deep/er/c.pyw", "data.txt", "src/.hidden.py")
    write(tmp_path, ".git/x.py", "lib/site-packages/x.py", "web/node_modules/x.py")
    write(tmp_path, "env/pyvenv.cfg", "env/lib/x.py", "conda/conda-meta/x.py", "conda/y.py")
    write(tmp_path, "__pycache__/x.py")
    examination = examine(tmp_path)
    expected = ["a.py", "src/.hidden.py", "src/b.PY", "src/deep/er/c.pyw"]
    assert names_found(examination) == expected
    assert examination.skipped == {
        "hidden folders": 1,
        "folders of installed packages": 2,
        "virtual environments": 2,
    }


def test_a_folder_that_is_named_is_examined_whatever_it_is(tmp_path: Path) -> None:
    write(tmp_path, ".hidden/a.py", ".hidden/pyvenv.cfg")
    assert names_found(examine(tmp_path / ".hidden")) == ["a.py"]
    link = tmp_path / "link"
    link.symlink_to(tmp_path / ".hidden")
    assert names_found(examine(link)) == ["a.py"]


def test_links_pipes_and_large_files_end_nothing(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "elsewhere/b.py")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "self.py").symlink_to("self.py")
    (tmp_path / "gone.py").symlink_to("nowhere")
    (tmp_path / "to_b.py").symlink_to("elsewhere/b.py")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "large.py").write_text("#" * (MAX_BYTES["Python"] + 1))
    examination = examine(tmp_path)
    assert names_found(examination) == ["a.py", "to_b.py", "elsewhere/b.py"]
    assert examination.skipped == {
        "links to folders": 1,
        "pipes, devices and broken links": 3,
        "files that are too large": 1,
    }


def test_what_cannot_be_read_is_listed_and_the_rest_is_examined(tmp_path: Path) -> None:
    write(tmp_path, "bad.py", text="def f(:\n")
    write(tmp_path, "deep.py", text="-" * 200_000 + "1")
    (tmp_path / "zero.py").write_bytes(b"a = 1\0")
    (tmp_path / "letters.py").write_bytes(b"a = '\xff'\n")
    write(tmp_path, "half.ipynb", text='{"cells": [')
    write(tmp_path, "config.json", text="{")
    cells = [{"cell_type": "code", "source": source} for source in ("x = (", FOUND)]
    write(tmp_path, "two.ipynb", text=json.dumps({"cells": cells}))
    other = {"cells": cells, "metadata": {"language_info": {"name": "R"}}}
    write(tmp_path, "r.ipynb", text=json.dumps(other))
    write(tmp_path, "ok.py")
    examination = examine(tmp_path)
    assert names_found(examination) == ["ok.py", "two.ipynb"]
    unread = {place.path.name: (place.line, place.cell) for place in examination.unread}
    assert unread.pop("two.ipynb") == (1, 1)
    assert unread.pop("bad.py") == (1, None)
    names = {"deep.py", "zero.py", "letters.py", "half.ipynb", "config.json"}
    assert unread.keys() == names
    assert all("\n" not in place.reason and place.reason for place in examination.unread)
    assert examination.skipped == {"notebooks of other languages": 1}


@pytest.mark.skipif(os.geteuid() == 0, reason="root opens every folder")
def test_a_closed_folder_is_listed(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "closed/b.py")
    (tmp_path / "closed").chmod(0)
    try:
        (unread,) = examine(tmp_path).unread
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert unread.path.name == "closed"


def test_odd_names_are_files_like_others(tmp_path: Path) -> None:
    for name in ("a\nb.py", "[red]x.py", "\x1b[2J.py", "é.py"):
        write(tmp_path, name)
    (tmp_path / os.fsdecode(b"\xff.py")).write_text(FOUND)
    assert len(names_found(examine(tmp_path))) == 5


def test_a_walk_reads_no_folder_before_it_is_asked_for(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path, f"{number:02}/a.py")
    walk = Walk(tmp_path)
    listed = []
    list_folder = walk.list_folder

    def listing(folder: Path) -> tuple[list[str], list[str]]:
        listed.append(folder)
        return list_folder(folder)

    walk.list_folder = listing  # type: ignore[method-assign]
    first_files = [candidate.path.parent.name for candidate in islice(walk, 3)]
    assert first_files == ["00", "01", "02"]
    assert len(listed) == 4


def test_it_ends_after_the_largest_number_of_files(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "b.py", "c.py")
    reported = []
    examination = examine(
        tmp_path, max_files=2, report=lambda count, path: reported.append((count, path.name))
    )
    assert names_found(examination) == ["a.py", "b.py"]
    assert not examination.is_complete
    assert reported == [(1, "a.py"), (2, "b.py")]
    assert examine(tmp_path, max_files=3).is_complete


def test_one_file_is_examined_or_refused_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "notes.txt", "weights.safetensors")
    write(tmp_path, "bad.py", text="x = (\n")
    write(tmp_path, "saved.json", text='{"pruned_heads": {"0": [1]}}')
    write(tmp_path, "large.py", text="#" * (MAX_BYTES["Python"] + 1))
    assert len(examine(tmp_path / "a.py").findings) == 1
    assert [finding.kind for finding in examine(tmp_path / "saved.json").findings] == ["checkpoint"]
    for name in ("notes.txt", "weights.safetensors"):
        with raises("doctor.unknown_kind"):
            examine(tmp_path / name)
    with raises("doctor.unreadable", "line 1"):
        examine(tmp_path / "bad.py")
    with raises("doctor.too_large"):
        examine(tmp_path / "large.py")
    with raises("doctor.path_missing"):
        examine(tmp_path / "nothing.py")
    with raises("doctor.path_missing"):
        examine(Path("a\0b"))


def test_a_folder_without_anything_to_examine_is_a_mistake(tmp_path: Path) -> None:
    write(tmp_path, "notes.txt", ".venv/a.py")
    with raises("doctor.nothing_to_examine", "hidden folders (1)"):
        examine(tmp_path)
