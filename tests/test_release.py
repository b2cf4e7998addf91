"""`make release` stops with a sentence where something is wrong, and leaves nothing in dist/."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "tools"))
import release
from release import Built, ReleaseError

ROOT = Path(__file__).parents[1]
METADATA = """Metadata-Version: 2.4
Name: headlab
Version: 0.1.0
Summary: Heads
License-Expression: Apache-2.0
Requires-Python: >=3.11
Description-Content-Type: text/markdown

# headlab
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that say a version, as a checkout of its own."""
    folder = tmp_path / "checkout"
    (folder / "headlab").mkdir(parents=True)
    for name in ("pyproject.toml", "headlab/__init__.py", "CITATION.cff", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder / name)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    monkeypatch.setattr(release, "ROOT", folder)
    monkeypatch.setattr(release, "DIST", folder / "dist")
    return folder


def wheel_of(path: Path, metadata: str = METADATA, **files: str) -> Path:
    """A wheel with some files, whose checksums are their contents."""
    with zipfile.ZipFile(path, "w") as archive:
        rows = [f"{name},{text},1" for name, text in files.items()]
        archive.writestr("headlab-0.1.0.dist-info/METADATA", metadata)
        archive.writestr("headlab-0.1.0.dist-info/RECORD", "\n".join(rows))
    return path


def test_every_place_says_the_version_of_this_release():
    assert release.version_of_project() == "0.1.0"


@pytest.mark.parametrize("name", ["headlab/__init__.py", "CITATION.cff", "CHANGELOG.md"])
def test_a_place_with_another_version_is_named(checkout: Path, name: str):
    path = checkout / name
    path.write_text(path.read_text("utf-8").replace("0.1.0", "0.0.9"), "utf-8")
    with pytest.raises(ReleaseError, match=name):
        release.version_of_project()


def test_files_that_are_not_committed_are_named_with_the_way_on(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "argv", ["release.py"])
    (checkout / "dist").mkdir()
    (checkout / "dist" / "former.whl").write_text("of a former release")
    assert release.main() == 1
    said = capsys.readouterr().err
    assert "CITATION.cff" in said
    assert "make release ANYWAY=1" in said
    assert not (checkout / "dist").exists()


def test_a_source_archive_that_lacks_a_file_is_no_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    built = Built(wheel_of(tmp_path / "one.whl", a="1", b="2"), tmp_path / "one.tar.gz")
    folder = tmp_path / "checkout"
    folder.mkdir()
    monkeypatch.setattr(
        release, "output_of", lambda *_: wheel_of(folder / "other.whl", a="1", b="3", c="4")
    )
    with pytest.raises(ReleaseError, match=r"differ in 2 files: b, c"):
        release.require_whole_source(built, folder)


def test_metadata_are_read_as_an_index_reads_them(tmp_path: Path):
    release.require_valid_metadata(wheel_of(tmp_path / "good.whl"), "0.1.0")
    with pytest.raises(ReleaseError, match="version"):
        release.require_valid_metadata(wheel_of(tmp_path / "good.whl"), "0.2.0")
    for wrong in (
        METADATA.replace("0.1.0", "first"),
        METADATA.replace("Apache-2.0", "as you like"),
        METADATA.replace("text/markdown", "text/plain"),
        METADATA.replace("Summary: Heads\n", ""),
    ):
        with pytest.raises(ReleaseError):
            release.require_valid_metadata(wheel_of(tmp_path / "bad.whl", wrong), "0.1.0")


def test_a_program_that_fails_is_shown_with_what_it_said(tmp_path: Path):
    program = "import sys; print('the reason', file=sys.stderr); sys.exit(3)"
    with pytest.raises(ReleaseError, match=r"ended with 3, not 0:\nthe reason"):
        release.output_of([sys.executable, "-c", program], tmp_path)
    assert release.output_of([sys.executable, "-c", program], tmp_path, code=3) == ""


def test_checksums_are_those_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(release, "DIST", tmp_path)
    built = Built(tmp_path / "b.whl", tmp_path / "a.tar.gz")
    for path in (built.wheel, built.source):
        path.write_text(path.name)
    lines = release.write_checksums(built).read_text().splitlines()
    assert lines == [
        f"{hashlib.sha256(name.encode()).hexdigest()}  {name}" for name in ("a.tar.gz", "b.whl")
    ]
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)


def test_make_release_runs_the_tool():
    shown = subprocess.run(
        ["make", "-n", "release", "ANYWAY=1"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "tools/release.py --anyway" in shown
