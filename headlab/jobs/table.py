"""The kinds of jobs: those of headlab, then those of installed packages."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from inspect import isabstract
from typing import Any

from pydantic import ValidationError

from headlab.core import Registry, wrong_key_text, wrong_kind_text
from headlab.jobs import Job, Refusal
from headlab.jobs.experiment import ExperimentJob as ExperimentJob
from headlab.jobs.experiment import FrontJob as FrontJob
from headlab.jobs.export import ExportJob as ExportJob
from headlab.jobs.finetune import FinetuneJob as FinetuneJob
from headlab.jobs.gates import GatesJob as GatesJob
from headlab.jobs.interactions import InteractionsJob as InteractionsJob
from headlab.jobs.lm import LmJob as LmJob
from headlab.jobs.lm import LmPruneJob as LmPruneJob
from headlab.jobs.roles import RolesJob as RolesJob
from headlab.jobs.score import CurveJob as CurveJob
from headlab.jobs.score import ScoreJob as ScoreJob
from headlab.jobs.shrink import ShrinkJob as ShrinkJob
from headlab.jobs.translation import TranslationJob as TranslationJob
from headlab.jobs.worth import MASK_PLACEHOLDER as MASK_PLACEHOLDER
from headlab.jobs.worth import WorthJob as WorthJob
from headlab.jobs.write import WriteJob as WriteJob

log = logging.getLogger(__name__)

BUILT_IN_KINDS: Mapping[str, type[Job]] = {
    job_class.key: job_class
    for job_class in (
        ScoreJob,
        CurveJob,
        FinetuneJob,
        ExperimentJob,
        RolesJob,
        GatesJob,
        FrontJob,
        InteractionsJob,
        WorthJob,
        WriteJob,
        ShrinkJob,
        ExportJob,
        LmJob,
        LmPruneJob,
        TranslationJob,
    )
}


KEY = re.compile(r"[a-z][a-z0-9-]{0,39}")  # it is a command


def _why_unfit(key: str, entry: object) -> str:
    """Why a package's entry is no kind of job; empty if it is one that can be made and typed."""
    if not (isinstance(entry, type) and issubclass(entry, Job)):
        return wrong_kind_text(entry, "a subclass of headlab.jobs.Job")
    if isabstract(entry):
        return f"{entry.__name__} lacks {' and '.join(sorted(entry.__abstractmethods__))}"
    wrong_key = wrong_key_text(getattr(entry, "key", None), key)
    if wrong_key:
        return wrong_key
    if not KEY.fullmatch(key):
        return (
            "its key is a command: a lower-case letter, then such letters, digits and -, "
            f"not {key!r:.60}"
        )
    if not getattr(entry, "name", ""):
        return f"{entry.__name__} has no name"
    return _why_without_command(entry)


def _why_without_command(kind: type[Job]) -> str:
    """Why a kind of job can have no command; empty if it can.

    One that cannot would leave headlab without any command.
    """
    try:
        names = [flag.key for flag in kind.flags()]
        settings = [flag.key for flag in kind.setting_flags()]
    except Exception as error:  # a package can raise anything
        return f"the flags of {kind.__name__} cannot be made ({type(error).__name__}: {error})"
    for name in settings:
        if name in COMMAND_FLAGS or names.count(name) > 1:
            return f"{kind.__name__} has a setting {name}, a flag that its command has already"
    return ""


COMMAND_FLAGS = ("data", "device", "device_map", "dtype", "cache", "json", "help")
"""Flags that every command of a package's job has besides those of its fields."""
COMMANDS = (
    "app",
    "evaluate",
    "check",
    "doctor",
    "push",
    "pull",
    "prune",
    "report",
    "models",
    "families",
    "tasks",
    "cache",
    "info",
    "worker",
    "reproduce",
    "train",
    "mask",
)
"""Commands and groups of commands that are no jobs: a kind of job of such a key would have none."""
JOBS: Registry[type[Job]] = Registry(
    BUILT_IN_KINDS, "headlab.jobs", _why_unfit, reserved_keys=COMMANDS
)


def job_class(key: str) -> type[Job]:
    """A kind of job by its key. Raises Refusal (422) for an unknown one."""
    if key not in JOBS:
        raise Refusal(
            f"unknown kind of job {key!r}; choose from {', '.join(JOBS)}",
            422,
            code="job.kind_unknown",
        )
    return JOBS[key]


def queued_kinds() -> dict[str, type[Job]]:
    """The kinds that a worker takes, by key; those of packages too."""
    return {key: kind for key, kind in JOBS.items() if kind.places}


def check_queued(key: object) -> None:
    """Raise Refusal (422) for the key of a kind that its command alone runs."""
    if isinstance(key, str) and key in JOBS and not JOBS[key].places:
        command = " ".join(JOBS[key].program_words())
        raise Refusal(
            f"{key} works on files of the machine where it is typed, so no worker takes it; run "
            f"{command} there",
            422,
            code="job.terminal_only",
        )


def job_from_params(key: str, params: Mapping[str, Any]) -> Job | None:
    """A job of the list, to be shown.

    None if its kind is unknown here or its fields are of another version.
    """
    if key not in JOBS:
        return None
    try:
        return JOBS[key].model_validate(dict(params))
    except ValidationError:
        return None
    except Exception:  # a validator of a package can raise anything
        if key in BUILT_IN_KINDS:
            raise
        log.exception("a job of kind %s cannot be read", key)
        return None
