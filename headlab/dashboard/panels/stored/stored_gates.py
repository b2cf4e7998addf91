"""Requesting, finding and reading learned gates: the form's job, and stored runs.

Runs are of one model and task.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headlab.core import (
    HEAD_COLUMNS,
    HEAD_FORMATS,
    Cell,
    HeadlabError,
    Table,
    canonical_json,
    current_fingerprint,
    fingerprint_of,
    part,
)
from headlab.dashboard.frame import Choice, stored_results, task_languages
from headlab.dashboard.names import stored_count_text
from headlab.dashboard.panels.stored.shelf import (
    StoredByLanguage,
    current_weights,
    facts_table,
    model_differences,
    stored_by_language,
)
from headlab.dashboard.widgets import Form, FormValues, PageState, reason_refused, set_widget
from headlab.jobs import JobSettings
from headlab.jobs.table import GatesJob
from headlab.report.parts import as_text
from headlab.results import LearnedGates, Result, trained_folder
from headlab.training import ALL, GateOptions
from headlab.training.l0_table import SPLITS, learned_on, learned_with, worth

# Learned gates as pages read them: the accuracy of each run, and tables.

OPTIONS_FIELD = "options"
WEIGHT_OPTION = "weight"
TRAINED_OPTION = "trained"


@dataclass(frozen=True)
class Sweep:
    """Runs that differ only in their weight λ, lowest first."""

    runs: tuple[Result[LearnedGates], ...]

    @property
    def first_gates(self) -> LearnedGates:
        """One run's gates, for what all runs share."""
        return self.runs[0].record

    @property
    def gates(self) -> list[LearnedGates]:
        """The runs' gates."""
        return [run.record for run in self.runs]

    @property
    def is_trained_jointly(self) -> bool:
        """Whether the model was trained jointly.

        Each run's mask then belongs to its own model.
        """
        return learned_with(self.first_gates).get(TRAINED_OPTION) == ALL

    @property
    def weights(self) -> list[str]:
        """The runs' weights λ as written in links."""
        return [f"{run.record.weight:.12g}" for run in self.runs]


def grouped_sweeps(results: Sequence[Result[LearnedGates]]) -> list[Sweep]:
    """Runs of one language grouped into sweeps, the one with most runs first."""
    groups: dict[str, list[Result[LearnedGates]]] = {}
    for result in results:
        shared_options = dict(learned_with(result.record))
        shared_options.pop(WEIGHT_OPTION, None)
        shared_spec = {**result.record.spec, OPTIONS_FIELD: shared_options}
        groups.setdefault(canonical_json(shared_spec), []).append(result)
    all_sweeps = []
    for runs in groups.values():
        by_weight = sorted(runs, key=lambda run: (run.record.weight, run.key))
        all_sweeps.append(Sweep(tuple(by_weight)))
    return sorted(all_sweeps, key=lambda sweep: (-len(sweep.runs), sweep.runs[0].key))


def run_words(gates: LearnedGates) -> str:
    """A run in short: its weight λ and the number of heads it keeps."""
    return f"λ {gates.weight:g} · {int(gates.kept.sum())}"


def run_hover_text(gates: LearnedGates, split: str) -> str:
    """Hover text of a run in the trade-off."""
    accuracy_gain = worth(gates, split)
    lines = [
        f"λ = {gates.weight:g}: {int(gates.kept.sum())} of {gates.grid.size} heads kept",
        f"{gates.undecided_count()} undecided",
    ]
    if accuracy_gain:
        lines.append(f"{split}: {100 * accuracy_gain.accuracy:.1f} %, {accuracy_gain.gain}")
    return "\n".join(lines)


def measured_splits(sweep: Sweep) -> list[str]:
    """Splits that any run was measured on; those suitable for choosing λ come first."""
    splits = [split for split in SPLITS if any(worth(gates, split) for gates in sweep.gates)]
    return sorted(splits, key=lambda split: split == learned_on(sweep.first_gates))


def head_gates_table(gates: LearnedGates) -> Table:
    """A row per head: P(g ≠ 0) at the first and last step, P(g = 1) at the last, if it is kept."""
    open_probability = gates.open_probability
    fully_open = np.where(gates.has_gate, gates.concrete.probability_one(gates.log_alpha[-1]), 1.0)
    rows: list[tuple[Cell, ...]] = []
    for index, head in enumerate(gates.grid.heads):
        cells = (
            float(open_probability[0, index]),
            float(open_probability[-1, index]),
            float(fully_open[index]),
            bool(gates.kept[index]),
            bool(gates.has_gate[index]),
        )
        rows.append((*head, *cells))
    probability_columns = ("P(g ≠ 0) at first", "P(g ≠ 0) at last", "P(g = 1) at last")
    return Table(
        f"gates-heads-{gates.language}",
        f"Every gate at λ = {gates.weight:g}",
        (*HEAD_COLUMNS, *probability_columns, "kept", "has a gate"),
        (*HEAD_FORMATS, ".3f", ".3f", ".3f", "", ""),
        tuple(rows),
    )


# Which run the Gates page opens when another page names one.


@dataclass
class RunToOpen(PageState):
    """The run that the Gates page of one session opens.

    Attributes:
        run_key: Its key; empty once it is open.
    """

    key = "_gates"
    run_key: str = ""


def open_run_next(run_key: str) -> None:
    """Make the page open at the run with this key, whatever was shown before."""
    RunToOpen.of_session().run_key = run_key


def open_requested_run(sweeps_by_language: Mapping[str, Sequence[Sweep]]) -> None:
    """Set the widgets to the run asked for, once; a run that is not here changes nothing."""
    state = RunToOpen.of_session()
    requested_key = state.run_key
    state.run_key = ""
    for language, language_sweeps in sweeps_by_language.items():
        for sweep in language_sweeps:
            for run, weight in zip(sweep.runs, sweep.weights, strict=True):
                if run.key == requested_key:
                    set_widget("focus", language)
                    set_widget("weight", weight)
                    set_widget(sweep_widget_key(language, language_sweeps), sweep.runs[0].key)


def sweep_widget_key(language: str, language_sweeps: Sequence[Sweep]) -> str:
    """Key of the widget that chooses one of a language's sweeps."""
    return f"gates-sweep-{language}-{len(language_sweeps)}"


# The form for gates to learn: weights, options, and its job.

DEFAULT_WEIGHTS = "0.003, 0.01, 0.03, 0.1"
GATES_FORM = Form("_gates_plan", "gates-plan-")
MAIN_GATE_OPTIONS = ("steps", "trained", "stacks", "start")
"""The options that most people set."""
MAX_WEIGHTS = 20
"""The largest number of weights of a job."""
COMMA = re.compile(r"(?<![\w.+-])\d+,\d+(?![\w.])")
"""A comma between whole numbers, where some write a decimal comma."""


@dataclass(frozen=True)
class GatesForm:
    """The form for gates to learn: of a model on a task, in some languages, at every weight.

    Attributes:
        choice: The model and the task.
        languages: Codes of the languages, each of which has runs of its own.
    """

    choice: Choice
    languages: tuple[str, ...]

    def job(self, values: FormValues) -> GatesJob:
        """The form's job, whose options may not fit yet.

        Args:
            values: Of the widgets drawn so far, by their keys; the rest are at their defaults.

        Raises:
            HeadlabError: The text of the weights cannot be read.
        """
        weights = weights_from(str(values.get(GATES_FORM.key("weights"), DEFAULT_WEIGHTS)))
        return self.job_at(weights, values)

    def job_at(self, weights: list[float], values: FormValues) -> GatesJob:
        """The same at given weights.

        Args:
            weights: λ, nats per open gate; empty while their text cannot be read.
            values: As in `job`.
        """
        return GatesJob.model_construct(
            languages=list(self.languages),
            weights=weights,
            options=GATES_FORM.read(training_options(), values),
            **self.choice.job_fields,
            **GATES_FORM.read(GatesJob.settings(), values),
        )


def training_options() -> JobSettings:
    """Every option of the training except the weight, those that most people set first."""
    options = GateOptions.table()
    names = dict.fromkeys((*MAIN_GATE_OPTIONS, *options))
    return {name: options[name] for name in names if name != WEIGHT_OPTION}


def weights_from(text: str) -> list[float]:
    """'0.01, 0.03' as distinct ascending numbers.

    Raises:
        HeadlabError: A weight is invalid or ambiguous, or there are none or too many.
    """
    ambiguous = COMMA.search(text)
    if ambiguous is not None:
        pair = ambiguous.group()
        raise HeadlabError(
            f"{pair!r:.40} may be one weight or two; write {pair.replace(',', '.'):.40} for one, a space after the comma "
            "for two",
            code="gate.weight_ambiguous",
        )
    words = text.replace(";", " ").replace(",", " ").split()
    weights = {_weight(word) for word in words}
    if not weights or len(weights) > MAX_WEIGHTS:
        raise HeadlabError(
            f"{len(weights)} weights are given; name 1 to {MAX_WEIGHTS}, with commas between, such as {DEFAULT_WEIGHTS}",
            code="gate.weight_count_out_of_range",
        )
    return sorted(weights)


def _weight(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise HeadlabError(
            f"{word!r:.40} is not a weight; name numbers of 0 or more, with commas between: {DEFAULT_WEIGHTS}",
            code="gate.weight_invalid",
        )
    return value


def gates_job_refusal(job: GatesJob) -> str:
    """Why a form's job cannot be started, for its options; empty if it can. It has a weight."""
    return reason_refused(job.gate_options, job.weights[0])


# Stored gates: the runs of a model and task, by language and sweep.

OPTIONS_IN_LABEL = (WEIGHT_OPTION, "trained", "stacks", "steps", "split", "size")
"""Options that every label already states."""


def stored_sweeps(choice: Choice) -> StoredByLanguage[Sweep]:
    """All gates learned for the chosen model on the chosen task."""
    listing = stored_results(LearnedGates)
    offered_languages = set(task_languages(choice.task))
    weights = current_weights(choice.model)
    runs_by_language: dict[str, list[Result[LearnedGates]]] = {}
    for result in listing.results:
        spec = result.record.spec
        language = result.record.language
        subject = (part(spec, "model", "name"), part(spec, "task", "name"))
        is_wanted = language in choice.languages or language not in offered_languages
        if is_wanted and subject == (choice.model, choice.task) and choice.has_classes_of(spec):
            runs_by_language.setdefault(language, []).append(result)
    sweeps_by_language: dict[str, list[Sweep]] = {}
    for language, runs in runs_by_language.items():
        sweeps_by_language[language] = sorted(
            grouped_sweeps(runs), key=lambda sweep: not _has_current_weights(sweep, weights)
        )
    return stored_by_language(choice, sweeps_by_language, listing.problems, weights)


def sweep_fingerprint(sweep: Sweep) -> str:
    """Fingerprint of the weights that the training started from."""
    return str(fingerprint_of(sweep.first_gates.spec) or "")


def _has_current_weights(sweep: Sweep, weights: str | None) -> bool:
    return weights is None or sweep_fingerprint(sweep) == current_fingerprint(weights)


def sweep_label(sweep: Sweep, weights: str | None = None) -> str:
    """A sweep in one line: how many runs, what was learned, on what."""
    gates = sweep.first_gates
    options = learned_with(gates)
    parts = [f"{len(sweep.runs)} runs"]
    if len(sweep.runs) == 1:
        parts = [f"one run, λ = {gates.weight:g}"]
    parts.append("model trained jointly" if sweep.is_trained_jointly else "model frozen")
    if len(gates.grid.stacks) > 1:
        parts.append(_stacks_words(gates))
    if "steps" in options:
        parts.append(f"{options['steps']} steps")
    size = stored_count_text(part(gates.spec, "task", "size"), "all")
    parts.append(f"learned on {size} examples of {learned_on(gates)}")
    seed = options.get("seed", gates.spec.get("seed"))
    if seed:
        parts.append(f"seed {seed}")
    return " · ".join([*parts, *model_differences(sweep_fingerprint(sweep), weights, None)])


def _stacks_words(gates: LearnedGates) -> str:
    """Which stacks of heads have gates."""
    stacks_with_gates: set[str] = set()
    for head, has_gate in zip(gates.grid.heads, gates.has_gate, strict=True):
        if has_gate:
            stacks_with_gates.add(head.stack)
    if stacks_with_gates == {stack.name for stack in gates.grid.stacks}:
        return "gates on all stacks"
    return f"gates on {', '.join(sorted(stacks_with_gates))} only"


def sweep_labels(sweeps: Sequence[Sweep], weights: str | None = None) -> list[str]:
    """Distinct labels of sweeps shown together: a select box finds an entry by its text."""
    settings = [_settings_beside_label(sweep) for sweep in sweeps]
    names = dict.fromkeys(name for sweep_settings in settings for name in sweep_settings)
    varying_names = [name for name in names if _differs(settings, name)]
    lines = []
    for sweep, sweep_settings in zip(sweeps, settings, strict=True):
        parts = [sweep_label(sweep, weights)]
        for name in varying_names:
            if name in sweep_settings:
                parts.append(f"{name.replace('_', ' ')} {as_text(sweep_settings[name])}")
        lines.append(" · ".join(parts))
    return [
        f"{line} ({sweep.runs[0].key[:6]})" if lines.count(line) > 1 else line
        for sweep, line in zip(sweeps, lines, strict=True)
    ]


def _settings_beside_label(sweep: Sweep) -> dict[str, Any]:
    """A sweep's settings that its label does not state."""
    options = {
        name: value
        for name, value in learned_with(sweep.first_gates).items()
        if name not in OPTIONS_IN_LABEL
    }
    return {
        **options,
        "dtype": run_dtype(sweep.runs[0]) or "float32",
        "version": sweep.first_gates.spec.get("version"),
    }


def _differs(settings: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether those that have a setting have several values of it."""
    values = {
        canonical_json(sweep_settings[name])
        for sweep_settings in settings
        if name in sweep_settings
    }
    return len(values) > 1


def run_facts(result: Result[LearnedGates]) -> list[tuple[str, str]]:
    """How a run was made, as (name, value) pairs."""
    gates = result.record
    rows = [("λ", f"{gates.weight:g}")]
    if gates.trained:
        folder = trained_folder(result) or gates.trained.get("folder") or "not kept"
        rows.append(("Trained model", f"{folder}"))
    forwards_and_seconds = (gates.example_forwards, gates.seconds)
    for row in facts_table(gates.spec, result.meta, forwards_and_seconds, ("Run", result.key)):
        if row[0] != "Option weight":  # which is λ
            rows.append(row)
    return rows


def run_dtype(result: Result[LearnedGates]) -> str:
    """The precision that the model was loaded in; empty for float32."""
    return str(part(result.record.spec, "model", "dtype") or "")
