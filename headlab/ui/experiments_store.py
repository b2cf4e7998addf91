"""Reports of experiments as the page finds them: those of a choice, newest first, in words and as a table of facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import streamlit as st

from headlab.errors import HeadlabError
from headlab.experiments.table import METHOD, METHOD_OPTIONS
from headlab.store import ReportListing, ReportResult, Store, default_root
from headlab.ui.jobs_words import duration, spelled
from headlab.ui.shell import Choice

INNER = ("options", METHOD_OPTIONS)


def listing() -> ReportListing:
    """Every readable report of the cache folder, read again only when one of its folders changed."""
    root = default_root()
    try:
        return _scan(root, _stamp(root))
    except OSError as error:
        raise HeadlabError(
            f"cannot read the cache folder {root} ({error.strerror}); set HEADLAB_CACHE to another"
        ) from error


def _stamp(root: Path) -> tuple[tuple[str, int, int], ...]:
    names = ("spec.json", "result.npz")
    stats = [(p, p.stat()) for p in sorted(root.glob("*/*")) if p.name in names] if root.is_dir() else []
    return tuple((str(p.relative_to(root)), s.st_mtime_ns, s.st_size) for p, s in stats)


@st.cache_resource(max_entries=2, show_spinner=False)
def _scan(root: Path, stamp: tuple[tuple[str, int, int], ...]) -> ReportListing:
    return Store(root).reports()


def matching(results: Iterable[ReportResult], choice: Choice, experiment: str) -> list[ReportResult]:
    """Reports of an experiment on a choice's model and task, the newest first."""
    wanted = (choice.model, choice.task, experiment)
    return sorted((r for r in results if _about(r) == wanted), key=lambda r: (made_at(r), r.key), reverse=True)


def _about(result: ReportResult) -> tuple[Any, ...]:
    spec = result.report.spec
    return (_part(spec, "model", "name"), _part(spec, "task", "name"), spec.get("experiment"))


def _part(spec: Mapping[str, Any], *path: str) -> Any:
    value: Any = spec
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def made_at(result: ReportResult) -> float:
    """When a report was made, in Unix seconds; 0 where it does not say."""
    try:
        return datetime.fromisoformat(str(result.meta.get("created"))).timestamp()
    except ValueError:
        return 0.0


def job_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The details of the job that makes a report of this spec; sizes as they were, not as they were asked for."""
    options, beside = dict(_mapping(spec, "options")), {}
    for name in (METHOD, METHOD_OPTIONS):
        if name in options:
            beside[name] = options.pop(name)
    languages = [name for name in str(_part(spec, "task", "language") or "").split(",") if name]
    about = {"experiment": spec.get("experiment"), "model": _part(spec, "model", "name")}
    sizes = {f"{split}_size": _largest(_part(spec, "task", "sizes", split)) for split in ("dev", "test")}
    rest = {"seed": spec.get("seed", 0), "ablation": spec.get("ablation", "zero")}
    task = _part(spec, "task", "name")
    return {**about, "task": task, "languages": languages, **beside, "options": options, **sizes, **rest}


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}


def _largest(sizes: Any) -> int | None:
    counts = [size for size in sizes if isinstance(size, int)] if isinstance(sizes, list) else []
    return max(counts, default=None)


def label(result: ReportResult) -> str:
    """A report in a line: when it was made, of which languages, by which method, on how much."""
    spec = job_spec(result.report.spec)
    when = datetime.fromtimestamp(made_at(result), UTC)
    words = [f"{when.day} {when:%b %Y, %H:%M} UTC", spelled(spec["languages"])]
    words += [str(spec[METHOD])] if METHOD in spec else []
    words += [f"up to {spec['dev_size'] or '?'} examples of dev and {spec['test_size'] or '?'} of test"]
    words += [f"seed {spec['seed']}"] if spec["seed"] else []
    return " · ".join(words)


def differences(spec: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """In which settings a report is another one than what is chosen, in words: its own values.

    spec, wanted: details of jobs.  A size that is wanted as "all" says nothing: how many that is, is not known here.
    """
    names = [name for name in ("languages", METHOD, "dev_size", "test_size", "seed", "ablation") if name in wanted]
    found = {name: spec.get(name) for name in names if wanted[name] not in (None, spec.get(name))}
    if sorted(found.get("languages") or []) == sorted(wanted["languages"]):
        found.pop("languages", None)
    inner = [METHOD_OPTIONS] if spec.get(METHOD) == wanted.get(METHOD) else []
    for part in ("options", *inner):
        own, asked = _mapping(spec, part), _mapping(wanted, part)
        found |= {name: value for name, value in own.items() if name in asked and value != asked[name]}
    return [f"{name.replace('_', ' ')} {told(value)}" for name, value in found.items()]


def told(value: Any) -> str:
    """A setting in words."""
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def facts(result: ReportResult) -> list[tuple[str, str]]:
    """How a report was made, a name and a value each."""
    report, spec = result.report, job_spec(result.report.spec)
    rows = [(name.replace("_", " ").capitalize(), told(spec[name])) for name in spec if name not in INNER]
    rows += [(f"Option {name}", told(value)) for name, value in spec["options"].items()]
    rows += [(f"Method's {name}", told(value)) for name, value in _mapping(spec, METHOD_OPTIONS).items()]
    rows.append(("Model's fingerprint", str(_part(report.spec, "model", "fingerprint") or "")))
    rows.append(("Example forwards", f"{report.example_forwards:,}; what was in the cache already is not counted"))
    rows.append(("Time", duration(report.seconds)))
    versions = result.meta.get("versions")
    if isinstance(versions, Mapping):
        rows.append(("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    return [*rows, ("Report", result.key)]
