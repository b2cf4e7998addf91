"""Roles of a model's heads in one language: looked up, or found in one pass over sentences and kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from headlab.gates import Model
from headlab.models.versions import versions
from headlab.progress import Progress
from headlab.roles.examples import examples_table
from headlab.roles.frequencies import Frequencies, package_frequencies
from headlab.roles.given import Given, read, twice
from headlab.roles.judge import counts_table, judge, measures_table, relations_table, roles_table
from headlab.roles.looking import Sums, look
from headlab.roles.sentences import Sentences
from headlab.roles.syntax import best_offsets
from headlab.roles.table import NAME, VERSION, resolve
from headlab.store import FORMAT, REPORT, Store
from headlab.tables import Report, Table

Say = Callable[[Progress], None]
Tick = Callable[[], None]


def study(
    model: Model,
    sentences: Sentences,
    *,
    options: Mapping[str, Any] | None = None,
    store: Store | None = None,
    frequencies: Frequencies | None = None,
    on_progress: Say = lambda _: None,
    tick: Tick = lambda: None,
) -> Report:
    """The report "roles" of a model on sentences of one language.

    options: as in `headlab.roles.table.OPTIONS`.  store: where it is looked up and kept.  frequencies: of words; None
    takes those of the package wordfreq where it has the language.  tick: called between batches; may raise to
    stop.  Raises HeadlabError for options or sentences that do not fit the model.
    """
    resolved = resolve(options or {})
    told = frequencies or package_frequencies(sentences.language)
    spec = report_spec(model, sentences, resolved, told)
    run = None if store is None else store.run(spec)
    kept = None if run is None else run.kept_report()
    if kept is not None:
        return kept
    began = time.perf_counter()
    given = read(model, sentences, told)
    tables, notes, passes = _found(model, given, resolved, on_progress, tick)
    report = Report(NAME, tables, notes, spec, passes, time.perf_counter() - began)
    if run is not None:
        run.finish(report, {"created": datetime.now(UTC).isoformat(timespec="seconds"), "versions": versions()})
    return report


def forwards(sentences: Sentences) -> int:
    """Examples that a study of these sentences runs through the model, those for induction not counted."""
    return len(sentences)


def report_spec(
    model: Model, sentences: Sentences, options: Mapping[str, Any], frequencies: Frequencies | str
) -> dict[str, Any]:
    """Everything a report depends on; its sha256 names the run."""
    return {
        "format": FORMAT,
        "kind": REPORT,
        "experiment": NAME,
        "version": VERSION,
        "model": model.recorded(),
        "task": sentences.spec(),
        "frequencies": {"source": "none"} if isinstance(frequencies, str) else dict(frequencies.about),
        "ablation": "zero",
        "options": dict(options),
        "seed": 0,
    }


def _found(
    model: Model, given: Given, options: Mapping[str, Any], say: Say, tick: Tick
) -> tuple[tuple[Table, ...], tuple[str, ...], int]:
    """Tables, notes, and how many sentences were run through the model."""
    offsets = best_offsets(map(given.asked, range(len(given))))
    again = twice(model, given) if _decoder(model) else None
    total = len(given) + (0 if again is None else len(again))
    sums, done = Sums.of(model), 0
    for part in (given, again):
        for count, found in look(model, part, options["exclude"], offsets, tick) if part is not None else ():
            sums.add(found if part is given else found.only_roles())
            done += count
            say(Progress(done, total, f"{done} of {total} sentences"))
    rows = judge(sums, model.grid, options)
    shown = examples_table(
        model, given, again, rows, offsets, count=options["examples"], exclude=options["exclude"], tick=tick
    )
    tables = (
        measures_table(sums, model.grid, given.stacks), roles_table(rows), relations_table(rows, offsets),
        counts_table(rows), shown,
    )  # fmt: skip
    return tables, (*given.notes, *_words(model, options)), done


def _decoder(model: Model) -> bool:
    """Whether a model is a decoder alone, whose heads may do induction."""
    return [stack.name for stack in model.grid.stacks] == ["decoder"]


def _words(model: Model, options: Mapping[str, Any]) -> tuple[str, ...]:
    """What to know of every such report."""
    out = [
        "Intervals: the sentence is the cluster; p: one-sided, against chance or the baseline, of a head's best "
        "position times the number of offsets tried; adjusted by Benjamini and Hochberg over all heads and "
        "roles of this report.",
        f"Confidence leaves {options['exclude']} tokens out as targets.",
    ]
    if _decoder(model):
        out.append("This model sees only what stands before: a word is asked only about words before it.")
    return tuple(out)
