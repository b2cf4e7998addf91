"""The types of the fields of jobs and requests, and settings that several kinds of job share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)

from headlab.core import (
    ABLATION_CHOICES,
    ABLATIONS,
    HeadlabError,
    Option,
    is_ablation,
    read_ablation,
)
from headlab.tasks import DEV_SIZE

JobSettings = Mapping[str, Option]


def reason_of(error_type: str, message: str) -> str:
    """Why a field does not fit, without what pydantic puts before the words of a ValueError.

    Args:
        error_type: The `type` of one of the `errors` of a validation error.
        message: Its `msg`.
    """
    if error_type == "value_error":
        return message.removeprefix("Value error, ")
    return message


class Strict(BaseModel):
    """A record that rejects unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Name = Annotated[
    str, StringConstraints(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+$")
]
Language = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,19}$")]
Languages = Annotated[list[Language], Field(min_length=1, max_length=200)] | Literal["all"]


def _recorded_ablation(value: str) -> str:
    """An ablation as results record it.

    Raises:
        ValueError: Its sizes do not fit.
    """
    try:
        return read_ablation(value)
    except HeadlabError as error:
        raise ValueError(str(error)) from error


Ablation = Annotated[
    str,
    AfterValidator(_recorded_ablation),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(ABLATION_CHOICES[:-1]), "type": "string"},
                {"pattern": r"^streaming(:[0-9]+,[0-9]+)?$", "type": "string"},
            ]
        }
    ),
]
"""What stands in a removed head's place; of streaming with its sizes, as it is recorded."""
SplitName = Literal["train", "dev", "test"]
JobPlace = Literal["here", "ray"]
LabelMap = Annotated[dict[Name, Name], Field(min_length=1, max_length=200)] | None
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
SimpleValue = bool | int | float | str | None
Options = Annotated[dict[Name, SimpleValue], Field(max_length=32)]
NestedOptions = Annotated[dict[Name, SimpleValue | Options], Field(max_length=32)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
BatchSize = Annotated[int, Field(ge=1, le=1024)]
LocalPath = Annotated[Path, PlainSerializer(str, return_type=str)]
"""A file or folder of this machine: of jobs alone that no worker takes, see `Job.places`."""


def setting(option: Option) -> Any:
    """A field of a job that is a setting: a flag of its command, a widget of its form.

    Args:
        option: Its default, its limits, and how people read it.

    Raises:
        TypeError: It may be none, but is not by default: no flag could say none.
    """
    if option.optional and option.default is not None:
        raise TypeError("a setting that may be none is none by default, for no flag says none")
    limit_names = ("gt", "lt") if option.open else ("ge", "le")
    limits: dict[str, Any] = {
        name: limit
        for name, limit in zip(limit_names, (option.low, option.high), strict=True)
        if math.isfinite(limit)
    }
    field = Field(default=option.default, **limits)
    field.metadata += [option, AfterValidator(partial(_fitting, option))]
    return field


def _fitting(option: Option, value: object) -> object:
    """The value of a setting, unchanged.

    Raises:
        ValueError: For what its type and its limits let through.
    """
    is_listed = not option.choices or not isinstance(value, str) or option.lists(value)
    is_number = not isinstance(value, float) or math.isfinite(value)
    if is_listed and is_number:
        return value
    raise ValueError(f"choose {option.range}")


# Settings that several kinds of job have.

MAX_EXAMPLES = 100_000
"""The largest number of examples that a request may ask for; a command may ask for more."""
SEED = Option(0, "seed of everything random", kind=int, low=0, label="Seed")


class AblationOption(Option):
    """An option that is an ablation: one of the choices, or streaming with sizes."""

    def lists(self, value: object) -> bool:
        """Whether a value is an ablation, as it is recorded or by its name."""
        return super().lists(value) or value in ABLATIONS or is_ablation(value)


ABLATION = AblationOption(
    "zero",
    "what replaces the output of a removed head: zero, mean, its output on another text: resample "
    "(another example) or counterfactual (the example's own contrast), or streaming: what it reads "
    "from the first 4 and the last 64 tokens alone, other sizes as streaming:FIRST,LAST",
    ABLATION_CHOICES,
    label="Output of a removed head",
    tip="Zero, its mean output, its output on another example, on the example's own contrast, or on the first and last "
    "tokens alone.",
)


def examples_of_dev(help: str, *, flag: str = "", tip: str = "") -> Option:
    """How many examples of dev are used."""
    return Option(
        DEV_SIZE,
        help,
        kind=int,
        low=1,
        high=MAX_EXAMPLES,
        label="Examples of dev, at most",
        flag=flag,
        tip=tip,
    )


def examples_of_test(help: str, *, tip: str = "") -> Option:
    """How many examples of test are used; all by default."""
    return Option(
        None,
        help,
        kind=int,
        low=1,
        high=MAX_EXAMPLES,
        optional=True,
        label="Examples of test, at most",
        empty="all",
        tip=tip,
    )


CHOOSING = "dev examples to choose heads on"
TESTING = "test examples to evaluate on; default: all of the split"


class OnTask(Strict):
    """Work on a task.

    label_map: {label: class of the model, by its name or number}; None matches names, or tries all
    orders on dev.
    """

    task: Name
    label_map: LabelMap = None
