"""Checks the types of arguments at run time against the annotations of a function.

A TypeError names the parameter, what was given and what is expected. Values of the right type are not judged here.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields
from functools import wraps
from inspect import Parameter, signature
from itertools import chain, islice
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

P = ParamSpec("P")
R = TypeVar("R")

_SHOWN_CHARACTERS = 60
_ELEMENTS_MAX = 100
"""Elements of a collection that are checked."""
_checks: "dict[Any, Check]" = {}
"""By annotation: a function of few annotations is called often."""
_SHOWN = (str, bytes, int, float, bool, NoneType)
"""Types whose values are shown in a message; others may hold a password."""


class Check(NamedTuple):
    """What a parameter accepts, and the alternatives in words."""

    accepts: Callable[[Any], bool]
    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        """The alternatives as a message has them."""
        return self.words[0] if len(self.words) == 1 else f"{', '.join(self.words[:-1])} or {self.words[-1]}"

    @property
    def element(self) -> str:
        """The alternatives as part of a longer phrase."""
        return self.expected if len(self.words) == 1 else f"({self.expected})"


def typed(function: Callable[P, R]) -> Callable[P, R]:
    """Checks the arguments of every call of the function before the call."""
    is_constructor = function.__name__ == "__init__"
    order: list[str] = []
    checks: dict[str, Check] = {}

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if not order:
            for parameter in signature(function).parameters.values():
                order.append(parameter.name)
                if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
                    checks[parameter.name] = _check_of(_resolved(parameter.annotation, function))
        for key, value in chain(zip(order, args, strict=False), kwargs.items()):
            if (check := checks.get(key)) is not None and not check.accepts(value):
                name = type(args[0]).__name__.removeprefix("Async") if is_constructor else function.__name__
                raise _wrong(name, key, value, check)
        return function(*args, **kwargs)

    return checked


def check_fields(instance: Any) -> None:
    """Checks the fields of a dataclass instance."""
    for key, check in _field_checks(type(instance)).items():
        value = getattr(instance, key)
        if not check.accepts(value):
            raise _wrong(type(instance).__name__, key, value, check)


def check_value(function: str, parameter: str, value: object, annotation: Any) -> None:
    """Checks one value."""
    check = _check_of(annotation)
    if not check.accepts(value):
        raise _wrong(function, parameter, value, check)


def check_options(function: str, parameter: str, given: Mapping[str, object], kind: type) -> None:
    """Checks names and values of options against a TypedDict."""
    known = get_type_hints(kind)
    for name, value in given.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise TypeError(f"{function}: {parameter} has no option {name!r}: {hint}")
        check_value(function, f"{parameter}[{name!r}]", value, known[name])


def _field_checks(kind: Any) -> dict[str, Check]:
    return {each.name: _check_of(each.type) for each in fields(kind) if each.init}


def _wrong(function: str, parameter: str, value: object, check: Check) -> TypeError:
    return TypeError(f"{function}: {parameter} must be {check.expected}, not {described(value)}")


def described(value: object) -> str:
    """A value as a message shows it: its type, and the value if it is short and no structure."""
    name = type(value).__name__
    if value is None or not isinstance(value, _SHOWN):
        return "None" if value is None else f"a value of type {name}"
    shown = repr(value)
    return f"{shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + '…'} ({name})"


def _resolved(annotation: Any, function: Callable[..., Any]) -> Any:
    """An annotation; Any if it is a text with names that are imported for type checkers only."""
    if annotation is Parameter.empty:
        return Any
    if isinstance(annotation, str):
        try:
            return eval(annotation, function.__globals__)  # noqa: S307 - our own annotations
        except NameError:
            return Any
    return annotation


def _check_of(annotation: Any) -> Check:
    if (known := _checks.get(annotation)) is None:
        known = _checks[annotation] = _made_check(annotation)
    return known


def _made_check(annotation: Any) -> Check:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is NoneType:
        return Check(lambda value: value is None, ("None",))
    if origin in (Union, UnionType):
        return _union([_check_of(each) for each in arguments])
    if origin is Literal:
        kinds = tuple({type(each): None for each in arguments})
        return Check(lambda value: isinstance(value, kinds), tuple(map(repr, arguments)))
    if origin is tuple:
        return _tuple_check([_check_of(each) for each in arguments])
    if is_typeddict(annotation):
        return _options_check(annotation)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _collection_check(origin, [_check_of(each) for each in arguments])
    if annotation is Any or not isinstance(annotation, type) or getattr(annotation, "_is_protocol", False):
        return Check(lambda _: True, (getattr(annotation, "__name__", "anything"),))
    return _class_check(annotation)


def _class_check(kind: type) -> Check:
    if kind is int:
        return Check(lambda value: isinstance(value, int) and not isinstance(value, bool), ("int",))
    if kind is float:
        return Check(lambda value: isinstance(value, int | float) and not isinstance(value, bool), ("a number",))
    return Check(lambda value: isinstance(value, kind), (kind.__name__,))


def _union(checks: Sequence[Check]) -> Check:
    words = tuple(dict.fromkeys(word for check in checks for word in check.words))
    tests = [check.accepts for check in checks]
    return Check(lambda value: any(test(value) for test in tests), words)


def _tuple_check(checks: Sequence[Check]) -> Check:
    def accepts(value: Any) -> bool:
        return (
            isinstance(value, tuple)
            and len(value) == len(checks)
            and all(check.accepts(each) for check, each in zip(checks, value, strict=True))
        )

    return Check(accepts, (f"a tuple ({', '.join(check.element for check in checks)})",))


def _options_check(kind: type) -> Check:
    """Names and values are checked where the options are used."""
    return Check(lambda value: isinstance(value, Mapping), (f"a mapping as {kind.__name__}",))


def _collection_check(origin: type, checks: Sequence[Check]) -> Check:
    """Elements are checked if they can be read again: a generator is left alone."""
    if issubclass(origin, Mapping):
        key, value = checks

        def accepts_pairs(given: Any) -> bool:
            return isinstance(given, origin) and all(
                key.accepts(name) and value.accepts(each) for name, each in islice(given.items(), _ELEMENTS_MAX)
            )

        return Check(accepts_pairs, (f"a mapping of {key.element} to {value.element}",))
    (element,) = checks

    def accepts(given: Any) -> bool:
        is_of_origin: bool = isinstance(given, origin)
        if not is_of_origin or isinstance(given, str | bytes):
            return False
        is_lasting = isinstance(given, Sequence | AbstractSet | Mapping)
        return not is_lasting or all(map(element.accepts, islice(given, _ELEMENTS_MAX)))

    word = "an iterable" if origin is Iterable else "a sequence"
    return Check(accepts, (f"{word} of {element.element}",))
