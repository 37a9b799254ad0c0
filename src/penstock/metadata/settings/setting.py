"""One setting: its name, type, default, bounds, and how its text is parsed.

Names, types, defaults and bounds are Kafka 4.3's, and so are the messages that refuse a value: tools match on them. A
text is parsed as in Java (`+5` is a number, `1_000` is not). Only NaN, which passes any bound in Kafka, is refused
here.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TypeAlias

from penstock.model.errors import ErrorCode, ProtocolError

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Kind(IntEnum):
    """The type of a setting, numbered as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Source(IntEnum):
    """The source of a value, numbered as in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Importance(Enum):
    """Importance of a setting, for its documentation."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Update(Enum):
    """How a broker setting may change while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class InvalidSetting(ProtocolError):
    """An unknown name, or a value that its setting does not allow; `str` is the message for the client."""

    code = ErrorCode.INVALID_CONFIG

    @classmethod
    def value(cls, name: str, shown: object, why: str) -> "InvalidSetting":
        """An error with Kafka's message."""
        return cls(f"Invalid value {shown} for configuration {name}: {why}")


Check: TypeAlias = Callable[[str, Value], None]
"""Raises InvalidSetting if the value of the named setting is out of bounds."""


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker setting that supplies a setting of a topic or group, and the factor applied to its number."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """Definition of one setting."""

    name: str
    kind: Kind
    default: str | None
    documentation: str
    importance: Importance = Importance.MEDIUM
    check: Check | None = None
    update: Update = Update.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()
    is_internal: bool = False
    """For tests and emergencies: accepted, but reported only where it is set."""

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is never reported."""
        return self.kind is Kind.PASSWORD

    def parse(self, text: str | None) -> Value:
        """Parses a text; raises InvalidSetting."""
        value = None if text is None else _read(self.name, self.kind, text)
        if self.check is not None and value is not None:
            self.check(self.name, value)
        if isinstance(value, tuple) and self.check is not throttled_replicas:
            return tuple(dict.fromkeys(value))
        return value


# --- reading and showing ----------------------------------------------------------------------------------------------

_SPACE = "".join(map(chr, range(33)))
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}


def _read(name: str, kind: Kind, text: str) -> Value:
    trimmed = text.strip(_SPACE)
    match kind:
        case Kind.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise InvalidSetting.value(name, text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        case Kind.INT | Kind.SHORT | Kind.LONG:
            if _INTEGER.fullmatch(trimmed) and len(trimmed) <= 1000:
                number = int(trimmed)
                if -(1 << _BITS[kind] - 1) <= number < 1 << _BITS[kind] - 1:
                    return number
            raise InvalidSetting.value(name, text, f"Not a number of type {kind.name}")
        case Kind.DOUBLE:
            if not _DOUBLE.fullmatch(trimmed):
                raise InvalidSetting.value(name, text, "Not a number of type DOUBLE")
            return float(trimmed if trimmed.endswith("y") else trimmed.rstrip("fFdD"))
        case Kind.LIST:
            return tuple(re.split(r"\s*,\s*", trimmed)) if trimmed else ()
    return trimmed


def show(value: Value) -> str | None:
    """The text of a value, as Java writes it."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case float():
            return _show_double(value)
    return str(value)


def _show_double(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else f"{value:f}"
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits, _, exponent = f"{value:.17e}".partition("e")
        digits = repr(float(digits))
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


# --- bounds -----------------------------------------------------------------------------------------------------------


def at_least(least: int) -> Check:
    """A number of at least `least`."""

    def check(name: str, value: Value) -> None:
        if isinstance(value, int | float) and value < least:
            raise InvalidSetting.value(name, show(value), f"Value must be at least {least}")

    return check


def between(least: int, most: int) -> Check:
    """A number from `least` to `most`, both included."""
    check_least = at_least(least)

    def check(name: str, value: Value) -> None:
        check_least(name, value)
        if isinstance(value, int | float) and value > most:
            raise InvalidSetting.value(name, show(value), f"Value must be no more than {most}")

    return check


def one_of(*allowed: str) -> Check:
    """One of these words or, in a list, only these words."""

    def check(name: str, value: Value) -> None:
        if isinstance(value, tuple) and "" in value:
            raise InvalidSetting(f"Configuration '{name}' values must not be empty.")
        for word in value if isinstance(value, tuple) else (value,):
            if word not in allowed:
                raise InvalidSetting.value(name, word, f"String must be one of: {', '.join(allowed)}")

    return check


def one_of_any_case(*allowed: str) -> Check:
    """One of these words, ignoring case."""

    def check(name: str, value: Value) -> None:
        if str(value).upper() not in allowed:
            why = f"String must be one of (case insensitive): {', '.join(allowed)}"
            raise InvalidSetting.value(name, value, why)

    return check


def gzip_level(name: str, value: Value) -> None:
    """A gzip level, or -1 for the library's default."""
    if isinstance(value, int) and value != -1 and not 1 <= value <= 9:
        raise InvalidSetting.value(name, value, "Value must be between 1 and 9 or equal to -1")


def throttled_replicas(name: str, value: Value) -> None:
    """`*`, or a list of partition:broker."""
    listed: Sequence[str] = value if isinstance(value, tuple) else ()
    if listed == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", each) for each in listed):
        return
    why = (
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )
    raise InvalidSetting.value(name, f"[{', '.join(listed)}]", why)
