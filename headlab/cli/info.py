"""`headlab info`: what is installed and what this machine has, for bug reports."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

import typer

from headlab import __version__
from headlab.cli.output import AsJson, CacheRoot, open_store, print_json
from headlab.core import HeadlabError, allowed_processors, demo_results
from headlab.core.versions import commit
from headlab.results import bytes_in

VARIABLES = (
    "HEADLAB_CACHE",
    "HEADLAB_DATA",
    "HEADLAB_DEMO",
    "HEADLAB_MODELS",
    "HEADLAB_RAY",
    "HEADLAB_TASKS",
    "HEADLAB_WORKER",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "OMP_NUM_THREADS",
)
"""Settings that a report of a fault needs; never the token."""


def info(cache: CacheRoot = None, json: AsJson = False) -> None:
    """Say what is installed and what this machine has, for bug reports."""
    facts = installation(cache)
    if json:
        print_json(facts)
        return
    typer.echo(f"headlab {facts['version']} (commit {facts['commit']}) in {facts['folder']}")
    typer.echo(f"Python {facts['python']} on {facts['platform']}")
    typer.echo(f"processors {facts['processors']}, memory {_size(facts['memory_bytes'])}")
    typer.echo(f"devices {', '.join(facts['devices'])}")
    typer.echo(
        f"results in {facts['cache']['folder']}: {_size(facts['cache']['bytes'])}"
        + (f" ({facts['cache']['problem']})" if facts["cache"]["problem"] else "")
    )
    for extra, missing_packages in facts["extras"].items():
        state = f"misses {', '.join(missing_packages)}" if missing_packages else "installed"
        typer.echo(f"extra {extra}: {state}")
    typer.echo(" ".join(f"{name} {version}" for name, version in facts["packages"].items()))
    for name, value in facts["variables"].items():
        typer.echo(f"{name}={value}")


def installation(cache: Path | None) -> dict[str, Any]:
    """What `headlab info --json` prints.

    Args:
        cache: Folder of results; None for the usual one.
    """
    packages_by_extra = required_packages()
    all_packages = sorted({name for names in packages_by_extra.values() for name in names})
    versions = {name: version for name in all_packages if (version := _version(name))}
    demo = demo_results()
    return {
        "version": __version__,
        "commit": commit(),
        "folder": str(Path(__file__).parents[1]),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "processors": allowed_processors(),
        "memory_bytes": _memory_bytes(),
        "devices": _devices(),
        "cache": _cache_facts(cache),
        "demo_results": None if demo is None else str(demo),
        "extras": {
            extra: [name for name in names if name not in versions]
            for extra, names in packages_by_extra.items()
            if extra
        },
        "packages": versions,
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def required_packages() -> dict[str, list[str]]:
    """The packages that headlab asks for on this machine, by extra; those of the core under "".

    Empty where headlab runs from a folder and is not installed.
    """
    from packaging.markers import default_environment
    from packaging.requirements import Requirement

    try:
        metadata = importlib.metadata.metadata("headlab")
    except importlib.metadata.PackageNotFoundError:
        return {}
    extras = ["", *(metadata.get_all("Provides-Extra") or [])]
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist") or []]

    def packages_of(extra: str) -> set[str]:
        environment: dict[str, Any] = {**default_environment(), "extra": extra}
        names: set[str] = set()
        for requirement in requirements:
            if not _is_of_extra(requirement, extra, environment):
                continue
            if requirement.name == "headlab":  # an extra that takes in others
                names |= set().union(*map(packages_of, requirement.extras))
            else:
                names.add(requirement.name)
        return names

    return {extra: sorted(packages_of(extra)) for extra in extras}


def _is_of_extra(requirement: Any, extra: str, environment: dict[str, Any]) -> bool:
    """Whether a requirement is one of an extra, or of the core where `extra` is empty."""
    marker = requirement.marker
    names_an_extra = marker is not None and "extra" in str(marker)
    if names_an_extra != bool(extra):
        return False
    return marker is None or bool(marker.evaluate(environment))


def _version(package: str) -> str:
    """A package's version; empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _memory_bytes() -> int | None:
    """The memory of this machine in bytes; None where the system does not say it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _devices() -> list[str]:
    """The devices that torch can compute on."""
    import torch

    devices = ["cpu"]
    for number in range(torch.cuda.device_count()):
        devices.append(f"cuda:{number} ({torch.cuda.get_device_name(number)})")
    if torch.backends.mps.is_available():
        devices.append("mps")
    return devices


def _cache_facts(cache: Path | None) -> dict[str, Any]:
    """The folder of results, its size in bytes, and what is wrong with it."""
    try:
        root = open_store(cache).root
    except HeadlabError as error:
        return {"folder": None if cache is None else str(cache), "bytes": 0, "problem": str(error)}
    problem = ""
    if root.exists() and not os.access(root, os.W_OK):
        problem = "it cannot be written"
    return {"folder": str(root.absolute()), "bytes": bytes_in(root), "problem": problem}


def _size(count: int | None) -> str:
    """Bytes in words."""
    from headlab.core import size_text

    return "not known" if count is None else size_text(count)
