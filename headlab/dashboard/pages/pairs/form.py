"""The form for interactions: whose pairs, how exactly, the forecast of the cost, and Start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from headlab.core import HeadlabError, ablation_title
from headlab.dashboard.frame import Choice, cached_options, scores_of
from headlab.dashboard.names import language_title
from headlab.dashboard.panels.jobs import (
    RAY_LEAD,
    draw_job_place,
    draw_live_jobs,
    end_job_form,
    job_place,
    missing_weights_reason,
    show_started_job,
    show_terminal_commands,
    start_job_of_form,
)
from headlab.dashboard.panels.stored import resolved_options
from headlab.dashboard.widgets import Form, FormValues, reason_refused, widget_values
from headlab.jobs import JobPlace
from headlab.jobs.table import InteractionsJob
from headlab.results import HeadScores
from headlab.studies import HEADS, INTERACTIONS, LAYER, OF, STUDIES, TOP

FORM = Form("_pairs", "pairs-")
STUDY = STUDIES[INTERACTIONS]
PLACE = "place"
WAY = "way"
WAYS = {
    TOP: "The heads of the largest values",
    HEADS: "Heads by their numbers",
    LAYER: "A layer",
}
"""How heads are chosen, by the option that says it."""
SETTINGS = (OF, "samples", "target", "value")


@dataclass(frozen=True)
class PairsForm:
    """The form on the sidebar's choice.

    Attributes:
        choice: The model, the task, the languages and the method.
    """

    choice: Choice

    @property
    def way(self) -> str:
        """The option by which heads are chosen now."""
        return self._way_in(FORM.values())

    def _way_in(self, values: Mapping[str, object]) -> str:
        way = values.get(FORM.key(WAY))
        return str(way) if way in WAYS else TOP

    def job(self, values: FormValues) -> InteractionsJob:
        """The form's job, which may hold what does not fit yet.

        Args:
            values: Of the widgets drawn so far, by their keys; the rest are at their defaults.
        """
        way = self._way_in(values)
        settings = {name: STUDY.options[name] for name in SETTINGS}
        options = FORM.read({**settings, way: STUDY.options[way]}, values)
        options[OF] = options[OF] or None
        if way == TOP and options[TOP] is None:
            options[TOP] = STUDY.resolve({})[TOP]
        if way != TOP:  # an empty field asks for nothing, which is not for the largest
            options[way] = options[way] or ""
        return InteractionsJob.model_construct(
            languages=list(self.choice.languages),
            method=self.choice.method,
            method_options=cached_options(self.choice) if way == TOP else {},
            options=options,
            **self.choice.job_fields,
            **FORM.read(InteractionsJob.settings(), values),
        )

    def obstacle(self, job: InteractionsJob) -> str:
        """Why the job cannot be started; empty if it can."""
        if not self.choice.languages:
            return "Choose a language."
        if self.way != TOP and not job.options.get(self.way):
            return "Write the heads." if self.way == HEADS else "Write the layer."
        refusal = reason_refused(resolved_options, job) or missing_weights_reason(self.choice.model)
        if refusal or self.way != TOP:
            return refusal
        stored_scores = scores_of(self.choice)
        if stored_scores.missing:
            return (
                f"There are no {self.choice.method} scores of {', '.join(stored_scores.missing)} to choose "
                "heads by. Compute them on Heads, or write heads by their numbers."
            )
        return next(filter(None, (_misfit(job, s) for s in stored_scores.scores.values())), "")


def _misfit(job: InteractionsJob, scores: HeadScores) -> str:
    """Which settings of stored scores are not those of the job, in a sentence; empty if none."""
    size = scores.spec["task"]["size"]
    differences = []
    if job.dev_size is not None and size != _size_in(job, scores.language, job.dev_size, size):
        differences.append(f"{size:,} examples of dev")
    if scores.spec["seed"] != job.seed:
        differences.append(f"seed {scores.spec['seed']}")
    if scores.spec["ablation"] != job.ablation:
        differences.append(
            f"{ablation_title(scores.spec['ablation'])} as the output of a removed head"
        )
    if not differences:
        return ""
    return (
        f"The stored scores of {language_title(scores.language)} are made with "
        f"{', '.join(differences)}. Set the same under **More options**, or write heads by their "
        "numbers."
    )


def _size_in(job: InteractionsJob, language: str, asked: int, stored: int) -> int:
    """Examples that a job uses: as many as asked for, or all there are.

    Args:
        job: The job.
        language: Code of the language.
        asked: Examples of dev, at most.
        stored: Examples of the stored scores, which is the answer where the data are not here.
    """
    if asked <= stored:
        return asked
    try:
        return len(job.chosen_task().examples(language, "dev", asked))
    except HeadlabError:
        return stored


def draw_form(form: PairsForm) -> InteractionsJob:
    """Draw the form and return its job, as its widgets are now."""
    with st.container(border=True, key="pairs-form"):
        way_place, choice_place, samples_place = st.columns(3)
        with way_place:
            st.selectbox(
                "Whose pairs?",
                list(WAYS),
                index=list(WAYS).index(FORM.last_value(WAY, TOP)),
                format_func=lambda way: WAYS[way],
                key=FORM.key(WAY),
            )
        with choice_place:
            FORM.draw(form.way, STUDY.options[form.way])
        with samples_place:
            FORM.draw("target", STUDY.options["target"])
        with st.expander("More options"):
            FORM.draw_all(
                {
                    OF: STUDY.options[OF],
                    "samples": STUDY.options["samples"],
                    "value": STUDY.options["value"],
                    **InteractionsJob.settings(),
                }
            )
        draw_job_place(InteractionsJob, FORM.key(PLACE))
        job = form.job(FORM.values())
        end_job_form(
            job,
            form.obstacle(job),
            _start,
            form,
            key="pairs-start",
            form_prefix=FORM.prefix,
            text_before=RAY_LEAD if _place() == "ray" else "What it will take:",
        )
        show_started_job("Its pairs appear above when it is done.")
        draw_live_jobs()
        if not form.obstacle(job):
            show_terminal_commands(
                job, note="It can be interrupted; run the same command again to resume:"
            )
    return job


def _start(form: PairsForm, typed_values: Mapping[str, str] | None) -> None:
    start_job_of_form(FORM, form.job, typed_values, _place())


def _place() -> JobPlace:
    """Where the job runs, as the form's widget says it now."""
    return job_place(InteractionsJob, widget_values(FORM.prefix).get(FORM.key(PLACE)))
