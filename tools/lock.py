"""Write the locks: requirements files that pin what pyproject.toml asks for, with its own needs.

    make lock                           after a change of pyproject.toml; pins that fit stay
    make lock UPGRADE="pytest ruff"     the newest versions that fit, of these two
    make lock UPGRADE=all               and of everything

One resolution holds for every platform and every Python that pyproject.toml allows: what only some
of them need has a marker. uv resolves, in an environment that is made for it and removed. It asks
the package index that `UV_DEFAULT_INDEX` names, or else the public one; the address comes into no
file. All files are written, or none.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
WITHOUT_NEEDS = "requirements-nodeps.txt"
CUDA = re.compile(r"(nvidia-|cuda-).*|triton")


@dataclass(frozen=True)
class Lock:
    """A requirements file that is written by this command.

    Attributes:
        file: its name, at the top of the checkout.
        extras: the extras of pyproject.toml that it pins, beside the library's dependencies.
        groups: the dependency groups that it pins.
        heading: what the file says about itself, without comment signs; the command first.
    """

    file: str
    extras: tuple[str, ...]
    groups: tuple[str, ...]
    heading: str


# Each holds only what those before it do not, and is installed on top of them.
LOCKS = (
    Lock(
        file="requirements.txt",
        extras=("app", "hub", "roles", "translation", "vocabulary"),
        groups=(),
        heading="""\
Written by `make lock` from pyproject.toml (docs/contributing.md): what the app and the image need.
Every package is pinned, to the version that the tests ran with; markers say where only some
platforms or Pythons need one. No index addresses, no hashes: torch's file differs between indexes.
torch: the default wheel of the package index is the CUDA build (several GB). Where no GPU is
wanted, give pip PyTorch's own CPU index as an extra index (PIP_EXTRA_INDEX_URL); the pin accepts
its wheel. CUDA's libraries (nvidia-*, cuda-*, triton) are left out: the CUDA build of torch names
their versions itself, and the CPU build would get them for nothing.
""",
    ),
    Lock(
        file="requirements-dev.txt",
        extras=("figures", "gguf", "onnx", "ray"),
        groups=("dev",),
        heading="""\
Written by `make lock` from pyproject.toml: what `make test` and `make check` need on top of
requirements.txt: the dependency group dev and the extras figures, gguf, onnx and ray.
""",
    ),
    Lock(
        file="requirements-soak.txt",
        extras=("lm-eval",),
        groups=("soak",),
        heading="""\
Written by `make lock` from pyproject.toml: what `make soak` and benchmarks/ui.py need on top of
requirements-dev.txt: the dependency group soak and the extra lm-eval.
""",
    ),
    Lock(
        file="requirements-docs.txt",
        extras=(),
        groups=("docs",),
        heading="""\
Written by `make lock` from pyproject.toml: what `make docs` needs on top of requirements.txt: the
dependency group docs.
""",
    ),
)


@dataclass(frozen=True)
class Pin:
    """A package at one version.

    Attributes:
        requirement: the line without its comment, like ``pywin32==311 ; sys_platform == 'win32'``.
        needed_by: the packages and tables of pyproject.toml that ask for it, as uv lists them.
    """

    requirement: str
    needed_by: str

    @property
    def name(self) -> str:
        """The package's name, in lower case and with hyphens."""
        return self.requirement.partition("==")[0].lower().replace("_", "-")

    @property
    def version(self) -> str:
        """The version alone, without a marker."""
        return self.requirement.partition("==")[2].partition(" ")[0]

    def line(self) -> str:
        """The pin as a line of a requirements file."""
        if self.needed_by:
            return f"{self.requirement}  # {self.needed_by}"
        return self.requirement


def read_pins(text: str) -> list[Pin]:
    """Read the pins of a requirements file, in its order; its comment lines are passed over."""
    pins = []
    for line in text.splitlines():
        requirement, _, comment = line.partition(" #")
        if "==" in requirement and not requirement.startswith("#"):
            pins.append(Pin(requirement.strip(), comment.strip()))
    return pins


def lock_texts(resolutions: Sequence[Sequence[Pin]]) -> dict[str, str]:
    """Divide what was resolved among the files.

    Args:
        resolutions: for each of `LOCKS`, all pins of it and of those before it.

    Returns:
        The text of each file, by its name. A pin stands in the first file that needs it. One whose
        marker is wider in a later file stands there again.

    Raises:
        SystemExit: a package has another version in a later file, or one that a single index has.
    """
    texts = {}
    pins_before: dict[str, Pin] = {}
    for lock, resolution in zip(LOCKS, resolutions, strict=True):
        lines = []
        for pin in resolution:
            if CUDA.fullmatch(pin.name) or pin.requirement in pins_before:
                continue
            if "+" in pin.version:
                raise SystemExit(
                    f"{pin.requirement} is a build that one index has: run this without that index "
                    "(UV_INDEX, UV_EXTRA_INDEX_URL, uv.toml)"
                )
            versions_before = {
                earlier_pin.version
                for earlier_pin in pins_before.values()
                if earlier_pin.name == pin.name
            }
            if versions_before and pin.version not in versions_before:
                raise SystemExit(
                    f"{lock.file}: {pin.requirement}, but {versions_before} in a file before it; "
                    f"run: make lock UPGRADE={pin.name}"
                )
            lines.append(pin.line())
        pins_before |= {pin.requirement: pin for pin in resolution}
        heading = [f"# {line}" for line in lock.heading.splitlines()]
        texts[lock.file] = "\n".join([*heading, *lines]) + "\n"
    return texts


def read_pyproject() -> dict[str, Any]:
    """Read the tables of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def resolve(
    uv: Path, locks: Sequence[Lock], folder: Path, preferred_pins: str, upgrade: Sequence[str]
) -> str:
    """Resolve what some locks pin together.

    Args:
        uv: the program that resolves.
        locks: whose extras and groups are resolved.
        folder: where temporary files may be written.
        preferred: pins to keep where they fit, as the text of a requirements file.
        upgrade: packages of which the newest version that fits is taken instead.

    Returns:
        The text of a requirements file without a heading.

    Raises:
        SystemExit: no versions fit together; uv has said why.
    """
    oldest_python = read_pyproject()["project"]["requires-python"].removeprefix(">=")
    without_needs = read_pins((ROOT / WITHOUT_NEEDS).read_text(encoding="utf-8"))
    excluded_file = folder / "excluded.txt"
    excluded_file.write_text("\n".join(pin.name for pin in without_needs), encoding="utf-8")
    pins_file = folder / "pinned.txt"
    pins_file.write_text(preferred_pins, encoding="utf-8")
    command = [str(uv), "pip", "compile", "pyproject.toml", "--quiet"]
    command += ["--universal", "--python-version", oldest_python]
    # One version for all Pythons, where one fits them all: the version that was tested.
    command += ["--fork-strategy", "fewest", "--excludes", str(excluded_file)]
    command += ["--no-header", "--annotation-style", "line", "--output-file", str(pins_file)]
    for lock in locks:
        command += [f"--extra={extra}" for extra in lock.extras]
        command += [f"--group={group}" for group in lock.groups]
    command += [f"--upgrade-package={name}" for name in upgrade]
    if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode:
        raise SystemExit(
            "the requirements could not be resolved (uv's message is above); nothing was written"
        )
    return pins_file.read_text(encoding="utf-8")


def install_uv(folder: Path) -> Path:
    """Make a virtual environment in a folder, with the uv that pyproject.toml's group `lock` names.

    Returns:
        The program.

    Raises:
        SystemExit: pip could not install it.
    """
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    command = [str(programs / "python"), "-m", "pip", "install", "--quiet"]
    command += ["--disable-pip-version-check", *read_pyproject()["dependency-groups"]["lock"]]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit("uv could not be installed (pip's message is above); nothing was written")
    return programs / "uv"


def main() -> None:
    """Write the locks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "upgrade", nargs="*", help="packages whose newest version is taken, or: all"
    )
    upgrade = parser.parse_args().upgrade
    preferred_pins = ""
    if "all" not in upgrade:
        preferred_pins = "".join(
            (ROOT / lock.file).read_text(encoding="utf-8")
            for lock in LOCKS
            if (ROOT / lock.file).exists()
        )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        uv = install_uv(folder / "environment")
        # All together first, so that what the app gets never keeps the tests from resolving.
        full_resolution = resolve(
            uv, LOCKS, folder, preferred_pins, [] if "all" in upgrade else upgrade
        )
        resolutions = []
        for count in range(1, len(LOCKS) + 1):
            resolutions.append(read_pins(resolve(uv, LOCKS[:count], folder, full_resolution, [])))
    for file, text in lock_texts(resolutions).items():
        (ROOT / file).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{file}: {len(read_pins(text))} packages\n")


if __name__ == "__main__":
    main()
