"""What gates are learned from and judged by: examples of the splits, read and evaluated once for a whole sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headlab.errors import HeadlabError
from headlab.evaluator import Evaluator, accuracy_interval, compare
from headlab.gates import Model
from headlab.inputs import Inputs, read
from headlab.learned import LearnedGates
from headlab.store import FORMAT, GATES
from headlab.tasks.base import Example, Split, Task
from headlab.training.l0.learner import Tick
from headlab.training.l0.options import VERSION, GateOptions
from headlab.training.l0.splits import learned_on

JUDGED: tuple[Split, ...] = ("dev", "test")
# Notes of stored results have these words.
ALONG = "the mask is of the model that was trained along; it is compared with the untouched one"


@dataclass
class Given:
    """Examples of one language: those that are learned on, of `split`, and those that a mask is judged on.

    All but λ of the options counts, so one serves a sweep.  notes: what to know of the choice of splits.
    """

    model: Model
    task: Task
    language: str
    options: GateOptions
    split: Split = field(init=False)
    examples: tuple[Example, ...] = field(init=False)
    judged: dict[Split, tuple[Example, ...]] = field(init=False, default_factory=dict)
    notes: tuple[str, ...] = field(init=False)
    _evaluators: dict[Split, Evaluator] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        notes = []
        self.split, self.examples = learned_on(self.task, self.language, self.options.split, self.options.size)
        if self.split == "dev":
            notes.append("the gates were learned on dev, so what is measured there flatters them; judge on test")
        for split, size in zip(JUDGED, (self.options.dev_size, self.options.test_size), strict=True):
            try:
                self.judged[split] = self.task.examples(self.language, split, size)
            except HeadlabError as error:  # a task of one's own may lack it
                notes.append(f"not measured on {split}: {error}")
        if self.options.along:
            notes.append(ALONG)
        self.notes = tuple(notes)

    @cached_property
    def _inputs(self) -> Inputs:
        return read(self.model, self.task, self.examples, self.language)

    def inputs(self, other: Model | None = None) -> Inputs:
        """The examples that are learned on, tokenised; for another model, if one is trained jointly."""
        return self._inputs if other is None else read(other, self.task, self.examples, self.language)

    @cached_property
    def _hashes(self) -> dict[str, str]:
        return {"learned": self.task.data_hash(self.examples)} | {
            split: self.task.data_hash(examples) for split, examples in self.judged.items()
        }

    def spec(self, options: GateOptions) -> dict[str, Any]:
        """Everything that gates learned with these options depend on; its sha256 names the run."""
        task = self.task
        return {
            "format": FORMAT,
            "kind": GATES,
            "version": VERSION,
            "model": self.model.recorded(),
            "task": {
                "name": task.name, "language": self.language, "split": self.split, "size": len(self.examples),
                "seed": task.seed, "data_hash": self._hashes["learned"],
            },
            "judged": {s: {"size": len(e), "data_hash": self._hashes[s]} for s, e in self.judged.items()},
            "ablation": "zero",
            "options": options.record(),
            "seed": options.seed,
        }  # fmt: skip

    def measured(
        self, gates: LearnedGates, tick: Tick, other: Model | None = None
    ) -> tuple[dict[str, Mapping[str, Any]], int]:
        """What the gates' mask is worth by split, paired with the untouched model; and how many forwards that took.

        other: the model that the mask is of, if it was trained along.  tick: called between batches.
        """
        out: dict[str, Mapping[str, Any]] = {}
        mask, undecided, forwards = gates.mask(), gates.undecided(), 0
        for split in self.judged:
            plain = self._evaluators.setdefault(split, self._evaluator(split, self.model))
            asked = plain if other is None else self._evaluator(split, other)
            plain.tick = asked.tick = tick
            before = plain.forwards
            whole, masked = plain.evaluate(), asked.evaluate(mask)
            forwards += plain.forwards - before + (asked.forwards if other is not None else 0)
            found, (low, high) = compare(whole, masked, self.options.seed), accuracy_interval(masked, self.options.seed)
            out[split] = {
                "n": found.n, "examples": len(asked.examples), "accuracy": found.accuracy, "accuracy_low": low,
                "accuracy_high": high, "baseline": found.baseline, "difference": found.difference,
                "low": found.low, "high": found.high, "p": found.p, "flipped_right": found.flipped_right,
                "flipped_wrong": found.flipped_wrong, "kept": int(mask.kept.sum()), "undecided": undecided,
            }  # fmt: skip
        return out, forwards

    def _evaluator(self, split: Split, model: Model) -> Evaluator:
        # one pass a mask, and no mask near another: nothing to resume from
        return Evaluator(model, self.task, self.language, split, len(self.judged[split]), state_bytes=0)
