"""Reports of experiments as the page finds them: those of a choice, newest first, in words and as a table of facts."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import streamlit as st

from headlab.errors import HeadlabError
from headlab.store import ReportListing, ReportResult
from headlab.studies.table import EXPERIMENTS, METHOD, METHOD_OPTIONS
from headlab.ui.background import Latest
from headlab.ui.cache_folder import Stamp, listed, store
from headlab.ui.experiments_plan import resolvable
from headlab.ui.jobs_words import duration, spelled
from headlab.ui.shell import Choice
from headlab.ui.shell_worker import supervisor

WEIGHTS = "fingerprint"
INNER = ("options", METHOD_OPTIONS, WEIGHTS)
SHORT = 12  # of a fingerprint, enough to tell weights apart
WAIT_SECONDS, FRESH_SECONDS = 0.3, 60.0


def listing() -> ReportListing:
    """Every readable report of the cache folder, read again only when one of its folders changed."""
    return listed(_scan)


@st.cache_resource(max_entries=2, show_spinner=False)
def _scan(root: Path, stamp: Stamp) -> ReportListing:
    return store(root).reports()


def weights_of(model: str) -> str | None:
    """Fingerprint of the weights that a job would take; None where the worker does not know, or not at once."""
    if not supervisor().connected:
        return None
    asked = _asked()
    asked.wait(1, WAIT_SECONDS)
    if asked.error is not None:
        _asked.clear()  # the next look asks again
    return (asked.value or {}).get(model)


@st.cache_resource(ttl=FRESH_SECONDS, show_spinner=False)
def _asked() -> Latest[dict[str, str | None]]:
    worker = supervisor().client()

    def ask() -> Generator[dict[str, str | None]]:
        yield {card["name"]: card["fingerprint"] for card in worker.models()}

    return Latest(ask)


def matching(
    results: Iterable[ReportResult], choice: Choice, experiment: str, weights: str | None = None
) -> list[ReportResult]:
    """Reports of an experiment on a choice's model and task: those that a job would make first, then the newest.

    weights: fingerprint of the model's weights as they are now, None if it is not known.
    """
    wanted = (choice.model, choice.task, experiment)

    def rank(result: ReportResult) -> tuple[bool, bool, float, str]:
        model = job_spec(result.report.spec)
        same = weights is None or model[WEIGHTS] == weights
        return same, "dtype" not in model, made_at(result), result.key

    return sorted((r for r in results if _about(r) == wanted), key=rank, reverse=True)


def _about(result: ReportResult) -> tuple[Any, ...]:
    spec = result.report.spec
    return (part(spec, "model", "name"), part(spec, "task", "name"), spec.get("experiment"))


def part(spec: Mapping[str, Any], *path: str) -> Any:
    """What a spec says at a place, None where it says nothing."""
    value: Any = spec
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def made_at(result: ReportResult) -> float:
    """When a report was made, in Unix seconds; 0 where it does not say, or no year that a clock shows."""
    try:
        when = datetime.fromisoformat(str(result.meta.get("created"))).astimezone(UTC)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, when.timestamp())


def job_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The details of the job that makes a report of this spec; sizes as they were, not as they were asked for.

    Also what no job can ask for: the model's fingerprint, and its dtype where that is not float32.
    """
    options, beside = dict(_mapping(spec, "options")), {}
    for name in (METHOD, METHOD_OPTIONS):
        if name in options:
            beside[name] = options.pop(name)
    languages = [name for name in str(part(spec, "task", "language") or "").split(",") if name]
    about = {"experiment": spec.get("experiment"), "model": part(spec, "model", "name")}
    about |= {WEIGHTS: str(part(spec, "model", WEIGHTS) or "")}
    about |= {"dtype": dtype} if (dtype := part(spec, "model", "dtype")) else {}
    sizes = {f"{split}_size": _largest(part(spec, "task", "sizes", split)) for split in ("dev", "test")}
    rest = {"seed": spec.get("seed", 0), "ablation": spec.get("ablation", "zero")}
    task = part(spec, "task", "name")
    return {**about, "task": task, "languages": languages, **beside, "options": options, **sizes, **rest}


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}


def _largest(sizes: Any) -> int | None:
    counts = [size for size in sizes if isinstance(size, int)] if isinstance(sizes, list) else []
    return max(counts, default=None)


def label(result: ReportResult, weights: str | None = None) -> str:
    """A report in a line: when it was made, of which languages, by which method, on how much, of which weights.

    weights: fingerprint of the chosen model's; where it is not known, those of the report are named.
    """
    spec = job_spec(result.report.spec)
    when = datetime.fromtimestamp(made_at(result), UTC)
    words = [f"{when.day} {when:%b %Y, %H:%M} UTC", spelled(spec["languages"])]
    words += [str(spec[METHOD])] if METHOD in spec else []
    words += [f"up to {spec['dev_size'] or '?'} examples of dev and {spec['test_size'] or '?'} of test"]
    words += [f"seed {spec['seed']}"] if spec["seed"] else []
    words += [f"weights {_short(spec[WEIGHTS])}"] if weights is None and spec[WEIGHTS] else []
    return " · ".join([*words, *_origin(spec, weights)])


def _origin(spec: Mapping[str, Any], weights: str | None) -> list[str]:
    """What sets a report's model apart from the chosen one, in words."""
    own, dtype = spec.get(WEIGHTS), spec.get("dtype")
    other = [f"made with other weights ({_short(own)})"] if weights and own is not None and own != weights else []
    return other + ([f"in {dtype}"] if dtype else [])


def _short(fingerprint: str) -> str:
    return f"{fingerprint[:SHORT]}…" if fingerprint else "which, it does not say"


def differences(spec: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """In which settings a report is another one than what is chosen, in words: its own values.

    spec, wanted: details of jobs; wanted with the fingerprint of the chosen model, where it is known.  A size that
    is wanted as "all" says nothing: how many that is, is not known here.
    """
    spec, wanted = _settled(spec), _settled(wanted)
    names = [name for name in ("languages", METHOD, "dev_size", "test_size", "seed", "ablation") if name in wanted]
    found = {name: spec.get(name) for name in names if wanted[name] not in (None, spec.get(name))}
    if sorted(found.get("languages") or []) == sorted(wanted["languages"]):
        found.pop("languages", None)
    inner = [METHOD_OPTIONS] if spec.get(METHOD) == wanted.get(METHOD) else []
    for part in ("options", *inner):
        own, asked = _mapping(spec, part), _mapping(wanted, part)
        found |= {name: value for name, value in own.items() if name in asked and value != asked[name]}
    words = [f"{name.replace('_', ' ')} {told(value)}" for name, value in found.items()]
    return _origin(spec, wanted.get(WEIGHTS)) + words


def _settled(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Details of a job with its options in full; as they are where they fit no experiment."""
    try:
        full = EXPERIMENTS[spec["experiment"]].resolve(resolvable(spec))
    except (HeadlabError, KeyError):
        return dict(spec)
    beside = {name: full.pop(name) for name in (METHOD, METHOD_OPTIONS) if name in full}
    return {**spec, **beside, "options": full}


def told(value: Any) -> str:
    """A setting in words."""
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {told(inner)}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def facts(result: ReportResult) -> list[tuple[str, str]]:
    """How a report was made, a name and a value each."""
    report, spec = result.report, job_spec(result.report.spec)
    rows = [(name.replace("_", " ").capitalize(), told(spec[name])) for name in spec if name not in INNER]
    rows += [(f"Option {name}", told(value)) for name, value in spec["options"].items()]
    rows += [(f"Method's {name}", told(value)) for name, value in _mapping(spec, METHOD_OPTIONS).items()]
    rows.append(("Model's fingerprint", str(part(report.spec, "model", "fingerprint") or "")))
    rows.append(("Example forwards", f"{report.example_forwards:,}; what was in the cache already is not counted"))
    rows.append(("Time", duration(report.seconds)))
    versions = result.meta.get("versions")
    if isinstance(versions, Mapping):
        rows.append(("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    return [*rows, ("Report", result.key)]
