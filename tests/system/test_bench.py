"""`penstock bench` against a real broker: figures for programs, and a cluster that is left unchanged."""

import json
from collections.abc import Iterator

import pytest

from tests.system.commands import Shell, a_broker


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    directory = tmp_path_factory.mktemp("bench")
    with a_broker(directory, "dev", "--ephemeral", "--port", "0"):
        yield Shell(directory)


def topics(shell: Shell) -> list[str]:
    return [row["name"] for row in json.loads(shell("topic", "list", "-o", "json"))]


def test_writing_so_many_records(shell: Shell) -> None:
    found = json.loads(shell("bench", "produce", "-n", "12345", "-p", "3", "--connections", "2", "-o", "json"))
    assert (found["bench"], found["records"]) == ("produce", 12_345)
    assert found["mb_per_s"] == pytest.approx(found["records_per_s"] * 100 / 1e6, rel=0.01)
    assert 0 < found["ack_p50_ms"] <= found["ack_max_ms"]
    assert topics(shell) == []


def test_writing_for_so_long(shell: Shell) -> None:
    shown = shell(
        "bench", "produce", "-s", "0.5", "--record-bytes", "1000", "-z", "zstd", "-c", "durability=replicated"
    )
    assert shown.startswith("bench ")
    assert "records per s" in shown


def test_reading_a_new_topic_and_one_that_is_there(shell: Shell) -> None:
    found = json.loads(shell("bench", "consume", "-n", "30000", "-p", "2", "-o", "json"))
    assert found["records"] == 30_000
    shell("bench", "produce", "mine", "-n", "500", "--keep")
    assert topics(shell) == ["mine"]
    found = json.loads(shell("bench", "consume", "mine", "-o", "json"))
    assert found["records"] == 500
    shell("topic", "delete", "mine")


def test_a_refusal_is_told_and_the_topic_goes_all_the_same(shell: Shell) -> None:
    assert "MESSAGE_TOO_LARGE" in shell.fails("bench", "produce", "-n", "1000", "-c", "max.message.bytes=1000")
    assert topics(shell) == []


@pytest.mark.parametrize("command", ["latency", "end-to-end"])
def test_keeping_a_pace(shell: Shell, command: str) -> None:
    found = json.loads(shell("bench", command, "-n", "100", "--rate", "200", "-p", "2", "-o", "json"))
    assert found["records"] == 100
    assert found["seconds"] >= 0.49, "the last one is due after half a second"
    assert found["ack_p50_ms"] > 0
    if command == "end-to-end":
        assert found["end_to_end_p99_ms"] >= found["end_to_end_p50_ms"] > 0
    assert topics(shell) == []


def test_a_topic_that_is_there_is_not_filled_without_leave(shell: Shell) -> None:
    shell("topic", "create", "precious", "-p", "1")
    refused = shell.run("bench", "produce", "precious", "-n", "10")
    assert refused.returncode == 2
    assert b"topic precious exists" in refused.stderr
    assert shell("consume", "precious", "-e") == ""
    found = json.loads(shell("bench", "produce", "precious", "-n", "10", "--yes", "-o", "json"))
    assert found["records"] == 10
    assert topics(shell) == ["precious"]
    shell("topic", "delete", "precious")
