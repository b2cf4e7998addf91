"""Kinds of jobs: a class each, and the table that lists them. What a package needs to add one stands here."""

from __future__ import annotations

from headlab.jobs.fields import LabelMap, Languages, Name, Options, Place, Seed, setting
from headlab.jobs.job import Job, Outcome, TaskJob
from headlab.jobs.known import Estimate, Known, Measured, MeasureRequest, estimate
from headlab.jobs.lab import Lab, RunningJob
from headlab.methods.forecast import Forecast, Part

__all__ = [
    "Estimate",
    "Forecast",
    "Job",
    "Known",
    "Lab",
    "LabelMap",
    "Languages",
    "MeasureRequest",
    "Measured",
    "Name",
    "Options",
    "Outcome",
    "Part",
    "Place",
    "RunningJob",
    "Seed",
    "TaskJob",
    "estimate",
    "setting",
]
