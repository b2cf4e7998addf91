"""`headlab cache`: the results in the cache, their sizes, and the removal of replaced ones."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from headlab.cli.output import AsJson, CacheRoot, open_store, print_json
from headlab.core import HeadlabError, Report, size_text
from headlab.methods import Superseded, remove_superseded, superseded_results, version_of
from headlab.results import (
    Curve,
    HeadScores,
    LearnedGates,
    Listing,
    Result,
    Store,
    bytes_in,
    reason_to_stay,
)

RemoveSuperseded = Annotated[
    bool,
    typer.Option(
        "--remove-superseded",
        help="remove the scores, of heads or other players, that a newer version of their method "
        "replaces; asks first",
    ),
]
WithoutQuestion = Annotated[
    bool, typer.Option("--yes", help="with --remove-superseded: remove them without a question")
]


def cache(
    removes_superseded: RemoveSuperseded = False,
    yes: WithoutQuestion = False,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """List the results in the cache, and what was skipped and why; or remove replaced ones."""
    store = open_store(cache)
    if removes_superseded:
        _require_answer(yes, json)
        _remove_superseded(store, yes, json)
        return
    if yes:
        raise HeadlabError(
            "--yes answers the question of --remove-superseded; give that too, or leave --yes out",
            code="option.needs_remove_superseded",
        )
    _list_results(store, json)


# `headlab cache`: what is there.


def _list_results(store: Store, json: bool) -> None:
    """Print every result, and a sentence for each one that was skipped.

    Args:
        store: The cache.
        json: Whether to print one JSON object.
    """
    listings: dict[str, Listing[Any]] = {
        "results": store.scan(None),
        "curves": store.curves(None),
        "reports": store.reports(None),
        "gates": store.gates(),
    }
    entries_by_kind = {}
    problems: list[str] = []
    for name, listing in listings.items():
        entries_by_kind[name] = [
            {
                **result_record(result),
                "bytes": bytes_in(result.folder),
                "demo": store.is_of_demo(result),
            }
            for result in listing.results
        ]
        problems += listing.problems
    total_bytes = bytes_in(store.root)
    if json:
        root = str(store.root)
        print_json({"root": root, "bytes": total_bytes, **entries_by_kind, "problems": problems})
        return
    for name, entries in entries_by_kind.items():
        for entry in entries:
            typer.echo(_line_of(entry, name))
    for problem in problems:
        typer.echo(f"! {problem}")
    all_entries = [entry for entries in entries_by_kind.values() for entry in entries]
    demo_count = sum(entry["demo"] for entry in all_entries)
    demo_words = f"; {demo_count} more come with headlab" if demo_count else ""
    typer.echo(
        f"{len(all_entries) - demo_count} results, {len(problems)} skipped, in {store.root} "
        f"({size_text(total_bytes)}){demo_words}"
    )


def _line_of(entry: Mapping[str, Any], kind: str) -> str:
    """One result of a listing.

    Args:
        entry: The result as JSON.
        kind: A key of `LINE_FORMATS`.
    """
    players = entry.get("players")
    of_players = f"  players {players}" if players else ""
    return LINE_FORMATS[kind].format(**entry) + of_players


def result_record(result: Result[Any]) -> dict[str, Any]:
    """A result as JSON."""
    record = result.record
    return {
        "key": result.key,
        "model": record.spec["model"]["name"],
        "task": record.spec["task"]["name"],
        "seconds": record.seconds,
        "example_forwards": record.example_forwards,
        **_kind_record(record),
    }


def _kind_record(record: HeadScores | Curve | Report | LearnedGates) -> dict[str, Any]:
    """What one kind of result says of itself."""
    if isinstance(record, Report):
        spec = record.spec
        return {
            "experiment": record.name,
            "languages": spec["task"]["language"],
            "options": spec["options"],
        }
    if isinstance(record, HeadScores):
        kind_fields = {
            "method": record.method,
            "estimand": record.estimand,
            "options": record.spec["method"]["options"],
        }
    elif isinstance(record, Curve):
        kind_fields = {
            "split": record.split,
            "ordering": record.ordering,
            "points": len(record.removed),
            "area": record.area,
        }
    else:
        counts = {
            "kept": int(record.kept.sum()),
            "heads": record.grid.size,
            "undecided": record.undecided_count(),
        }
        kind_fields = {"weight": record.weight, **counts}
    if record.spec.players:
        kind_fields["players"] = record.spec.players
    return {"language": record.language, **kind_fields, "values_sha256": record.values_sha256()}


LINE_FORMATS = {
    "results": "{key:.12}  {model}  {task}/{language}  {method} ({estimand})  {seconds:.0f} s",
    "curves": "{key:.12}  {model}  {task}/{language}  curve by {ordering}, {points} points  "
    "{seconds:.0f} s",
    "reports": "{key:.12}  {model}  {task}/{languages}  experiment {experiment}  {seconds:.0f} s",
    "gates": "{key:.12}  {model}  {task}/{language}  gates at λ {weight:g}, {kept} of {heads} heads  "
    "{seconds:.0f} s",
}


# `headlab cache --remove-superseded`: results that a newer version of their method replaces.


@dataclass(frozen=True)
class Candidate:
    """A result that is replaced, as it was when the command looked.

    Attributes:
        superseded: The result and its successor.
        bytes: Of all its files.
        reason_to_stay: Why it is not removed, in a clause; empty if it may be.
    """

    superseded: Superseded
    bytes: int
    reason_to_stay: str = ""

    @property
    def key(self) -> str:
        """The key of the result."""
        return self.superseded.result.key

    def record(self) -> dict[str, Any]:
        """The result as JSON, with its size and its successor."""
        result = self.superseded.result
        successor = self.superseded.successor
        return {
            **result_record(result),
            "bytes": self.bytes,
            "version": version_of(result.record.spec),
            "successor": successor.key,
            "successor_version": version_of(successor.record.spec),
        }


def _require_answer(yes: bool, json: bool) -> None:
    """Raise HeadlabError if nobody has agreed to the removal, and nobody can be asked.

    Args:
        yes: Whether the user has agreed.
        json: Whether the output is one JSON object.
    """
    if yes:
        return
    if json:
        raise HeadlabError(
            "with --json nothing is asked, so nothing was removed; add --yes to remove the "
            "results, or leave --json out to be asked",
            code="option.needs_yes",
        )
    can_ask = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
    if not can_ask:
        raise HeadlabError(
            "--remove-superseded asks before it removes, and there is no terminal to ask on, so "
            "nothing was removed; add --yes to remove the results without a question",
            code="terminal.missing",
        )


def _remove_superseded(store: Store, yes: bool, json: bool) -> None:
    """List the results that are replaced, ask, remove them, and say so.

    Args:
        store: The cache.
        yes: Whether to remove them without a question.
        json: Whether to print one JSON object and nothing else.

    Raises:
        HeadlabError: A result may not be removed.
    """
    listing = store.scan(None)
    candidates = [
        _candidate(superseded)
        for superseded in superseded_results(listing.results)
        if not store.is_of_demo(superseded.result)
    ]
    removable = [candidate for candidate in candidates if not candidate.reason_to_stay]
    reasons = {
        candidate.key: candidate.reason_to_stay
        for candidate in candidates
        if candidate.reason_to_stay
    }
    if not json:
        _print_removable(store, removable)
        _print_reasons(reasons)
        _print_unreadable(len(listing.problems))
    if removable and not yes and not _agrees(len(removable)):
        typer.echo("nothing was removed")
        return
    removed, later_reasons = _remove(store, removable)
    store.sweep()
    removed_bytes = sum(candidate.bytes for candidate in removed)
    if json:
        all_reasons = {**reasons, **later_reasons}
        print_json(
            {
                "root": str(store.root),
                "bytes": removed_bytes,
                "removed": [candidate.record() for candidate in removed],
                "stay": [{"key": key, "reason": text} for key, text in all_reasons.items()],
                "problems": list(listing.problems),
            }
        )
        return
    _print_reasons(later_reasons)
    if removable:
        typer.echo(f"removed {_results_words(len(removed))}, {size_text(removed_bytes)}")


def _candidate(superseded: Superseded) -> Candidate:
    """A result that is replaced, with its size and why it stays if it does.

    Args:
        superseded: The result and its successor.
    """
    folder = superseded.result.folder
    return Candidate(superseded, bytes_in(folder), reason_to_stay(folder))


def _print_removable(store: Store, candidates: Sequence[Candidate]) -> None:
    """Print the results that are replaced and may be removed.

    Args:
        store: The cache.
        candidates: The results.
    """
    for candidate in candidates:
        record = candidate.record()
        typer.echo(
            f"{_line_of(record, 'results')}  version {record['version']}, replaced by version "
            f"{record['successor_version']} ({record['successor']:.12})"
        )
    total_bytes = sum(candidate.bytes for candidate in candidates)
    typer.echo(
        f"{_results_words(len(candidates))} replaced by newer versions of their methods, "
        f"in {store.root} ({size_text(total_bytes)}); these are scores, and all else stays"
    )


def _print_unreadable(count: int) -> None:
    """Say that what cannot be read is left alone, if there is any.

    Args:
        count: How many results cannot be read.
    """
    if count:
        typer.echo(
            f"! {_results_words(count)} cannot be read (headlab cache says why): what cannot be "
            "read stays, and replaces nothing"
        )


def _print_reasons(reasons: Mapping[str, str]) -> None:
    """Print why results stay.

    Args:
        reasons: Clauses by the keys of the results.
    """
    for key, reason in reasons.items():
        typer.echo(f"! {key:.12} stays: {reason}")


def _agrees(count: int) -> bool:
    """Ask on the terminal whether to remove results; anything but yes is no.

    Args:
        count: How many there are.
    """
    results = "this result" if count == 1 else f"these {count} results"
    typer.echo(f"Remove {results}? [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    return answer.strip().lower() in ("y", "yes")


def _remove(
    store: Store, candidates: Sequence[Candidate]
) -> tuple[list[Candidate], dict[str, str]]:
    """Remove results, one after the other.

    Args:
        store: The cache.
        candidates: The results.

    Returns:
        Those that are gone, and why the others stay, by key.

    Raises:
        HeadlabError: A result may not be removed; those before it are gone.
    """
    removed: list[Candidate] = []
    reasons = {}
    for candidate in candidates:
        try:
            reason = remove_superseded(store, candidate.superseded)
        except HeadlabError as error:
            raise HeadlabError(
                f"{error} ({_results_words(len(removed))} removed before it)", code=error.code
            ) from error
        if reason:
            reasons[candidate.key] = reason
        else:
            removed.append(candidate)
    return removed, reasons


def _results_words(count: int) -> str:
    """A number of results in words.

    Args:
        count: How many there are.
    """
    return f"{count} result" if count == 1 else f"{count} results"
