"""Errors are reported in one sentence with the fix."""

import socket

import pytest

from penstock.cli.errors import Failed, sentence
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.errors import Refused, Unreachable
from penstock.model.errors import ErrorCode
from tests.unit.cli.conftest import Penstock


@pytest.fixture
def nobody() -> str:
    """Returns an address on which no process listens."""
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
    assert result.err.count("\n") == 1 + (command[1] == "delete"), "a command that destroys names the cluster first"
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


def test_a_cluster_that_was_reached_need_not_be_started(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refresh(*_: object, **__: object) -> dict[str, ErrorCode]:
        return {}

    async def list_groups(_: object) -> None:
        raise Unreachable("no connection to broker-2:9092: nothing listens there: is the broker running?")

    monkeypatch.setattr(Cluster, "refresh", refresh)
    monkeypatch.setattr(Admin, "list_groups", list_groups)
    result = penstock("group", "list", "-b", "broker-1:9092")
    assert result.code == 1
    assert "is the broker running? The cluster was reached, but a broker of it may be down" in result.err
    assert "penstock dev" not in result.err


def test_what_is_said_is_fit_for_a_terminal() -> None:
    assert sentence(Failed("a\x1b:\n  b\r")) == "a\\x1b:\n  b\\r"


def test_a_group_that_is_not_there() -> None:
    refused = Refused(ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.", "group g")
    assert sentence(refused) == "there is no group g: `penstock group list` shows what there is"
