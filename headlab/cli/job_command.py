"""Commands from declared flags: the one place that makes the signatures that typer reads.

A command is a function. Of its parameters, each either is a flag itself, annotated as typer reads
it, or stands for several flags: a job for those of its class, a dataclass for its fields, and any
other for a `FlagGroup`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from types import UnionType
from typing import Annotated, Generic, TypeVar, get_args, get_type_hints

import typer

from headlab.core import Option
from headlab.jobs import Flag, FlagValue, Job, flag_of

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Command = Callable[..., None]
FlagValues = Mapping[str, FlagValue]
"""The arguments of a command line, by the flags' keys.

Flags that were not given have their defaults.
"""


@dataclass(frozen=True)
class FlagGroup(Generic[T_co]):
    """The flags that one parameter of a command stands for.

    Attributes:
        parameters: One for each flag, as typer reads them.
        make: The value of that one parameter, made of the flags' values.
    """

    parameters: Sequence[Parameter]
    make: Callable[[FlagValues], T_co]


def job_flags(job_class: type[Job]) -> FlagGroup[Job]:
    """The flags of a kind of job, which make the job."""
    return FlagGroup([parameter_of(flag) for flag in job_class.flags()], job_class.from_flags)


def values_of(flags: Sequence[Flag]) -> FlagGroup[FlagValues]:
    """Flags whose values are passed on by their keys."""
    keys = [flag.key for flag in flags]
    return FlagGroup(
        [parameter_of(flag) for flag in flags], lambda values: {key: values[key] for key in keys}
    )


def option_flags(options: Mapping[str, Option], *names: str) -> FlagGroup[FlagValues]:
    """Options as flags.

    Args:
        options: By name.
        names: Of those that have a flag, in the order of the help.
    """
    return values_of([flag_of(name, options[name]) for name in names])


def field_flags(group_class: type[T]) -> FlagGroup[T]:
    """The fields of a dataclass, each annotated as typer reads it."""
    hints = get_type_hints(group_class, include_extras=True)
    parameters = [
        Parameter(
            field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(group_class)  # type: ignore[arg-type]  # a dataclass, as `group_of` sees
    ]
    names = [parameter.name for parameter in parameters]
    return FlagGroup(
        parameters, lambda values: group_class(**{name: values[name] for name in names})
    )


def command(body: Command, **groups: FlagGroup[object]) -> Command:
    """A command as typer reads it: with a parameter for each flag, in the order of its help.

    A parameter of the body that has the name of a flag that stands further up is given that flag's
    value.

    Args:
        body: What the command does.
        groups: The flags that parameters stand for, by their names, where their types do not say
            it.
    """
    hints = get_type_hints(body, include_extras=True)
    groups_by_name = dict(groups)
    parameters: dict[str, Parameter] = {}
    plain_names = []
    for name, parameter in inspect.signature(body).parameters.items():
        group = groups_by_name.get(name) or group_of(hints[name])
        if group is None:
            plain_names.append(name)
            flags: Sequence[Parameter] = [parameter.replace(annotation=hints[name])]
        else:
            groups_by_name[name] = group
            flags = group.parameters
        for flag in flags:
            parameters.setdefault(flag.name, flag.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(body)
    def run(**values: FlagValue) -> None:
        arguments: dict[str, object] = {name: values[name] for name in plain_names}
        for name, group in groups_by_name.items():
            arguments[name] = group.make(values)
        body(**arguments)

    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: flag.annotation for name, flag in parameters.items()}
    return run


def group_of(annotation: object) -> FlagGroup[object] | None:
    """The flags that a parameter of this type stands for; None if it is a flag itself."""
    for part in get_args(annotation):
        if isinstance(part, FlagGroup):
            return part
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, Job):
        return job_flags(annotation)
    if is_dataclass(annotation):
        return field_flags(annotation)
    return None


def parameter_of(flag: Flag) -> Parameter:
    """A flag as a parameter of a command."""
    kind: type | UnionType = flag.kind
    if flag.repeated:
        kind = list[flag.kind]  # type: ignore[name-defined]
    if flag.default is None and not flag.required:
        kind = kind | None
    if flag.is_argument:
        info = typer.Argument(help=flag.help, metavar=flag.metavar or None)
    else:
        low = None if flag.low is None else int(flag.low)
        info = typer.Option(*flag.names, help=flag.help, min=low)
    return Parameter(
        flag.key,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if flag.required else flag.default,
        annotation=Annotated[kind, info],
    )
