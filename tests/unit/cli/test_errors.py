"""What goes wrong is told in one sentence, with what to do."""

import socket

import pytest

from tests.unit.cli.conftest import Penstock


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "list"),
        ("topic", "create", "orders"),
        ("topic", "describe", "orders"),
        ("topic", "alter", "orders", "-p", "3"),
        ("topic", "delete", "orders"),
        ("produce", "orders"),
        ("consume", "orders"),
    ],
    ids=" ".join,
)
def test_nobody_there(penstock: Penstock, nobody: str, command: tuple[str, ...]) -> None:
    result = penstock(*command, "-b", nobody)
    assert (result.code, result.out) == (1, "")
    assert result.err.count("\n") == 1
    assert f"no connection to {nobody}: nothing listens there" in result.err
    assert "Start one with `penstock dev`" in result.err


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (("topic", "alter", "orders"), "nothing to change"),
        (("topic", "create", "orders", "-c", "retention.ms"), "is not name=value"),
        (("consume", "orders", "--from", "whenever"), "no place to start"),
        (("consume", "orders", "-f", "%x"), "%x means nothing"),
        (("produce", "orders", "-k", "a", "-K", ":"), "choose one of them"),
        (("produce", "orders", "-z", "rar"), "'rar' is not one of"),
        (("topic", "create"), "Missing argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_misuse(penstock: Penstock, nobody: str, command: tuple[str, ...], part: str) -> None:
    result = penstock(*command, "-b", nobody)
    assert result.code == 2
    assert part in result.err


def test_an_address_that_is_none(penstock: Penstock) -> None:
    result = penstock("topic", "list", "-b", "http://localhost:9092")
    assert result.code == 1
    assert "without a scheme" in result.err


def test_two_homes_for_data(penstock: Penstock) -> None:
    result = penstock("dev", "--ephemeral", "--data", "x")
    assert result.code == 2
    assert "choose one of them" in result.err
