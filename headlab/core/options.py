"""Options of methods, experiments and analyses: valid values, and their form on a command line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import ClassVar, Self, TypeAlias, TypedDict, TypeVar, Unpack

from headlab.core.errors import HeadlabError
from headlab.core.json_types import Json, JsonLike

OptionValue: TypeAlias = bool | int | float | str | Mapping[str, "OptionValue"] | None
T = TypeVar("T", bound=OptionValue)

KIND_TEXTS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    dict: "options by name",
}
"""The kinds of values that headlab's own options have."""


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        default: Its default value.
        help: Its help text.
        choices: The only valid values, if any.
        kind: Type of its values.
        low: Smallest valid number.
        high: Largest valid number.
        open: Whether `low` and `high` themselves are invalid.
        optional: Whether None is valid.
        flag: Its name on the command line, if another.
        label: Its label in a form; by default made of its name.
        tip: Its tip in a form; by default made of its help.
        empty: What an empty field of the form says.
        recorded_default: Whether specs of results record its default value. They do not if the
            option came later than results that are stored without it.
    """

    default: OptionValue
    help: str
    choices: Sequence[str] = ()
    kind: type = str
    low: float = -math.inf
    high: float = math.inf
    open: bool = False
    optional: bool = False
    flag: str = ""
    label: str = ""
    tip: str = ""
    empty: str = "none"
    recorded_default: bool = True

    def fits(self, value: object) -> bool:
        """Whether a value has the right type and is in range; infinity never is."""
        if value is None:
            return self.optional
        has_type = type(value) is self.kind or (self.kind is float and type(value) is int)
        if not has_type or (self.choices and not self.lists(value)):
            return False
        if self.kind not in (int, float) or not isinstance(value, int | float):
            return True
        try:
            number = float(value)
        except OverflowError:
            return False
        if self.open:
            is_in_range = self.low < number < self.high
        else:
            is_in_range = self.low <= number <= self.high
        return is_in_range and math.isfinite(number)

    def lists(self, value: object) -> bool:
        """Whether a value is one of the choices."""
        return value in self.choices

    @property
    def range(self) -> str:
        """The valid values, in words."""
        none_words = ", or none" if self.optional else ""
        return self._values_in_words() + none_words

    def _values_in_words(self) -> str:
        """The valid values besides none."""
        if self.choices:
            return " or ".join(self.choices)
        kind = KIND_TEXTS.get(self.kind, f"a value of type {self.kind.__name__}")
        return f"{kind} {self._limits_in_words()}".rstrip()

    def _limits_in_words(self) -> str:
        """Where a number must lie; empty where it has no limits."""
        if self.open and self.high < math.inf:
            return f"between {self.low:g} and {self.high:g}, both excluded"
        if self.open:
            return f"above {self.low:g}"
        if self.high < math.inf:
            return f"from {self.low:g} to {self.high:g}"
        if self.low > -math.inf:
            return f"of {self.low:g} or more"
        return ""


class Limits(TypedDict, total=False):
    """The fields of `Option` that an option may set besides its default, help and choices."""

    kind: type
    low: float
    high: float
    open: bool
    optional: bool
    flag: str
    label: str
    tip: str
    empty: str


def option(default: T, help_text: str, choices: Sequence[str] = (), **limits: Unpack[Limits]) -> T:
    """A field of an `Options` class.

    Args:
        default: Its default value.
        help_text: Its help text.
        choices: The only valid values, if any.
        limits: Other fields of `Option`.
    """
    return field(
        default=default, metadata={"option": Option(default, help_text, choices, **limits)}
    )


@dataclass(frozen=True)
class Options:
    """The options of one kind of work.

    A subclass declares each option once, as a field made by `option`. A field not made by `option`
    is set elsewhere, and a user cannot set it.
    """

    whose: ClassVar[str] = ""  # prefix of error messages

    @classmethod
    def table(cls) -> Mapping[str, Option]:
        """The options by name."""
        option_by_name = {}
        for declared_field in fields(cls):
            if "option" in declared_field.metadata:
                option_by_name[declared_field.name] = declared_field.metadata["option"]
        return MappingProxyType(option_by_name)

    @classmethod
    def of(cls, values: Mapping[str, object], **elsewhere: object) -> Self:
        """The options with the given values, validated.

        Args:
            values: Values by name.
            elsewhere: Fields that a user cannot set.

        Raises:
            HeadlabError: For an unknown name or a value that does not fit.
        """
        option_by_name = cls.table()
        unknown = sorted(set(values) - set(option_by_name))
        if unknown:
            raise HeadlabError(
                f"{cls.whose}unknown option {unknown[0]!r:.40}; choose from "
                f"{', '.join(option_by_name)}",
                code="option.unknown",
            )
        options = cls(**values, **elsewhere)
        options.check()
        return options

    def check(self) -> None:
        """Raise HeadlabError for a value that does not fit."""
        for name, known_option in self.table().items():
            value = getattr(self, name)
            if not known_option.fits(value):
                raise HeadlabError(
                    f"{self.whose}{name} is {value!r:.40}; choose {known_option.range}",
                    code="option.invalid",
                )

    def record(self) -> dict[str, Json]:
        """The options by name, ready for JSON."""
        return asdict(self)


def require_known_options(
    option_by_name: Mapping[str, Option],
    values: Mapping[str, object],
    owner_has: str,
    *,
    code: str,
    it_has: str = "it has",
) -> None:
    """Raise HeadlabError for an unknown name.

    Args:
        option_by_name: The known options.
        values: The given values by name.
        owner_has: Subject and verb of the message, like "method random has".
        code: Code of the error.
        it_has: Subject and verb of its second half.
    """
    unknown = sorted(set(values) - set(option_by_name))
    if unknown:
        raise HeadlabError(
            f"{owner_has} no option {', '.join(unknown)}; {it_has} "
            f"{', '.join(option_by_name) or 'none'}",
            code=code,
        )


def resolve_options(
    option_by_name: Mapping[str, Option], values: Mapping[str, object], owner: str, *, code: str
) -> dict[str, OptionValue]:
    """All known options: the given values, and the defaults of the others.

    Args:
        option_by_name: The known options.
        values: The given values by name.
        owner: Whose options they are, like "method random".
        code: Code of the error.

    Raises:
        HeadlabError: For a value that does not fit.
    """
    resolved_values = {
        name: values.get(name, option.default) for name, option in option_by_name.items()
    }
    for name, option in option_by_name.items():
        if not option.fits(resolved_values[name]):
            raise HeadlabError(
                f"{owner}: {name} is {resolved_values[name]!r}, but must be {option.range}",
                code=code,
            )
    return {
        name: None if value is None else option_by_name[name].kind(value)
        for name, value in resolved_values.items()
    }


def number_in(options: Mapping[str, OptionValue], name: str) -> float:
    """The number that a resolved option holds. Raises TypeError for one that holds none."""
    value = options[name]
    if not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, not a number")
    return value


def integer_in(options: Mapping[str, OptionValue], name: str) -> int:
    """The whole number that a resolved option holds. Raises TypeError for one that holds none."""
    return int(number_in(options, name))


def text_in(options: Mapping[str, OptionValue], name: str) -> str:
    """The text that a resolved option holds. Raises TypeError for one that holds none."""
    value = options[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, not a text")
    return value


def optional_number_in(options: Mapping[str, OptionValue], name: str) -> float | None:
    """As `number_in`, but None where the option is none."""
    if options[name] is None:
        return None
    return number_in(options, name)


def optional_integer_in(options: Mapping[str, OptionValue], name: str) -> int | None:
    """As `integer_in`, but None where the option is none."""
    if options[name] is None:
        return None
    return integer_in(options, name)


def options_in(options: Mapping[str, OptionValue], name: str) -> Mapping[str, OptionValue]:
    """The options that a resolved option holds, as of a method.

    Raises:
        TypeError: For one that holds none.
    """
    value = options[name]
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is {value!r}, not options by name")
    return value


def options_as_words(
    flag: str, values: Mapping[str, object], option_by_name: Mapping[str, Option]
) -> Iterator[str]:
    """The options that differ from their defaults, as words of a command.

    Inverse of `parse_options`.
    """
    for name, value in values.items():
        if name not in option_by_name or value != option_by_name[name].default:
            yield from (flag, f"{name}={as_command_text(value)}")


def as_command_text(value: object) -> str:
    """A value in command-line form: JSON, "none", or a plain text that is not itself valid JSON."""
    if value is None:
        return "none"
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        json.loads(value)
    except ValueError:
        return value
    return json.dumps(value)


def parse_options(
    pairs: Sequence[str], option_by_name: Mapping[str, Option]
) -> dict[str, JsonLike]:
    """Typed values of options like "samples=512" and "target=none".

    A value is JSON if it parses, None for "none" if the option is optional, and else text.

    Args:
        pairs: Options of the form name=value.
        option_by_name: The known options.

    Raises:
        HeadlabError: A pair is not of the form name=value.
    """
    values: dict[str, JsonLike] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise HeadlabError(
                f"option {pair!r} is not of the form name=value, like samples=512",
                code="option.malformed",
            )
        is_optional = name in option_by_name and option_by_name[name].optional
        if is_optional and text.lower() == "none":
            values[name] = None
        else:
            values[name] = _json_or_text(text)
    return values


def _json_or_text(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except ValueError:
        return text
    return value
