"""Roles of a model's heads in one language: tests, examples and tables.

They are cached, or computed in one pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from headlab.core import (
    HEAD_COLUMNS,
    HEAD_FORMATS,
    RESULT_FORMAT,
    Cell,
    Floats,
    Head,
    HeadGrid,
    ModelSpec,
    OptionValue,
    Progress,
    Report,
    RunSpec,
    Table,
    Tick,
    integer_in,
    number_in,
    run_in_parallel,
)
from headlab.evaluation import Batch
from headlab.hooks import Model, not_finite_error, query_and_key_tokens, sum_weights
from headlab.models import origin_now, readable_tokens
from headlab.results import REPORT_KIND, Store
from headlab.roles.attention_statistics import (
    MEASURES,
    Sums,
    attends_correctly,
    batches,
    evaluated_layers,
    most_attended_keys,
    sums_by_batch,
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
from headlab.roles.tokenised import (
    Question,
    TokenisedSentences,
    needs_of_sentences,
    read,
    repeated_sentences,
    stack_view,
)
from headlab.stats import TERMS, benjamini_hochberg, ratio_excess, ratio_interval

# From sums over sentences to tables: measures of every head, its roles, the best head of each
# relation.


class RoleTest(NamedTuple):
    """The test of one head for one candidate role; shares and differences are fractions of 1.

    Attributes:
        head: The head.
        role: Name of the role.
        counts: Sums over the sentences, float [term].
        share: Share of the queries that attend correctly, with the ends of its interval.
        excess: How far it is above chance, with the ends of its interval.
        p: One-sided p-value, against chance.
        adjusted: The same, adjusted over all tests of the report.
        has: Whether the head has the role.
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


def judge(sums: Sums, grid: HeadGrid, options: Mapping[str, OptionValue]) -> list[RoleTest]:
    """A test for every head and every role that was asked, heads in the grid's order."""
    tests = []
    level = float(number_in(options, "level"))
    queries = TERMS.index("n")
    offsets_tried = 0
    for offset in OFFSETS:
        offsets_tried += bool(sums.role(position(offset))[..., queries].any())
    for head_indices, roles in _candidates(sums, grid):
        counts = []
        for head_index, role in zip(head_indices, roles, strict=True):
            counts.append(sums.roles[role][tuple(grid.flat[head_index])])
        share = ratio_interval(np.stack(counts), level)
        excess = ratio_excess(np.stack(counts), level)
        for i, (head_index, role) in enumerate(zip(head_indices, roles, strict=True)):
            p = float(excess.p[i])
            if kind_of(role) == POSITIONAL:
                p *= offsets_tried  # the best of them was chosen
            test = RoleTest(
                head=grid.heads[head_index],
                role=role,
                counts=counts[i],
                share=_with_ends(share, i),
                excess=_with_ends(excess[:3], i),
                p=min(p, 1.0),
            )
            tests.append(test)
    adjusted = benjamini_hochberg(np.array([test.p for test in tests]))
    tests = [test._replace(adjusted=float(p)) for test, p in zip(tests, adjusted, strict=True)]
    order = {kind: index for index, kind in enumerate(KINDS)}
    tests.sort(key=lambda test: (grid.index(test.head), order[kind_of(test.role)]))
    return [test._replace(has=_has_role(test, options)) for test in tests]


def _with_ends(estimate: Sequence[Floats], index: int) -> tuple[float, float, float]:
    """One of several estimates with the ends of its interval."""
    value, low, high = estimate
    return float(value[index]), float(low[index]), float(high[index])


def _candidates(sums: Sums, grid: HeadGrid) -> Iterator[tuple[list[int], list[str]]]:
    """The heads to be tested, and for which role each, for every kind of role that was asked.

    Of the positions, a head is tested for its best one only.

    Yields:
        Flat indices of heads, and the role of each.
    """
    hits = TERMS.index("h")
    queries = TERMS.index("n")
    all_heads = tuple(grid.flat.T)
    names = [position(offset) for offset in OFFSETS if position(offset) in sums.roles]
    if names:
        sums_by_position = np.stack([sums.roles[name][all_heads] for name in names])
        shares = sums_by_position[..., hits] / np.maximum(sums_by_position[..., queries], 1)
        head_indices = np.flatnonzero(sums_by_position[..., queries].any(axis=0))
        best_positions = shares.argmax(axis=0)[head_indices]
        if len(head_indices):
            yield head_indices.tolist(), [names[index] for index in best_positions]
    for role, role_sums in sums.roles.items():
        heads_asked = np.flatnonzero(role_sums[all_heads][:, queries]).tolist()
        if kind_of(role) != POSITIONAL and heads_asked:
            yield heads_asked, [role] * len(heads_asked)


def _has_role(test: RoleTest, options: Mapping[str, OptionValue]) -> bool:
    """Whether a head has a role: enough of its tokens or pairs, and significantly above chance."""
    baseline = test.sum("c") if test.role in SYNTACTIC else 0.0
    threshold = number_in(options, THRESHOLDS[kind_of(test.role)])
    reaches_threshold = test.sum("h") - baseline >= threshold * test.sum("n") - 1e-9
    return bool(reaches_threshold and test.adjusted <= ALPHA)


def measures_table(sums: Sums, grid: HeadGrid, stacks: Sequence[str]) -> Table:
    """One row per head: how sharply and how far it attends."""
    rows: list[tuple[Cell, ...]] = []
    for head, (layer, column) in zip(grid.heads, grid.flat, strict=True):
        if head.stack in stacks and sums.tokens[layer]:
            means: list[Cell] = (sums.measures[layer, column] / sums.tokens[layer]).tolist()
            if head.stack == "cross":
                means[MEASURES.index("distance, tokens")] = None
            rows.append((*head, *means, int(sums.tokens[layer])))
    return Table(
        "measures",
        "How sharply and how far heads look: means over the tokens that look",
        (*HEAD_COLUMNS, *MEASURES, "tokens"),
        (*HEAD_FORMATS, ".3f", ".2f", ".2f", ".3f", ".3f", "d"),
        tuple(rows),
    )


def roles_table(rows: Sequence[RoleTest]) -> Table:
    """One row per head and candidate role."""
    return Table(
        "roles",
        "Roles of heads: how often a head looks where the role wants, against chance or the best fixed offset",
        COLUMNS,
        (*HEAD_FORMATS, "", *[".1f"] * 4, *["+.1f"] * 3, "d", "d", "d", ".4f", ".4f", ""),
        tuple(_row(row) for row in rows),
        ("Has it: the share reaches the role's threshold and the adjusted p is at most 0.05.",),
    )


def _row(test: RoleTest) -> tuple[Cell, ...]:
    percentages = (100 * share for share in (*test.share, test.chance, *test.excess))
    counts = (int(test.sum(term)) for term in ("h", "n", "1"))
    return (*test.head, test.role, *percentages, *counts, test.p, test.adjusted, test.has)


def relations_table(rows: Sequence[RoleTest], offsets: Mapping[str, int]) -> Table:
    """One row per relation and direction: the best head, against the most frequent offset.

    Args:
        rows: The tests of all heads.
        offsets: The most frequent offset of each syntactic role.
    """
    table_rows: list[tuple[Cell, ...]] = []
    for relation in RELATIONS:
        for direction in DIRECTIONS:
            role = syntactic(relation, direction)
            tests_of_role = [test for test in rows if test.role == role]
            if not tests_of_role:
                continue
            best_test = max(tests_of_role, key=lambda test: test.share[0])
            percentages = [100 * share for share in (*best_test.share, best_test.chance)]
            pairs = int(best_test.sum("n"))
            heads_with_role = sum(test.has for test in tests_of_role)
            numbers = (*percentages, offsets[role], pairs, heads_with_role)
            table_rows.append((relation, direction, *best_test.head, *numbers))
    return Table(
        "relations",
        "Syntactic relations: the best head, and the baseline of the relation's most frequent offset",
        (
            "relation",
            "direction",
            *HEAD_COLUMNS,
            "best, %",
            "low, %",
            "high, %",
            "baseline, %",
            "offset",
            "pairs",
            "heads",
        ),
        ("", "", *HEAD_FORMATS, ".1f", ".1f", ".1f", ".1f", "+d", "d", "d"),
        tuple(table_rows),
        (
            "The best of many heads is chosen on the sentences it is shown on, so its share is a little too high.",
        ),
    )


def counts_table(rows: Sequence[RoleTest]) -> Table:
    """One row per kind of role: how many heads have it."""
    table_rows: list[tuple[Cell, ...]] = []
    for kind in KINDS:
        tests_of_kind = [test for test in rows if kind_of(test.role) == kind]
        if tests_of_kind:
            heads_with_role = sum(test.has for test in tests_of_kind)
            table_rows.append((kind, heads_with_role, len(tests_of_kind)))
    return Table(
        "role-counts",
        "How many heads have each role",
        ("role", "heads", "of"),
        ("", "d", "d"),
        tuple(table_rows),
    )


# Sentences in which the best head of a role fulfils it, and in which it does not.

MAX_SEARCHED = 256  # sentences that are searched for examples
ExampleRows = dict[tuple[str, bool], list[tuple[Cell, ...]]]  # rows of each role, hits and misses


def examples_table(
    model: Model,
    tokenised: TokenisedSentences,
    repeated: TokenisedSentences | None,
    rows: Sequence[RoleTest],
    offsets: Mapping[str, int],
    *,
    count: int,
    exclude: str,
    tick: Tick,
) -> Table:
    """Sentences that show the best head of every kind of role that a head has.

    Args:
        model: The model whose heads are studied.
        tokenised: The sentences.
        repeated: The repeated sentences, the only ones used for induction.
        rows: The tests of all heads.
        offsets: The fixed offset that each syntactic role is compared with.
        count: Number of sentences with a hit, and of those with a miss.
        exclude: Tokens that do not count as targets of confidence.
        tick: Called between batches; may raise to stop.
    """
    best_tests: dict[str, RoleTest] = {}
    for test in rows:
        kind = kind_of(test.role)
        best_test = best_tests.get(kind)
        if test.has and (best_test is None or test.share[0] > best_test.share[0]):
            best_tests[kind] = test
    head_by_role = {test.role: test.head for test in best_tests.values()}
    example_rows = _no_rows(head_by_role)
    for part in (tokenised, repeated):
        heads_to_show = {}
        for role, head in head_by_role.items():
            if (role == INDUCTION) == (part is repeated):
                heads_to_show[role] = head
        if part is not None and heads_to_show and count:
            finder = _ExampleFinder(model, part, heads_to_show, offsets, count, exclude)
            example_rows |= finder.find(tick)
    return Table(
        "role-examples",
        "Where the best head of each role looks as the role wants, and where it does not",
        ("role", *HEAD_COLUMNS, "right", "sentence", "word", "looks at", "should look at"),
        ("", *HEAD_FORMATS, "", "", "", "", ""),
        tuple(chain.from_iterable(example_rows.values())),
    )


def _no_rows(roles: Iterable[str]) -> ExampleRows:
    """No example yet of any role, neither a hit nor a miss."""
    example_rows: ExampleRows = {}
    for role in roles:
        example_rows[role, True] = []
        example_rows[role, False] = []
    return example_rows


def _batches_to_search(model: Model, tokenised: TokenisedSentences) -> list[Batch]:
    """Batches of at most MAX_SEARCHED sentences in all.

    Medium lengths come first, as neither the shortest nor the longest sentences are good examples.
    """
    by_length = batches(model, tokenised)
    middle = len(by_length) // 2
    sentences_left = MAX_SEARCHED
    batches_to_search = []
    for batch in (*by_length[middle:], *by_length[:middle][::-1]):
        if sentences_left <= 0:
            break
        inputs = {name: tensor[:sentences_left] for name, tensor in batch.inputs.items()}
        batches_to_search.append(Batch(batch.rows[:sentences_left], inputs))
        sentences_left -= len(batch.rows)
    return batches_to_search


@dataclass(frozen=True)
class _ExampleFinder:
    """Searches for one answer per sentence, right or wrong, until there are enough of each."""

    model: Model
    tokenised: TokenisedSentences
    head_by_role: Mapping[str, Head]
    offsets: Mapping[str, int]
    count: int
    exclude: str

    def find(self, tick: Tick) -> ExampleRows:
        """`count` rows of every role, hits and misses, or as many as there are.

        They are the same on any number of threads.
        """
        example_rows = _no_rows(self.head_by_role)

        def roles_missing() -> set[str]:
            return {role for (role, _), rows in example_rows.items() if len(rows) < self.count}

        def run(batch: Batch, lane_tick: Tick) -> ExampleRows:
            lane_tick()
            # More roles may be missing here than when the batch's turn comes, never fewer.
            return self._look(batch, roles_missing())

        batches_to_search = _batches_to_search(self.model, self.tokenised)
        for _, batch_rows in run_in_parallel(batches_to_search, run, model=self.model, tick=tick):
            for key, rows in batch_rows.items():
                rows_wanted = self.count - len(example_rows[key])
                example_rows[key].extend(rows[:rows_wanted])
            if not roles_missing():
                break
        return example_rows

    def _look(self, batch: Batch, roles: set[str]) -> ExampleRows:
        """A batch's examples of some roles."""
        example_rows: ExampleRows = {}
        if not roles:
            return example_rows
        stack_of_layer = evaluated_layers(self.model, self.tokenised)
        grid = self.model.grid
        layer_and_column = {}
        for role in roles:
            head_index = grid.index(self.head_by_role[role])
            layer_and_column[role] = grid.flat[head_index].tolist()
        layers = {layer for layer, _ in layer_and_column.values()}
        views = {}
        for stack in {stack_of_layer[layer] for layer in layers}:
            views[stack] = stack_view(
                self.model, self.tokenised, batch, stack, self.exclude, self.offsets
            )

        def observe(layer: int, weights: torch.Tensor) -> None:
            for question, keys in most_attended_keys(views[stack_of_layer[layer]], weights):
                role_layer, column = layer_and_column.get(question.role, (-1, 0))
                if role_layer != layer:
                    continue
                hits = attends_correctly(question, keys)[:, column]
                for is_right in (True, False):
                    rows = self._rows(question, batch, keys[:, column], hits, is_right)
                    example_rows[question.role, is_right] = rows

        sum_weights(self.model, batch.inputs, observe, layers)
        return example_rows

    def _rows(
        self,
        question: Question,
        batch: Batch,
        keys: torch.Tensor,
        hits: torch.Tensor,
        is_right: bool,
    ) -> list[tuple[Cell, ...]]:
        """Rows of the first sentences with such an answer.

        Args:
            question: The role.
            batch: The sentences.
            keys: The key that each query of the role's head attends to most, int [row, query].
            hits: Whether it is a correct one, bool [row, query].
            is_right: Whether hits are asked for, or misses.
        """
        head = self.head_by_role[question.role]
        is_example = (question.is_asked & (keys >= 0) & (hits == is_right)).cpu().numpy()
        rows: list[tuple[Cell, ...]] = []
        for row in np.flatnonzero(is_example.any(axis=1))[: self.count].tolist():
            query = int(np.flatnonzero(is_example[row])[0])
            correct_keys = question.is_correct[row, query].nonzero().flatten().tolist()
            text = self._text(int(batch.rows[row]))
            word = self._name(question, batch, row, query, 0)
            looks_at = self._name(question, batch, row, int(keys[row, query]), 1)
            should_look_at = [self._name(question, batch, row, key, 1) for key in correct_keys]
            rows.append(
                (question.role, *head, is_right, text, word, looks_at, " / ".join(should_look_at))
            )
        return rows

    def _text(self, sentence: int) -> str:
        words = self.tokenised.words[sentence] if self.tokenised.words else ()
        if words:
            return " ".join(words)
        return str(self.model.tokenizer.decode(self.tokenised.ids[sentence]))

    def _name(self, question: Question, batch: Batch, row: int, index: int, side_index: int) -> str:
        """A word, or a token as people read it.

        Args:
            question: The role.
            batch: The sentences.
            row: Of the batch.
            index: Of the word or token.
            side_index: 0 for the query, 1 for the key.
        """
        if question.key_kind == "words":
            return self.tokenised.words[int(batch.rows[row])][index]
        ids, _ = query_and_key_tokens(batch.inputs, self.head_by_role[question.role].stack)[
            side_index
        ]
        return readable_tokens(self.model.tokenizer, ids[row].tolist())[index]


# Roles of a model's heads in one language: loaded from the store, or computed in one pass and
# stored.

OnProgress = Callable[[Progress], None]


def study(
    model: Model,
    sentences: Sentences,
    *,
    options: Mapping[str, object] | None = None,
    store: Store | None = None,
    frequencies: Frequencies | None = None,
    on_progress: OnProgress = lambda _: None,
    tick: Tick = lambda: None,
) -> Report:
    """The report "roles" of a model on sentences of one language.

    Args:
        model: The model whose heads are studied.
        sentences: Trees, or examples of a task.
        options: As in `headlab.roles.table.OPTIONS`.
        store: Where the report is looked up and stored.
        frequencies: Frequencies of words; None uses those of the package wordfreq if it has the
            language.
        on_progress: Called after every batch.
        tick: Called between batches; may raise to stop.

    Raises:
        HeadlabError: Options or sentences do not fit the model.
    """
    resolved_options = resolve(options or {})
    frequencies_or_reason = frequencies or package_frequencies(sentences.language)
    spec = report_spec(model, sentences, resolved_options, frequencies_or_reason)
    run = None
    if store is not None:
        run = store.run(spec)
        corpus = None if frequencies is None else frequencies.file
        store.note_places(
            spec, model, sentences.task, data=sentences.data, trees=sentences.file, corpus=corpus
        )
        stored_report = run.kept_report()
        if stored_report is not None:
            return stored_report
    started_at = time.perf_counter()
    tokenised = read(model, sentences, frequencies_or_reason)
    tables, notes, passes = _tables_and_notes(model, tokenised, resolved_options, on_progress, tick)
    report = Report(NAME, tables, notes, spec, passes, time.perf_counter() - started_at)
    if run is not None:
        run.finish(report, origin_now())
    return report


def forwards(sentences: Sentences) -> int:
    """Number of examples that a study of these sentences runs through the model.

    Those for induction are not among them.
    """
    return len(sentences)


def report_spec(
    model: Model, sentences: Sentences, options: Mapping[str, Any], frequencies: Frequencies | str
) -> RunSpec:
    """Everything a report depends on; its key names the run."""
    return RunSpec(
        format=RESULT_FORMAT,
        kind=REPORT_KIND,
        experiment=NAME,
        version=VERSION,
        model=ModelSpec.from_json(model.spec_identity()),
        task=replace(sentences.spec(), more={**needs_of_sentences(model, sentences).version()}),
        frequencies={"source": "none"} if isinstance(frequencies, str) else frequencies.about,
        ablation="zero",
        options=dict(options),
        seed=0,
    )


def _tables_and_notes(
    model: Model,
    tokenised: TokenisedSentences,
    options: Mapping[str, OptionValue],
    on_progress: OnProgress,
    tick: Tick,
) -> tuple[tuple[Table, ...], tuple[str, ...], int]:
    """Tables, notes, and the number of sentences run through the model."""
    offsets = best_offsets(map(tokenised.targets_of, range(len(tokenised))))
    repeated = repeated_sentences(model, tokenised) if _is_decoder(model) else None
    parts = [tokenised] if repeated is None else [tokenised, repeated]
    total = sum(len(part) for part in parts)
    exclude = str(options["exclude"])
    sums = Sums.of(model)
    sentences_done = 0
    for part in parts:
        for count, batch_sums in sums_by_batch(model, part, exclude, offsets, tick):
            if not np.isfinite(batch_sums.measures).all():
                place = f"sentences {sentences_done + 1} to {sentences_done + count} of {total}"
                raise not_finite_error(
                    model,
                    f"attention weights that are not finite in {place}",
                    code="model.answers_not_finite",
                )
            sums.add(batch_sums if part is tokenised else batch_sums.only_roles())
            sentences_done += count
            on_progress(Progress(sentences_done, total, f"{sentences_done} of {total} sentences"))
    tests = judge(sums, model.grid, options)
    examples = examples_table(
        model,
        tokenised,
        repeated,
        tests,
        offsets,
        count=integer_in(options, "examples"),
        exclude=exclude,
        tick=tick,
    )
    tables = (
        measures_table(sums, model.grid, tokenised.stacks),
        roles_table(tests),
        relations_table(tests, offsets),
        counts_table(tests),
        examples,
    )
    return tables, (*tokenised.notes, *_notes_of_report(model, options)), sentences_done


def _is_decoder(model: Model) -> bool:
    """Whether a model is decoder-only, so that its heads may do induction."""
    return [stack.name for stack in model.grid.stacks] == ["decoder"]


def _notes_of_report(model: Model, options: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """Notes that belong to every report."""
    notes = [
        "Intervals: the sentence is the cluster; p: one-sided, against chance or the baseline, of a head's best "
        "position times the number of offsets tried; adjusted by Benjamini and Hochberg over all heads and "
        "roles of this report.",
        f"Confidence leaves {options['exclude']} tokens out as targets.",
    ]
    if _is_decoder(model):
        notes.append(
            "This model sees only what stands before: a word is asked only about words before it."
        )
    return tuple(notes)
