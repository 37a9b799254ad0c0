"""Arguments of a wrong type are a TypeError that names the parameter, what was given and what is expected."""

import asyncio
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, Unpack, get_origin

import pytest

from docs.pages import client_reference
from penstock.client import Client, TopicPartition
from penstock.client.admin.configs import ConfigKind
from penstock.client.admin.voters import VoterListener
from penstock.client.arguments import check_fields, typed


class Place(NamedTuple):
    number: int


class Spread(Protocol):
    def pick(self) -> int: ...


class Maker:
    @typed
    def __init__(self, name: str, *, sasl: tuple[Literal["PLAIN"], str, str] | None = None) -> None:
        self.name = name

    @typed
    def make(
        self,
        text: bytes | str | None,
        count: int = 1,
        *,
        share: float = 0.5,
        is_new: bool = False,
        names: str | Sequence[str] = (),
        numbers: Iterable[int] = (),
        configs: Mapping[str, str | None] | None = None,
        start: int | Place | Literal["earliest", "latest"] = "earliest",
        spread: Spread | Literal["sticky"] = "sticky",
        unknown: "Missing | None" = None,  # type: ignore[name-defined]  # noqa: F821
    ) -> object:
        return (text, count, tuple(numbers))

    @typed
    async def wait(self, time_ms: int) -> int:
        return time_ms


GOOD: tuple[dict[str, Any], ...] = (
    {"text": None},
    {"text": "x", "count": 2, "share": 1},
    {"text": b"x", "names": ["a", "b"], "numbers": {1, 2}},
    {"text": b"x", "names": "a", "numbers": (each for each in (1, 2))},
    {"text": b"x", "configs": {"a": None}, "start": 3},
    {"text": b"x", "start": Place(3)},
    {"text": b"x", "start": "middle"},  # of the right type: whether it makes sense is judged elsewhere
    {"text": b"x", "spread": object(), "unknown": 3},
)


@pytest.mark.parametrize("given", GOOD)
def test_what_fits_goes_through(given: dict[str, Any]) -> None:
    assert Maker("m").make(**given) is not None


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"text": 3}, "make: text must be bytes, str or None, not 3 (int)"),
    ({"text": {"id": 1}}, "make: text must be bytes, str or None, not a value of type dict"),
    ({"text": "", "count": "3"}, "make: count must be int, not '3' (str)"),
    ({"text": "", "count": True}, "make: count must be int, not True (bool)"),
    ({"text": "", "count": None}, "make: count must be int, not None"),
    ({"text": "", "share": "half"}, "make: share must be a number, not 'half' (str)"),
    ({"text": "", "is_new": 1}, "make: is_new must be bool, not 1 (int)"),
    ({"text": "", "names": [1]}, "make: names must be str or a sequence of str, not a value of type list"),
    ({"text": "", "numbers": "12"}, "make: numbers must be an iterable of int, not '12' (str)"),
    (
        {"text": "", "configs": {"a": 1}},
        "configs must be a mapping of str to (str or None) or None, not a value of type",
    ),
    ({"text": "", "start": 1.5}, "start must be int, Place, 'earliest' or 'latest', not 1.5 (float)"),
    ({"text": "x" * 100, "count": "y" * 100}, "count must be int, not 'yyyy"),
)


@pytest.mark.parametrize(("given", "sentence"), WRONG)
def test_what_does_not_fit_is_named(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError) as wrong:
        Maker("m").make(**given)
    assert sentence in str(wrong.value)
    assert len(str(wrong.value)) < 150


def test_by_position_and_of_a_constructor() -> None:
    made: Any = Maker
    with pytest.raises(TypeError, match=r"^Maker: name must be str, not 1 "):
        made(1)
    with pytest.raises(TypeError, match=r"^make: count must be int, not b'k' \(bytes\)$"):
        made("m").make("text", b"k")


def test_a_password_is_not_shown() -> None:
    made: Any = Maker
    with pytest.raises(TypeError) as wrong:
        made("m", sasl=("PLAIN", "alice", "secret", "more"))
    assert str(wrong.value) == "Maker: sasl must be a tuple ('PLAIN', str, str) or None, not a value of type tuple"


def test_a_coroutine_is_refused_when_it_is_called_not_when_it_is_awaited() -> None:
    made: Any = Maker("m")
    with pytest.raises(TypeError, match="wait: time_ms"):
        made.wait("1")


def test_an_unknown_name_is_pythons_own_error() -> None:
    made: Any = Maker("m")
    with pytest.raises(TypeError, match="unexpected keyword argument 'cuont'"):
        made.make("", cuont=1)


def test_fields_of_a_dataclass() -> None:
    @dataclass(frozen=True)
    class Settings:
        wait_ms: int = 1
        protocol: Literal["auto", "classic"] = "auto"

        def __post_init__(self) -> None:
            check_fields(self)

    made: Any = Settings
    made(wait_ms=3, protocol="classic")
    with pytest.raises(TypeError, match=r"Settings: wait_ms must be int, not '3' \(str\)"):
        made(wait_ms="3")


class Odd:
    """No parameter of the client takes it."""


INSIDE = {*client_reference.INSIDE, "run", "start", "close"}
"""Methods that other parts of the client use, and those that take any coroutine."""
FILLED: tuple[tuple[str, Any], ...] = (
    ("NewTopic", []),
    ("VoterListener", VoterListener("C", "h", 1)),
    ("ConfigKind", ConfigKind.TOPIC),
    ("Mapping", {}),
    ("Sequence", []),
    ("Iterable", []),
    ("TopicPartition", TopicPartition("t", 0)),
    ("str", "t"),
    ("bytes", b"t"),
    ("int", 1),
)
"""Values for parameters without a default, by what their annotation has."""


def wrongly_called(thing: object, name: str) -> Iterator[str]:
    """The parameters of a method that take a value of any type, or whose error does not name them."""
    method = getattr(thing, name)
    parameters = inspect.signature(method).parameters.values()
    for each in parameters:
        if each.kind is each.VAR_KEYWORD:
            if get_origin(each.annotation) is not Unpack:
                yield f"{name}(**{each.name})"
            continue
        given = {
            one.name: next((value for word, value in FILLED if word in str(one.annotation)), None)
            for one in parameters
            if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
        }
        if each.kind is each.VAR_POSITIONAL:
            call = partial(method, *given.values(), Odd())
        else:
            call = partial(method, **{**given, each.name: Odd()})
        try:
            made = call()
            if inspect.iscoroutine(made):  # a producer checks what it is about to buffer
                with closing(made):
                    made.send(None)
        except TypeError as error:
            if f"{each.name} must be" not in str(error):
                yield f"{name}({each.name}): {error}"
        except Exception as error:
            yield f"{name}({each.name}): {error!r}"
        else:
            yield f"{name}({each.name})"


def test_every_public_method_names_an_argument_of_a_wrong_type() -> None:
    async def story() -> list[str]:
        async with Client("127.0.0.1:1") as client:
            things = (client, client.admin, client.producer(), client.consumer(), client.group_consumer("g", "t"))
            return [
                f"{type(thing).__name__}.{found}"
                for thing in things
                for name, _ in inspect.getmembers(thing, inspect.ismethod)
                if name not in INSIDE and not name.startswith("_")
                for found in wrongly_called(thing, name)
            ]

    assert asyncio.run(story()) == []


def test_the_blocking_client_does_so_too() -> None:
    with Client.blocking("127.0.0.1:1") as client, client.producer() as producer:
        found = [
            f"{type(thing).__name__}.{each}"
            for thing in (client, producer)
            for name, _ in inspect.getmembers(thing, inspect.ismethod)
            if name not in INSIDE and not name.startswith("_")
            for each in wrongly_called(thing, name)
        ]
    assert found == []
