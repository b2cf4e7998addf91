"""`headlab check`: whether a mask loses no more than a margin, as a test of continuous integration."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headlab.cli.evaluate import as_split, chosen_ablation, evaluation_record, print_notes
from headlab.cli.junit import JUnitCase, JUnitSuite
from headlab.cli.output import (
    AsJson,
    DataFolder,
    Device,
    DeviceMap,
    LabelMap,
    Seed,
    check_ablation,
    chosen_task,
    print_json,
    progress_bar,
)
from headlab.core import Comparison, HeadlabError, JsonLike, require_replaceable, write_atomic
from headlab.jobs import label_map_of, languages_of
from headlab.masks import Mask, load_mask
from headlab.stats import MarginInterval, Verdict, margin_interval, verdict_of_all
from headlab.tasks import DEV_SIZE, Task, equal_texts_record

if TYPE_CHECKING:
    from headlab.evaluation import Evaluator

EXIT_CODES = {Verdict.HOLDS: 0, Verdict.FAILS: 1, Verdict.UNDECIDED: 3}
"""2 is a problem with what was given, as of every command."""
JUNIT_OUTCOMES: Mapping[Verdict, Literal["failure", "error"] | None] = {
    Verdict.HOLDS: None,
    Verdict.FAILS: "failure",
    Verdict.UNDECIDED: "error",
}
CANNOT_TELL = "there are too few examples to tell"


@dataclass(frozen=True)
class LanguageCheck:
    """The answer for one language.

    Attributes:
        comparison: Of the masked model with the untouched one.
        interval: Of their difference.
        margin: What may be lost, as a share.
        seconds: How long it took.
        details: More fields of the JSON.
    """

    comparison: Comparison
    interval: MarginInterval
    margin: float
    seconds: float
    details: Mapping[str, JsonLike]

    @property
    def verdict(self) -> Verdict:
        """Whether it holds."""
        return self.interval.verdict(self.margin)

    @property
    def sentence(self) -> str:
        """The answer with its reason, in a line."""
        interval = self.interval
        allowed = points(self.margin)
        difference = f"{100 * interval.difference:+.2f} points".replace("-", "−")
        ends = f"[{100 * interval.low:+.2f}, {100 * interval.high:+.2f}]".replace("-", "−")
        figures = (
            f"{difference} {ends}, {self.comparison.baseline:.1%} untouched, "
            f"{self.comparison.accuracy:.1%} masked, {self.comparison.n:,} answers in "
            f"{interval.groups:,} groups"
        )
        return f"{self.verdict}: {self._reason(allowed)} ({figures})"

    def _reason(self, allowed: str) -> str:
        if not self.interval.has_enough_groups:
            return CANNOT_TELL
        if self.verdict is Verdict.HOLDS:
            return f"no more than {allowed} lost"
        if self.verdict is Verdict.FAILS:
            return f"more than {allowed} lost"
        if not (self.comparison.flipped_right or self.comparison.flipped_wrong):
            return f"no answer changed, but so few examples do not rule out a loss of {allowed} or more"
        return f"a loss of more than {allowed} is neither ruled out nor certain"

    def record(self) -> dict[str, JsonLike]:
        """The answer as JSON: the fields of `headlab evaluate` but p, with this interval's ends."""
        figures = evaluation_record(self.comparison)
        del figures["p"]  # of no difference at all, which is another question
        return {
            "verdict": self.verdict.value,
            "reason": self.sentence,
            **figures,
            "low": self.interval.low,
            "high": self.interval.high,
            "groups": self.interval.groups,
            **self.details,
        }

    def junit_case(self, group: str) -> JUnitCase:
        """The answer as a test of JUnit."""
        return JUnitCase(
            name=self.comparison.language,
            group=group,
            seconds=self.seconds,
            outcome=JUNIT_OUTCOMES[self.verdict],
            kind=self.verdict.value,
            message=self.sentence,
        )


def check(
    file: Annotated[Path, typer.Argument(metavar="MASK", help="mask file")],
    within: Annotated[
        float,
        typer.Option(
            "--within", metavar="POINTS", help="points of accuracy that may be lost, such as 1"
        ),
    ],
    model: Annotated[
        str | None, typer.Option("--model", help="model; default: the one that the mask names")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="task; default: the one that the mask names")
    ] = None,
    data: DataFolder = None,
    label_map: LabelMap = None,
    languages: Annotated[
        str | None,
        typer.Option(
            "--languages",
            help="comma-separated, or all; default: those of the mask, else all of the task",
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(help="test (default), as masks are chosen on dev; dev or train")
    ] = "test",
    size: Annotated[
        int | None, typer.Option(min=1, help="examples; default 512 of dev, all of test")
    ] = None,
    ablation: Annotated[
        str | None, typer.Option(help="as of headlab evaluate; default: as the mask was chosen")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(help="JUnit XML file to write, with a test for each language")
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    device_map: DeviceMap = None,
    json: AsJson = False,
) -> None:
    """Check that a mask loses no more than some points of accuracy, for continuous integration.

    The answer is for each language: holds, fails, or undecided.

    Exit codes: 0 it holds in every language, 1 it fails in one, 3 undecided, 2 a problem you can
    solve.
    """
    import headlab

    if not (math.isfinite(within) and 0 <= within < 100):
        raise HeadlabError(
            f"--within is {within:g}; give the points of accuracy that may be lost, from 0 to below "
            "100, such as 1",
            code="check.within_out_of_range",
        )
    mask = load_mask(file)
    if junit is not None:
        check_junit_path(junit, file)
    ablation = ablation or chosen_ablation(mask)
    ablation = check_ablation(ablation)
    chosen = task_of_mask(mask, task, languages, data, label_map)
    chosen.check(chosen.languages[0], split)
    if split != "test":
        typer.echo(
            f"headlab: note: {split} is not held out; a mask looks better on the examples that chose it",
            err=True,
        )
    model_name = model or mask.name
    if not model_name:
        raise HeadlabError(
            f"{file} names no model; say with --model which one to check",
            code="check.model_unnamed",
        )
    size = size or (DEV_SIZE if split == "dev" else None)
    loaded = headlab.load(model_name, device=device, device_map=device_map)
    mask.check(loaded.grid, loaded.fingerprint)
    from headlab.evaluation import Evaluator

    checks: dict[str, LanguageCheck] = {}
    with progress_bar("checking") as show:
        for number, language in enumerate(chosen.languages):
            show(language, number, len(chosen.languages))
            started_at = time.perf_counter()
            evaluator = Evaluator(
                loaded, chosen.with_languages([language]), language, as_split(split), size
            )
            print_notes(evaluator)
            checks[language] = language_check(
                evaluator,
                mask,
                margin=within / 100,
                claims=len(chosen.languages),
                ablation=ablation,
                seed=seed,
                started_at=started_at,
            )
    verdict = verdict_of_all(result.verdict for result in checks.values())
    made_with = {
        "mask": str(file),
        "model": model_name,
        "task": chosen.name,
        "split": split,
        "within": f"{within:g}",
        "ablation": ablation,
        "seed": str(seed),
    }
    if junit is not None:
        group = f"headlab.check.{chosen.name}"
        suite = JUnitSuite(
            f"headlab check within {points(within / 100)}",
            [result.junit_case(group) for result in checks.values()],
            made_with,
        )
        write_atomic(junit, suite.xml())
    if json:
        records = {language: result.record() for language, result in checks.items()}
        print_json(
            {
                "verdict": verdict.value,
                "exit_code": EXIT_CODES[verdict],
                **made_with,
                "within": within,
                "seed": seed,
                "languages": records,
            }
        )
    else:
        for language, result in checks.items():
            typer.echo(f"{language:6} {result.sentence}")
        if len(checks) > 1:
            typer.echo(f"{verdict}: {overall_words(checks, within / 100)}")
    raise typer.Exit(EXIT_CODES[verdict])


def language_check(
    evaluator: Evaluator,
    mask: Mask,
    *,
    margin: float,
    claims: int,
    ablation: str,
    seed: int,
    started_at: float,
) -> LanguageCheck:
    """Measure one language, with and without the mask.

    Args:
        evaluator: Of the language.
        mask: The mask.
        margin: What may be lost, as a share.
        claims: Number of languages that are checked.
        ablation: Of the removed heads.
        seed: Of the intervals.
        started_at: When this language began, on the clock of `time.perf_counter`.
    """
    import numpy as np

    from headlab.evaluation import compare

    before = evaluator.evaluate()
    after = evaluator.evaluate(mask, ablation=ablation)
    interval = margin_interval(
        before.correct, after.correct, before.groups, np.random.default_rng(seed), claims=claims
    )
    return LanguageCheck(
        comparison=compare(before, after, seed),
        interval=interval,
        margin=margin,
        seconds=time.perf_counter() - started_at,
        details=equal_texts_record(evaluator.equal_texts),
    )


def task_of_mask(
    mask: Mask,
    name: str | None,
    languages: str | None,
    data: Path | None,
    label_map: str | None,
) -> Task:
    """The task to check a mask on, in the languages to check.

    Args:
        mask: Names task and languages where the next two are not given.
        name: Of the task.
        languages: Comma-separated, or all.
        data: Folder of the task's files.
        label_map: The model's class of each label, as on the command line.

    Raises:
        HeadlabError: Nothing names the task, or it cannot be had.
    """
    task_name = name or mask.choice.get("task")
    if not task_name:
        raise HeadlabError(
            "the mask does not say what task it was chosen for; name one with --task",
            code="check.task_unnamed",
        )
    requested_languages: list[str] | str = "all"
    if languages is not None:
        requested_languages = languages_of(languages)
    elif mask.languages:
        requested_languages = list(mask.languages)
    return chosen_task(task_name, requested_languages, data, label_map_of(label_map))


def check_junit_path(junit: Path, mask_file: Path) -> None:
    """Raise HeadlabError early if the JUnit file cannot be written, or would replace the mask."""
    require_replaceable(junit)
    if junit.exists() and junit.samefile(mask_file):
        raise HeadlabError(
            f"--junit is {junit}, the mask to check, which would be lost; name another file",
            code="output.is_input_mask",
        )


def overall_words(checks: Mapping[str, LanguageCheck], margin: float) -> str:
    """The answer for all languages in words: which of them decide it."""
    languages_by_verdict: dict[Verdict, list[str]] = {}
    for language, result in checks.items():
        languages_by_verdict.setdefault(result.verdict, []).append(language)
    allowed = points(margin)
    failed = languages_by_verdict.get(Verdict.FAILS)
    if failed:
        return f"more than {allowed} lost in {', '.join(failed)}"
    undecided = languages_by_verdict.get(Verdict.UNDECIDED)
    if undecided:
        return f"a loss of more than {allowed} is not ruled out in {', '.join(undecided)}"
    return f"no more than {allowed} lost in any of {len(checks)} languages"


def points(share: float) -> str:
    """A share in points: 0.01 is 1 point."""
    value = f"{100 * share:g}"
    return f"{value} point{'s' * (value != '1')}"
