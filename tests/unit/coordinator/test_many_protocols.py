"""Members with very many protocols: the common ones are found without pairwise comparison."""

from typing import ClassVar

import pytest

from penstock.coordinator.classic import known_to_all
from penstock.model.errors import ErrorCode
from tests.unit.coordinator.shard_driver import ShardDriver, alive, join

MANY = 500


class Name(str):
    """A string that counts comparisons."""

    __slots__ = ()
    compared: ClassVar = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.fixture(autouse=True)
def _count_anew() -> None:
    Name.compared = 0


def names(letter: str, *more: str) -> list[Name]:
    return [Name(f"{letter}{number}") for number in range(MANY)] + [Name(each) for each in more]


def test_what_all_know_keeps_its_order() -> None:
    one, other, third = ([(name, b"") for name in letters] for letters in ("dcba", "abd", "dbc"))
    assert known_to_all(tuple(one), [tuple(other), tuple(third)]) == ["d", "b"]
    assert known_to_all(tuple(one), []) == ["d", "c", "b", "a"]


def test_who_has_nothing_in_common_is_refused_at_once() -> None:
    driver = ShardDriver()
    driver.send(join(protocols=names("a")), version=3)
    assert driver.ask(join(protocols=names("b"))).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Name.compared < 5 * MANY


def test_a_consumer_group_finds_the_one_that_all_know_at_once() -> None:
    driver = ShardDriver()
    driver.ask(alive("n", 0), version=1)
    driver.ask(join(protocols=names("a", "range")), version=3)
    joined = driver.ask(join(protocols=names("b", "range")), version=3)
    assert joined.error_code is ErrorCode.NONE
    assert joined.protocol_name == "range"
    assert Name.compared < 5 * MANY
