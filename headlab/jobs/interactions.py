"""Jobs of interactions: which heads stand in for each other, and which need each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal, Self

from headlab.core import HeadlabError, parse_options
from headlab.jobs import (
    METHOD_OPTIONS_FLAG,
    NO_CONTEXT,
    CommandContext,
    Details,
    Flag,
    FlagValue,
    Job,
    JobPlace,
    examples_of_dev,
    flag_of,
    pairs_of,
    setting,
    setting_words,
    subject_flags,
)
from headlab.jobs.experiment import ExperimentJob
from headlab.masks import Mask, load_mask
from headlab.methods import DEFAULT_METHOD, method
from headlab.studies import HEADS, INTERACTIONS, LAYER, OF, STUDIES, TOP

STUDY = STUDIES[INTERACTIONS]
CHOICE_FLAGS = (HEADS, TOP, LAYER)
SETTING_FLAGS = (OF, "value", "samples", "target")


class InteractionsJob(ExperimentJob):
    """Interactions of some heads in some languages of a task ("all": every one).

    options: heads (as 9.3,9.4), top or layer, and value, samples and target, as in
    docs/interactions.md.  method, method_options: of the stored scores that top chooses heads by.
    dev_size: examples of dev, None for all.
    """

    experiment: Literal["interactions"] = "interactions"
    dev_size: int | None = setting(
        examples_of_dev(
            "that interactions are measured on",
            flag="size",
            tip="Examples that interactions are measured on.",
        )
    )
    test_size: int | None = None

    key: ClassVar[str] = STUDY.job
    name: ClassVar[str] = STUDY.title
    about: ClassVar[str] = "Heads that stand in for each other, or need each other."
    summary: ClassVar[str] = "Interactions of heads, measured on the worker's own device."
    page: ClassVar[str] = "pairs"
    places: ClassVar[tuple[JobPlace, ...]] = ("here", "ray")

    def resolve(self) -> Self:
        """The job with defaults filled in, but for those of the method that chooses heads.

        They are as the stored scores have them, which the worker looks up.
        """
        resolved = super().resolve()
        given = {
            name: resolved.method_options.get(name, value)
            for name, value in self.method_options.items()
        }
        return resolved.model_copy(
            update={"method_options": given if TOP in resolved.options else {}}
        )

    def subject(self) -> str:
        """The study, and whose pairs it measures."""
        return f"{self.name}, {self.choice_words()}"

    def choice_words(self) -> str:
        """Whose pairs are measured, in words."""
        if self.options.get(OF):
            return f"{self.options[OF]} with {self._others_words()}"
        return self._others_words()

    def _others_words(self) -> str:
        """The heads that are chosen, in words."""
        if self.options.get(HEADS):
            heads = str(self.options[HEADS]).split(",")
            if len(heads) <= MOST_NAMED:
                return ", ".join(heads)
            return f"{len(heads)} heads"
        if self.options.get(LAYER):
            return f"layer {self.options[LAYER]}"
        return f"the {self.options.get(TOP) or STUDY.resolve({})[TOP]} largest"

    def _about_rows(self) -> Details:
        """What all jobs say."""
        return Job._about_rows(self)

    @classmethod
    def flags(cls) -> tuple[Flag, ...]:
        """Where it is done, whose pairs, the method that chooses them, the settings."""
        return (
            *subject_flags(),
            *(flag_of(name, STUDY.options[name]) for name in CHOICE_FLAGS),
            Flag("--mask", "mask file whose removed heads are taken, in place of heads", Path),
            Flag(
                "--method",
                f"method whose stored dev scores choose the largest (default {DEFAULT_METHOD})",
            ),
            METHOD_OPTIONS_FLAG,
            *(flag_of(name, STUDY.options[name]) for name in SETTING_FLAGS),
            *cls.setting_flags(),
        )

    @classmethod
    def from_flags(cls, values: Mapping[str, FlagValue]) -> Self:
        """The job of a command.

        Raises:
            HeadlabError: For heads that are chosen in two ways or not at all, and for a method or
                an option that is unknown or not used.
        """
        names = (*CHOICE_FLAGS, *SETTING_FLAGS)
        options = {name: values.get(name, STUDY.options[name].default) for name in names}
        if values.get("mask") is not None:
            _require_no_other_choice(options)
            options[HEADS] = heads_of_mask(load_mask(str(values["mask"])), str(values["mask"]))
        chosen_method = method(str(values.get("method") or DEFAULT_METHOD))
        method_options = parse_options(pairs_of(values, "option"), chosen_method.options)
        is_by_method = options[HEADS] is None and options[LAYER] is None
        if not is_by_method and (values.get("method") or method_options):
            raise HeadlabError(
                "a method chooses the heads of the largest scores, and these heads are named; leave "
                "--method and -o out",
                code="interactions.method_unused",
            )
        resolved_options = STUDY.resolve(options)
        return cls.model_construct(
            method=chosen_method.key,
            method_options=method_options,
            options={name: resolved_options[name] for name in names if name in resolved_options},
            **cls._subject_fields(values),
            **cls._setting_fields(values),
        )

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command of the study."""
        words = ["headlab", self.key, *self.subject_words(context)]
        given = {name: value for name, value in self.options.items() if value is not None}
        choice = {name: STUDY.options[name] for name in CHOICE_FLAGS}
        words += setting_words({name: given[name] for name in choice if name in given}, choice)
        if HEADS not in given and LAYER not in given:
            words += self.method_words("method_options")
        settings = {name: STUDY.options[name] for name in SETTING_FLAGS}
        words += setting_words({name: given[name] for name in settings if name in given}, settings)
        return [[*words, *self.setting_words(context), *context.dtype_words]]


MOST_NAMED = 4
"""Heads that a job's subject names; of more it says the number."""


def heads_of_mask(mask: Mask, source: str) -> str:
    """The removed heads of a mask as the option of the study takes them.

    Args:
        mask: The mask.
        source: What it was read from, for the message.

    Raises:
        HeadlabError: The mask removes no head.
    """
    if not mask.removed:
        raise HeadlabError(
            f"{source} removes no head, so it has no pairs; give a mask with heads off, or name heads "
            "with --heads",
            code="interactions.mask_empty",
        )
    has_one_stack = len(mask.grid.stacks) == 1
    texts = []
    for head in mask.removed:
        number = f"{head.layer}.{head.head}"
        texts.append(number if has_one_stack else f"{head.stack}.{number}")
    return ",".join(texts)


def _require_no_other_choice(options: Mapping[str, object]) -> None:
    """Raise HeadlabError if heads are chosen by more than a mask."""
    given = [name for name in CHOICE_FLAGS if options[name] is not None]
    if given:
        raise HeadlabError(
            f"interactions are of one choice of heads; given mask and {' and '.join(given)}",
            code="interactions.two_choices",
        )
