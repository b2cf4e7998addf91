"""Roles of a model's heads in one language: tests, examples and tables, cached or computed in one pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from headlab.core import (
    FORMAT,
    HEAD,
    HEAD_FORMATS,
    Cell,
    Floats,
    Head,
    HeadGrid,
    Ints,
    ModelSpec,
    OptionValue,
    Progress,
    Report,
    RunSpec,
    Table,
    integer_in,
    number_in,
)
from headlab.core.parallel import Tick, spread
from headlab.evaluation import Batch
from headlab.hooks import Model, not_finite, sides, sum_weights
from headlab.models import made_now, readable
from headlab.results import REPORT, Store
from headlab.roles.attention_statistics import (
    MEASURES,
    Sums,
    answers,
    batches,
    evaluated_layers,
    look,
    right,
)
from headlab.roles.report import COLUMNS
from headlab.roles.sentences import Frequencies, Sentences, best_offsets, package_frequencies
from headlab.roles.table import (
    ALPHA,
    DIRECTIONS,
    INDUCTION,
    KINDS,
    NAME,
    OFFSETS,
    POSITIONAL,
    RELATIONS,
    SYNTACTIC,
    THRESHOLDS,
    VERSION,
    kind_of,
    position,
    resolve,
    syntactic,
)
from headlab.roles.tokenised import Given, Question, needs_of_sentences, read, scene, twice
from headlab.stats import TERMS, benjamini_hochberg, ratio_excess, ratio_interval

# From sums over sentences to tables: measures of every head, its roles, the best head of each relation.


class Row(NamedTuple):
    """One head and one candidate role; shares and differences as fractions of 1.

    counts: float [TERMS].  p: one-sided, against chance; adjusted: over all rows of the report.
    """

    head: Head
    role: str
    counts: Floats
    share: tuple[float, float, float]
    excess: tuple[float, float, float]
    p: float
    adjusted: float = 1.0
    has: bool = False

    def sum(self, term: str) -> float:
        """The sum of one of TERMS."""
        return float(self.counts[TERMS.index(term)])

    @property
    def chance(self) -> float:
        """Share expected by chance, or of the baseline."""
        return self.sum("c") / self.sum("n")


def judge(sums: Sums, grid: HeadGrid, options: Mapping[str, OptionValue]) -> list[Row]:
    """A row for every head and every role that was asked, heads in the grid's order."""
    rows = []
    level = float(number_in(options, "level"))
    tried = sum(
        bool(sums.role(position(offset))[..., TERMS.index("n")].any()) for offset in OFFSETS
    )
    for places, roles in _candidates(sums, grid):
        found = np.stack(
            [
                sums.roles[role][tuple(grid.flat[place])]
                for place, role in zip(places, roles, strict=True)
            ]
        )
        share = ratio_interval(found, level)
        excess = ratio_excess(found, level)
        for i, (place, role) in enumerate(zip(places, roles, strict=True)):
            p = float(excess.p[i]) * (tried if kind_of(role) == POSITIONAL else 1)
            told = (tuple(float(v[i]) for v in share), tuple(float(v[i]) for v in excess[:3]))
            rows.append(Row(grid.heads[place], role, found[i], *told, min(p, 1.0)))  # type: ignore[arg-type]
    adjusted = benjamini_hochberg(np.array([row.p for row in rows]))
    rows = [row._replace(adjusted=float(p)) for row, p in zip(rows, adjusted, strict=True)]
    order = {kind: place for place, kind in enumerate(KINDS)}
    rows.sort(key=lambda row: (grid.index(row.head), order[kind_of(row.role)]))
    return [row._replace(has=_has(row, options)) for row in rows]


def _candidates(sums: Sums, grid: HeadGrid) -> Iterator[tuple[list[int], list[str]]]:
    """(flat indices of heads, the role of each) for every kind of role that was asked; a head's best position only."""
    h, n = TERMS.index("h"), TERMS.index("n")

    def asked(role: str) -> Ints:
        return np.flatnonzero(sums.roles[role][tuple(grid.flat.T)][:, n])

    names = [position(offset) for offset in OFFSETS if position(offset) in sums.roles]
    if names:
        each = np.stack([sums.roles[name][tuple(grid.flat.T)] for name in names])
        shares = each[..., h] / np.maximum(each[..., n], 1)
        places = np.flatnonzero(each[..., n].any(axis=0))
        if len(places):
            yield places.tolist(), [names[best] for best in shares.argmax(axis=0)[places]]
    for role in sums.roles:
        if kind_of(role) != POSITIONAL and len(asked(role)):
            yield asked(role).tolist(), [role] * len(asked(role))


def _has(row: Row, options: Mapping[str, OptionValue]) -> bool:
    """Whether a head has a role: enough of its tokens or pairs, and significantly above chance."""
    base = row.sum("c") if row.role in SYNTACTIC else 0.0
    threshold = number_in(options, THRESHOLDS[kind_of(row.role)])
    enough = row.sum("h") - base >= threshold * row.sum("n") - 1e-9
    return bool(enough and row.adjusted <= ALPHA)


def measures_table(sums: Sums, grid: HeadGrid, stacks: Sequence[str]) -> Table:
    """One row per head: how sharply and how far it attends."""
    rows: list[tuple[Cell, ...]] = []
    for head, (layer, column) in zip(grid.heads, grid.flat, strict=True):
        if head.stack in stacks and sums.tokens[layer]:
            found: list[Cell] = (sums.measures[layer, column] / sums.tokens[layer]).tolist()
            if head.stack == "cross":
                found[MEASURES.index("distance, tokens")] = None
            rows.append((*head, *found, int(sums.tokens[layer])))
    return Table(
        "measures",
        "How sharply and how far heads look: means over the tokens that look",
        (*HEAD, *MEASURES, "tokens"),
        (*HEAD_FORMATS, ".3f", ".2f", ".2f", ".3f", ".3f", "d"),
        tuple(rows),
    )


def roles_table(rows: Sequence[Row]) -> Table:
    """One row per head and candidate role."""
    return Table(
        "roles",
        "Roles of heads: how often a head looks where the role wants, against chance or the best fixed offset",
        COLUMNS,
        (*HEAD_FORMATS, "", *[".1f"] * 4, *["+.1f"] * 3, "d", "d", "d", ".4f", ".4f", ""),
        tuple(_row(row) for row in rows),
        ("Has it: the share reaches the role's threshold and the adjusted p is at most 0.05.",),
    )


def _row(row: Row) -> tuple[Cell, ...]:
    numbers = (100 * value for value in (*row.share, row.chance, *row.excess))
    counts = (int(row.sum(term)) for term in ("h", "n", "1"))
    return (*row.head, row.role, *numbers, *counts, row.p, row.adjusted, row.has)


def relations_table(rows: Sequence[Row], offsets: Mapping[str, int]) -> Table:
    """One row per relation and direction: the best head against the baseline of the most frequent offset."""
    out: list[tuple[Cell, ...]] = []
    for relation in RELATIONS:
        for direction in DIRECTIONS:
            of_role = [row for row in rows if row.role == syntactic(relation, direction)]
            if of_role:
                best = max(of_role, key=lambda row: row.share[0])
                shares = [100 * value for value in (*best.share, best.chance)]
                has, pairs = sum(row.has for row in of_role), int(best.sum("n"))
                out.append(
                    (relation, direction, *best.head, *shares, offsets[best.role], pairs, has)
                )
    return Table(
        "relations",
        "Syntactic relations: the best head, and the baseline of the relation's most frequent offset",
        (
            "relation",
            "direction",
            *HEAD,
            "best, %",
            "low, %",
            "high, %",
            "baseline, %",
            "offset",
            "pairs",
            "heads",
        ),
        ("", "", *HEAD_FORMATS, ".1f", ".1f", ".1f", ".1f", "+d", "d", "d"),
        tuple(out),
        (
            "The best of many heads is chosen on the sentences it is shown on, so its share is a little too high.",
        ),
    )


def counts_table(rows: Sequence[Row]) -> Table:
    """One row per kind of role: how many heads have it."""
    kinds = [kind for kind in KINDS if any(kind_of(row.role) == kind for row in rows)]
    counted = [[row.has for row in rows if kind_of(row.role) == kind] for kind in kinds]
    return Table(
        "role-counts",
        "How many heads have each role",
        ("role", "heads", "of"),
        ("", "d", "d"),
        tuple((kind, sum(has), len(has)) for kind, has in zip(kinds, counted, strict=True)),
    )


# Sentences in which the best head of a role fulfils it, and in which it does not.

SEEN = 256  # sentences that are searched for examples
Found = dict[tuple[str, bool], list[tuple[Cell, ...]]]  # rows of each role, hits and misses


def examples_table(
    model: Model,
    given: Given,
    again: Given | None,
    rows: Sequence[Row],
    offsets: Mapping[str, int],
    *,
    count: int,
    exclude: str,
    tick: Tick,
) -> Table:
    """For every kind of role that a head has, its best head: `count` sentences with a hit and `count` with a miss.

    again: the repeated sentences, the only ones used for induction.  tick: called between batches; may raise to stop.
    """
    best: dict[str, Row] = {}
    for row in rows:
        kind = kind_of(row.role)
        if row.has and (kind not in best or row.share[0] > best[kind].share[0]):
            best[kind] = row
    wanted = {row.role: row.head for row in best.values()}
    found: Found = {(role, good): [] for role in wanted for good in (True, False)}
    for part in (given, again):
        asked = {
            role: head for role, head in wanted.items() if (role == INDUCTION) == (part is again)
        }
        if part is not None and asked and count:
            found |= _Finder(model, part, asked, offsets, count, exclude).find(tick)
    return Table(
        "role-examples",
        "Where the best head of each role looks as the role wants, and where it does not",
        ("role", *HEAD, "right", "sentence", "word", "looks at", "should look at"),
        ("", *HEAD_FORMATS, "", "", "", "", ""),
        tuple(row for kept in found.values() for row in kept),
    )


def _sought(model: Model, given: Given) -> list[Batch]:
    """Batches of at most SEEN sentences in all, medium lengths first: neither the shortest nor the longest."""
    found = batches(model, given)
    middle, left, out = len(found) // 2, SEEN, list[Batch]()
    for batch in (*found[middle:], *found[:middle][::-1]):
        if left > 0:
            out.append(
                Batch(batch.rows[:left], {name: t[:left] for name, t in batch.inputs.items()})
            )
            left -= len(batch.rows)
    return out


@dataclass(frozen=True)
class _Finder:
    """Searches for one answer per sentence, right or wrong, until there are enough of each."""

    model: Model
    given: Given
    wanted: Mapping[str, Head]
    offsets: Mapping[str, int]
    count: int
    exclude: str

    def find(self, tick: Tick) -> Found:
        """`count` rows of every role, hits and misses, or as many as there are; the same on any number of lanes."""
        found: Found = {(role, good): [] for role in self.wanted for good in (True, False)}

        def missing() -> set[str]:
            return {role for (role, _), rows in found.items() if len(rows) < self.count}

        def run(batch: Batch, lane_tick: Tick) -> Found:
            lane_tick()
            # More roles may be missing here than when the batch's turn comes, never fewer.
            return self._look(batch, missing())

        for _, more in spread(_sought(self.model, self.given), run, on=self.model, tick=tick):
            for key, rows in more.items():
                found[key].extend(rows[: self.count - len(found[key])])
            if not missing():
                break
        return found

    def _look(self, batch: Batch, roles: set[str]) -> Found:
        """A batch's examples of some roles."""
        out: Found = {}
        if not roles:
            return out
        stacks = evaluated_layers(self.model, self.given)
        grid = self.model.grid
        columns = {role: grid.flat[grid.index(self.wanted[role])].tolist() for role in roles}
        layers = {layer for layer, _ in columns.values()}
        scenes = {
            stack: scene(self.model, self.given, batch, stack, self.exclude, self.offsets)
            for stack in {stacks[layer] for layer in layers}
        }

        def observe(row: int, weights: torch.Tensor) -> None:
            for question, most in answers(scenes[stacks[row]], weights):
                layer, column = columns.get(question.role, (-1, 0))
                if layer == row:
                    hits = right(question, most)[:, column]
                    for good in (True, False):
                        out[question.role, good] = self._shown(
                            question, batch, most[:, column], hits, good
                        )

        sum_weights(self.model, batch.inputs, observe, layers)
        return out

    def _shown(
        self, question: Question, batch: Batch, most: torch.Tensor, hits: torch.Tensor, good: bool
    ) -> list[tuple[Cell, ...]]:
        """Rows of the first sentences with such an answer."""
        asked = (question.asked & (most >= 0) & (hits == good)).cpu().numpy()
        head, out = self.wanted[question.role], list[tuple[Cell, ...]]()
        for row in np.flatnonzero(asked.any(axis=1))[: self.count].tolist():
            at, sentence = int(np.flatnonzero(asked[row])[0]), int(batch.rows[row])
            word = self._name(question, batch, row, at, 0)
            wants = question.right[row, at].nonzero().flatten().tolist()
            looks, *should = (
                self._name(question, batch, row, place, 1) for place in (int(most[row, at]), *wants)
            )
            out.append(
                (question.role, *head, good, self._text(sentence), word, looks, " / ".join(should))
            )
        return out

    def _text(self, sentence: int) -> str:
        words = self.given.words[sentence] if self.given.words else ()
        return (
            " ".join(words) if words else str(self.model.tokenizer.decode(self.given.ids[sentence]))
        )

    def _name(self, question: Question, batch: Batch, row: int, place: int, side: int) -> str:
        """A word, or a token as people read it; side: 0 for the query, 1 for the key."""
        if question.among == "words":
            return self.given.words[int(batch.rows[row])][place]
        ids, _ = sides(batch.inputs, self.wanted[question.role].stack)[side]
        return readable(self.model.tokenizer, ids[row].tolist())[place]


# Roles of a model's heads in one language: loaded from the store, or computed in one pass and stored.

Say = Callable[[Progress], None]


def study(
    model: Model,
    sentences: Sentences,
    *,
    options: Mapping[str, object] | None = None,
    store: Store | None = None,
    frequencies: Frequencies | None = None,
    on_progress: Say = lambda _: None,
    tick: Tick = lambda: None,
) -> Report:
    """The report "roles" of a model on sentences of one language.

    options: as in `headlab.roles.table.OPTIONS`.  store: where the report is looked up and stored.  frequencies: of
    words; None uses those of the package wordfreq if it has the language.  tick: called between batches; may raise to
    stop.  Raises HeadlabError for options or sentences that do not fit the model.
    """
    resolved = resolve(options or {})
    told = frequencies or package_frequencies(sentences.language)
    spec = report_spec(model, sentences, resolved, told)
    run = None if store is None else store.run(spec)
    if store is not None:
        corpus = None if frequencies is None else frequencies.file
        store.note_places(
            spec, model, sentences.task, data=sentences.data, trees=sentences.file, corpus=corpus
        )
    kept = None if run is None else run.kept_report()
    if kept is not None:
        return kept
    began = time.perf_counter()
    given = read(model, sentences, told)
    tables, notes, passes = _found(model, given, resolved, on_progress, tick)
    report = Report(NAME, tables, notes, spec, passes, time.perf_counter() - began)
    if run is not None:
        run.finish(report, made_now())
    return report


def forwards(sentences: Sentences) -> int:
    """Number of examples that a study of these sentences runs through the model, without those for induction."""
    return len(sentences)


def report_spec(
    model: Model, sentences: Sentences, options: Mapping[str, Any], frequencies: Frequencies | str
) -> RunSpec:
    """Everything a report depends on; its key names the run."""
    return RunSpec(
        format=FORMAT,
        kind=REPORT,
        experiment=NAME,
        version=VERSION,
        model=ModelSpec.from_json(model.recorded()),
        task=replace(sentences.spec(), more={**needs_of_sentences(model, sentences).version()}),
        frequencies={"source": "none"} if isinstance(frequencies, str) else frequencies.about,
        ablation="zero",
        options=dict(options),
        seed=0,
    )


def _found(
    model: Model, given: Given, options: Mapping[str, OptionValue], say: Say, tick: Tick
) -> tuple[tuple[Table, ...], tuple[str, ...], int]:
    """Tables, notes, and the number of sentences run through the model."""
    offsets = best_offsets(map(given.asked, range(len(given))))
    again = twice(model, given) if _decoder(model) else None
    total = len(given) + (0 if again is None else len(again))
    exclude = str(options["exclude"])
    sums, done = Sums.of(model), 0
    for part in (given, again):
        for count, found in look(model, part, exclude, offsets, tick) if part is not None else ():
            if not np.isfinite(found.measures).all():
                place = f"sentences {done + 1} to {done + count} of {total}"
                raise not_finite(
                    model,
                    f"attention weights that are not finite in {place}",
                    code="model.answers_not_finite",
                )
            sums.add(found if part is given else found.only_roles())
            done += count
            say(Progress(done, total, f"{done} of {total} sentences"))
    rows = judge(sums, model.grid, options)
    shown = examples_table(
        model,
        given,
        again,
        rows,
        offsets,
        count=integer_in(options, "examples"),
        exclude=exclude,
        tick=tick,
    )
    tables = (
        measures_table(sums, model.grid, given.stacks), roles_table(rows), relations_table(rows, offsets),
        counts_table(rows), shown,
    )  # fmt: skip
    return tables, (*given.notes, *_words(model, options)), done


def _decoder(model: Model) -> bool:
    """Whether a model is decoder-only, so that its heads may do induction."""
    return [stack.name for stack in model.grid.stacks] == ["decoder"]


def _words(model: Model, options: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """Notes that belong to every report."""
    out = [
        "Intervals: the sentence is the cluster; p: one-sided, against chance or the baseline, of a head's best "
        "position times the number of offsets tried; adjusted by Benjamini and Hochberg over all heads and "
        "roles of this report.",
        f"Confidence leaves {options['exclude']} tokens out as targets.",
    ]
    if _decoder(model):
        out.append(
            "This model sees only what stands before: a word is asked only about words before it."
        )
    return tuple(out)
