"""What a release consists of: wheel, source archive and checksums under dist/, tested.

    python tools/release.py              as `make release` runs it
    python tools/release.py --anyway     also of files that are not committed

The wheel is built from the source archive, so the archive is whole. It is compared with a wheel of
the checkout, its metadata are read as an index reads them, and it is installed into a folder of its
own, from where its commands run without a network: version, doctor, a first score of the embedded
model, the app. The packages that it needs are those of the environment that runs this file;
`python benchmarks/package.py` installs these anew, too.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path
from typing import Any

from packaging.metadata import InvalidMetadata, Metadata

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from support.built_wheel import served_app  # noqa: E402 - after the path to it

DIST = ROOT / "dist"
CHECKSUMS = "SHA256SUMS"
FOUND = 1  # the exit code of `headlab doctor` that found something
LANGUAGE = "de"
HEADS = 144


class ReleaseError(Exception):
    """Why this is no release, in a sentence."""


@dataclass(frozen=True)
class Built:
    """The files of a release.

    Attributes:
        wheel: The wheel, built from the source archive.
        source: The source archive.
    """

    wheel: Path
    source: Path


def say(sentence: str) -> None:
    """Print what has been done, at once."""
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def output_of(command: list[str | Path], folder: Path, **options: Any) -> str:
    """What a program prints.

    Raises:
        ReleaseError: It ended with another exit code than `code`, by default 0.
    """
    code = options.pop("code", 0)
    finished = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, **options
    )
    if finished.returncode != code:
        words = " ".join(str(word) for word in command)
        said = (finished.stdout + finished.stderr)[-3000:]
        raise ReleaseError(f"{words} ended with {finished.returncode}, not {code}:\n{said}")
    return finished.stdout


def require_committed_files() -> None:
    """Raise ReleaseError where the checkout has files that are not committed."""
    changed = output_of(["git", "status", "--porcelain"], ROOT)
    if changed:
        raise ReleaseError(
            f"these files are not committed, so no commit would stand for the release:\n{changed}"
            "Commit or remove them; to try the build all the same: make release ANYWAY=1"
        )


def version_of_project() -> str:
    """The version that pyproject.toml says, if all places say the same.

    Raises:
        ReleaseError: Another file says another version, or the CHANGELOG has no date for it.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    version = str(project["version"])
    places = {
        "headlab/__init__.py": f'__version__ = "{version}"',
        "CITATION.cff": f"version: {version}",
    }
    for path, line in places.items():
        if line not in (ROOT / path).read_text("utf-8").splitlines():
            raise ReleaseError(f"pyproject.toml has version {version}, and {path} no line {line!r}")
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if not re.search(rf"^## {re.escape(version)} – \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has no heading '## {version} – YYYY-MM-DD'")
    return version


def build(folder: Path) -> Built:
    """The source archive, and the wheel that is built from it, in a folder."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    output_of(command, ROOT)
    (wheel,) = folder.glob("*.whl")
    (source,) = folder.glob("*.tar.gz")
    return Built(wheel, source)


def contents_of(wheel: Path) -> dict[str, str]:
    """The checksum of every file of a wheel, but of the list itself."""
    with zipfile.ZipFile(wheel) as archive:
        (record,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
        rows = csv.reader(archive.read(record).decode().splitlines())
        return {name: checksum for name, checksum, _ in rows if name != record}


def require_whole_source(built: Built, folder: Path) -> None:
    """Raise ReleaseError where the source archive gives another wheel than the checkout."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, ROOT]
    output_of(command, ROOT)
    (of_checkout,) = folder.glob("*.whl")
    one = contents_of(built.wheel)
    other = contents_of(of_checkout)
    different = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    if different:
        raise ReleaseError(
            f"wheels of {built.source.name} and of the checkout differ in {len(different)} files: "
            f"{', '.join(different[:10])}"
        )


def require_valid_metadata(wheel: Path, version: str) -> None:
    """Raise ReleaseError for metadata that an index would refuse."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    try:
        metadata = Metadata.from_email(text, validate=True)
    except (ExceptionGroup, InvalidMetadata) as error:
        problems = error.exceptions if isinstance(error, ExceptionGroup) else [error]
        raise ReleaseError("; ".join(map(str, problems))) from error
    described = message_from_string(text)
    facts = {
        "name": metadata.name == "headlab",
        "version": str(metadata.version) == version,
        "summary": bool(metadata.summary),
        "form of the description": metadata.description_content_type == "text/markdown",
        "description": bool(described.get_payload()),
        "licence": metadata.license_expression == "Apache-2.0",
        "Python": bool(metadata.requires_python),
    }
    wrong = [fact for fact, holds in facts.items() if not holds]
    if wrong:
        raise ReleaseError(f"the metadata of {wheel.name} are wrong in: {', '.join(wrong)}")


def try_wheel(wheel: Path, version: str, folder: Path) -> None:
    """Install the wheel into a folder, and run its commands from there.

    Args:
        wheel: The wheel.
        version: Its version.
        folder: An empty one; nothing is written elsewhere.

    Raises:
        ReleaseError: A command fails, or says something else than it should.
    """
    site = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    output_of([*pip, "--no-deps", "--no-index", "--target", site, wheel], folder)
    environment = {
        **os.environ,
        "PYTHONPATH": str(site),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HEADLAB_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
    }
    for name in ("HEADLAB_DEMO", "HEADLAB_WORKER", "HEADLAB_TOKEN"):
        environment.pop(name, None)
    program = site / "bin" / "headlab"

    def headlab(*words: str, code: int = 0) -> str:
        return output_of([program, *words], folder, env=environment, code=code)

    steps: dict[str, Callable[[], None]] = {
        "headlab --version": lambda: require_version(headlab("--version"), version),
        "headlab info": lambda: require_place(headlab("info", "--json"), site),
        "headlab doctor": lambda: require_findings(headlab, folder),
        "a first score": lambda: require_scores(headlab),
        "headlab app": lambda: require_app(program, folder, environment),
    }
    for name, step in steps.items():
        step()
        say(f"  {name}: good")


def require_version(printed: str, version: str) -> None:
    """Raise ReleaseError unless the wheel says its version and the commit that is checked out."""
    command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    commit = output_of([*command], ROOT).strip()
    expected = f"headlab {version} (commit {commit})"
    if printed.strip() != expected:
        raise ReleaseError(f"headlab --version says {printed.strip()!r}, not {expected!r}")


def require_place(printed: str, site: Path) -> None:
    """Raise ReleaseError unless it is the wheel that runs, and not the checkout."""
    folder = json.loads(printed)["folder"]
    if Path(folder) != site / "headlab":
        raise ReleaseError(f"headlab runs from {folder}, not from the wheel")


def require_findings(headlab: Callable[..., str], folder: Path) -> None:
    """Raise ReleaseError unless doctor finds what transformers 5 does not do."""
    script = folder / "old.py"
    script.write_text("outputs = model(**inputs, head_mask=mask)\nmodel.prune_heads({0: [1]})\n")
    printed = headlab("doctor", str(script), "--json", code=FOUND)
    for name in ("head_mask", "prune_heads"):
        if name not in printed:
            raise ReleaseError(f"headlab doctor did not find {name}: {printed}")


def require_scores(headlab: Callable[..., str]) -> None:
    """Raise ReleaseError unless the embedded model's heads get scores."""
    words = ("--languages", LANGUAGE, "--method", "gradient", "--size", "16")
    answer = json.loads(headlab("score", *words, "--json"))
    if json.dumps(answer).count(f'"{LANGUAGE}"') == 0:
        raise ReleaseError(f"headlab score gave no scores of {LANGUAGE}: {answer}")
    pruned = json.loads(
        headlab("prune", *words[:4], "--rule", "bottom", "--k", "3", "--json", "--out", "m.json")
    )
    shown = json.loads(headlab("mask", "validate", "m.json", "--json"))
    if (shown["valid"], shown["heads"], shown["removed"]) != (True, HEADS, 3):
        raise ReleaseError(f"headlab prune wrote another mask: {shown} of {pruned}")


def require_app(program: Path, folder: Path, environment: dict[str, str]) -> None:
    """Raise ReleaseError unless the dashboard starts and answers."""
    try:
        with served_app([str(program)], folder, environment):
            pass
    except AssertionError as error:
        raise ReleaseError(f"headlab app does not serve: {error}") from error


def write_checksums(built: Built) -> Path:
    """Write the checksums of the files beside them, as `sha256sum --check` reads them."""
    lines = []
    for path in sorted((built.wheel, built.source)):
        lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    target = DIST / CHECKSUMS
    target.write_text("".join(lines), encoding="utf-8")
    return target


def release(is_strict: bool) -> None:
    """Build, test, and put the files into dist/.

    Args:
        is_strict: Whether every file must be committed.

    Raises:
        ReleaseError: Something is wrong; dist/ is left empty then.
    """
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    if is_strict:
        require_committed_files()
    version = version_of_project()
    with tempfile.TemporaryDirectory(prefix="headlab-release-") as name:
        folder = Path(name).resolve()
        for part in ("built", "checkout", "tried"):
            (folder / part).mkdir()
        say(f"building headlab {version}")
        built = build(folder / "built")
        require_whole_source(built, folder / "checkout")
        say(f"  {built.source.name}: gives the same wheel as the checkout")
        require_valid_metadata(built.wheel, version)
        say(f"  {built.wheel.name}: valid metadata")
        try_wheel(built.wheel, version, folder / "tried")
        DIST.mkdir()
        paths = [Path(shutil.copy(path, DIST)) for path in (built.wheel, built.source)]
    write_checksums(Built(*paths))
    for path in sorted(DIST.iterdir()):
        say(f"dist/{path.name}: {path.stat().st_size:,} bytes")


def main() -> int:
    """Make the release, or say why there is none."""
    try:
        release(is_strict="--anyway" not in sys.argv[1:])
    except ReleaseError as error:
        sys.stderr.write(f"no release: {error}\n")
        return 1
    finally:
        shutil.rmtree(ROOT / "build", ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
