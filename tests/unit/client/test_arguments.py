"""Arguments of a wrong type are a TypeError that names the parameter, what was given and what is expected."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import pytest

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
