"""Options of methods, experiments and analyses: valid values, and how they are written on a command line."""

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

KINDS_IN_WORDS: Mapping[type, str] = {
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

    choices, if any, are the only valid values; numbers must be in [low, high], or in (low, high) if
    `open`; None is valid if `optional`.

    Attributes:
        flag: Its name on the command line, if another.
        label, tip: of its form, else made of its name and help.
        empty: What an empty field of the form says.
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

    def fits(self, value: object) -> bool:
        """Whether a value has the right type and is in range; infinity never is."""
        if value is None:
            return self.optional
        good = type(value) is self.kind or (self.kind is float and type(value) is int)
        if not good or (self.choices and value not in self.choices):
            return False
        if self.kind not in (int, float) or not isinstance(value, int | float):
            return True
        try:
            number = float(value)
        except OverflowError:
            return False
        within = self.low < number < self.high if self.open else self.low <= number <= self.high
        return within and math.isfinite(number)

    @property
    def range(self) -> str:
        """The valid values, in words."""
        return self._values_in_words() + (", or none" if self.optional else "")

    def _values_in_words(self) -> str:
        """The valid values besides none."""
        if self.choices:
            return " or ".join(self.choices)
        kind = KINDS_IN_WORDS.get(self.kind, f"a value of type {self.kind.__name__}")
        return f"{kind} {self._limits_in_words()}".rstrip()

    def _limits_in_words(self) -> str:
        """Where a number must lie; empty where it has no limits."""
        if self.open and self.high < math.inf:
            return f"between {self.low:g} and {self.high:g}, both excluded"
        if self.open:
            return f"above {self.low:g}"
        if self.high < math.inf:
            return f"from {self.low:g} to {self.high:g}"
        return f"of {self.low:g} or more" if self.low > -math.inf else ""


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


def option(default: T, says: str, choices: Sequence[str] = (), **limits: Unpack[Limits]) -> T:
    """A field of an `Options` class.

    Args:
        says: Its help text.
        limits: Other fields of `Option`.
    """
    return field(default=default, metadata={"option": Option(default, says, choices, **limits)})


@dataclass(frozen=True)
class Options:
    """The options of one kind of work: a subclass declares each option once, as a field made by `option`.

    A field not made by `option` is set elsewhere, and a user cannot set it.
    """

    whose: ClassVar[str] = ""  # prefix of error messages

    @classmethod
    def table(cls) -> Mapping[str, Option]:
        """The options by name."""
        return MappingProxyType(
            {f.name: f.metadata["option"] for f in fields(cls) if "option" in f.metadata}
        )

    @classmethod
    def of(cls, given: Mapping[str, object], **elsewhere: object) -> Self:
        """The options with the given values, validated.

        Args:
            elsewhere: Fields that a user cannot set.

        Raises:
            HeadlabError: For an unknown name or a value that does not fit.
        """
        known = cls.table()
        if unknown := sorted(set(given) - set(known)):
            raise HeadlabError(
                f"{cls.whose}unknown option {unknown[0]!r:.40}; choose from {', '.join(known)}",
                code="option.unknown",
            )
        made = cls(**given, **elsewhere)
        made.check()
        return made

    def check(self) -> None:
        """Raise HeadlabError for a value that does not fit."""
        for name, known in self.table().items():
            value = getattr(self, name)
            if not known.fits(value):
                raise HeadlabError(
                    f"{self.whose}{name} is {value!r:.40}; choose {known.range}",
                    code="option.invalid",
                )

    def record(self) -> dict[str, Json]:
        """The options by name, ready for JSON."""
        return asdict(self)


def check_known(
    known: Mapping[str, Option],
    given: Mapping[str, object],
    whose: str,
    *,
    code: str,
    they: str = "it has",
) -> None:
    """Raise HeadlabError for an unknown name.

    Args:
        whose, they: Subject and verb, like "method random has" and "it has".
    """
    if unknown := sorted(set(given) - set(known)):
        raise HeadlabError(
            f"{whose} no option {', '.join(unknown)}; {they} {', '.join(known) or 'none'}",
            code=code,
        )


def resolved(
    known: Mapping[str, Option], given: Mapping[str, object], whose: str, *, code: str
) -> dict[str, OptionValue]:
    """All known options: the given values, and the defaults of the others.

    Args:
        whose: like "method random".

    Raises:
        HeadlabError: For a value that does not fit.
    """
    out = {name: given.get(name, option.default) for name, option in known.items()}
    for name, option in known.items():
        if not option.fits(out[name]):
            raise HeadlabError(
                f"{whose}: {name} is {out[name]!r}, but must be {option.range}", code=code
            )
    return {
        name: value if value is None else known[name].kind(value) for name, value in out.items()
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
    return None if options[name] is None else number_in(options, name)


def optional_integer_in(options: Mapping[str, OptionValue], name: str) -> int | None:
    """As `integer_in`, but None where the option is none."""
    return None if options[name] is None else integer_in(options, name)


def options_in(options: Mapping[str, OptionValue], name: str) -> Mapping[str, OptionValue]:
    """The options that a resolved option holds, as of a method.

    Raises:
        TypeError: For one that holds none.
    """
    value = options[name]
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is {value!r}, not options by name")
    return value


def option_words(
    flag: str, given: Mapping[str, object], known: Mapping[str, Option]
) -> Iterator[str]:
    """The options that differ from their defaults, as words of a command.

    Inverse of `parse_options`.
    """
    for name, value in given.items():
        if name not in known or value != known[name].default:
            yield from (flag, f"{name}={written(value)}")


def written(value: object) -> str:
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


def parse_options(pairs: Sequence[str], known: Mapping[str, Option]) -> dict[str, JsonLike]:
    """["samples=512", "target=none"] -> typed values: JSON if it parses, None for "none" if optional, else text.

    Raises HeadlabError for a pair not of the form name=value.
    """
    out: dict[str, JsonLike] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise HeadlabError(
                f"option {pair!r} is not of the form name=value, like samples=512",
                code="option.malformed",
            )
        optional = name in known and known[name].optional
        out[name] = None if optional and text.lower() == "none" else _json_or_text(text)
    return out


def _json_or_text(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except ValueError:
        return text
    return value
