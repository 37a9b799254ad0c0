"""The command line against a real broker, in separate processes: the first five minutes."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from penstock import SyncClient
from tests.system.commands import Shell, a_broker


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    directory = tmp_path_factory.mktemp("dev")
    with a_broker(directory, "dev", "--ephemeral", "--port", "0"):
        yield Shell(directory)


def test_a_topic_from_its_making_to_its_end(shell: Shell) -> None:
    made = shell("topic", "create", "life", "-p", "2", "-c", "retention.ms=60000")
    assert made == "life created: 2 partitions, 1 replica.\n"
    assert "TOPIC_ALREADY_EXISTS" in shell.fails("topic", "create", "life")
    assert shell("topic", "create", "life", "--if-not-exists") == "life is there already.\n"
    rows = json.loads(shell("topic", "list", "-o", "json"))
    assert {"name": "life", "partitions": 2, "replicas": 1} in rows
    shell("topic", "alter", "life", "-p", "3", "-d", "retention.ms", "-c", "segment.ms=70000")
    (found,) = json.loads(shell("topic", "describe", "life", "-o", "json"))
    assert [each["partition"] for each in found["partitions"]] == [0, 1, 2]
    assert {each["setting"]: each["value"] for each in found["settings"]}["segment.ms"] == "70000"
    assert "did you mean retention.ms?" in shell.fails("topic", "alter", "life", "-c", "retension.ms=1")
    assert shell("topic", "delete", "life") == "life deleted.\n"
    assert "`penstock topic list`" in shell.fails("topic", "describe", "life")


def test_a_setting_of_a_topic_without_effect_is_told_and_marked(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    sentence = (
        "cleanup.policy has only a part of its effect in this version: "
        "nothing is compacted yet, and with `compact` alone everything is kept.\n"
    )
    with a_broker(tmp_path, "dev", "--ephemeral", "--port", "0", complains=True) as broker:
        for arguments in (
            ("create", "users", "-c", "cleanup.policy=compact", "--dry-run"),
            ("create", "users", "more", "-c", "cleanup.policy=compact", "-c", "retention.ms=5000"),
            ("alter", "users", "-c", "cleanup.policy=delete,compact"),
        ):
            done = shell.run("topic", *arguments)
            assert (done.returncode, done.stderr.decode().endswith(sentence)) == (0, True)
        assert b"effect" not in shell.run("topic", "alter", "users", "-c", "retention.ms=6000").stderr
        (found,) = json.loads(shell("topic", "describe", "users", "-o", "json"))
        assert {each["setting"]: each["effect"] for each in found["settings"]} == {
            "cleanup.policy": "in part: nothing is compacted yet, and with `compact` alone everything is kept",
            "retention.ms": "yes",
        }
        assert "in part: nothing is compacted yet" in shell("topic", "describe", "users")
        shell("topic", "alter", "users", "-d", "cleanup.policy")
        assert "EFFECT" not in shell("topic", "describe", "users")
        done = shell.run("broker", "config", "-c", "log.cleaner.threads=2")
        assert done.stderr == b"log.cleaner.threads has no effect in this version: nothing is compacted yet.\n"
        assert "no: nothing is compacted yet" in shell("broker", "config")
        deadline_s = time.monotonic() + 60  # reports of several topics are gathered for a moment
        while "Settings of all brokers have no effect" not in broker.log and time.monotonic() < deadline_s:
            time.sleep(0.1)
        told = [line for line in broker.log.splitlines() if line.endswith("[settings-without-effect]")]
    assert 3 <= len(told) <= 4, "once when each topic was created, and when its policy or the brokers' settings changed"
    for each in ("topic users", "topic more", "all brokers"):
        assert any(each in line for line in told)


def test_records_there_and_back(shell: Shell) -> None:
    shell("topic", "create", "round", "-p", "1")
    told = shell("produce", "round", "-K:", "-H", "source=test", given="alice:café\nbob:2\ncarol:\n".encode())
    assert told == "round[0]@0-2  3 records\n"
    assert shell("consume", "round", "-e") == "café\n2\n\n"
    shown = shell("consume", "round", "-e", "-f", r"%t %p@%o %k=%s %h %K %S\n", "-n", "1")
    assert shown == "round 0@0 alice=café source=test 5 5\n"
    assert shell("consume", "round", "-o", "-1", "-e", "-k") == "carol\t\n"
    assert shell("consume", "round", "--from", "1", "-n", "1") == "2\n"
    assert shell("consume", "round", "--from", "1h", "-e", "-p", "0").startswith("café\n")
    assert shell("consume", "round", "--from", "end", "-e") == ""
    rows = [json.loads(line) for line in shell("consume", "round", "-e", "-f", "json").splitlines()]
    assert [row["key"] for row in rows] == ["alice", "bob", "carol"]
    assert rows[0]["headers"] == [{"name": "source", "value": "test"}]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec(shell: Shell, codec: str) -> None:
    lines = "again and again\n" * 100
    assert shell("produce", f"in-{codec}", "-z", codec, given=lines.encode()).endswith("100 records\n")
    assert shell("consume", f"in-{codec}", "-e") == lines


def test_a_topic_is_created_by_its_first_record(shell: Shell) -> None:
    done = shell.run("produce", "first-use", given=b'{"id": 1}\n')
    assert done.stdout == b"first-use[0]@0\n"
    assert b"Topic first-use is new" in done.stderr
    assert shell("consume", "first-use", "-e") == '{"id": 1}\n'


def test_a_file_of_many_lines(shell: Shell) -> None:
    lines = "".join(f"line {number}\n" for number in range(20_000))
    (shell.directory / "many").write_text(lines)
    shell("topic", "create", "many", "-p", "1")
    (row,) = json.loads(shell("produce", "many", "--file", "many", "-z", "lz4", "-o", "json"))
    assert (row["records"], row["last_offset"]) == (20_000, 19_999)
    assert shell("consume", "many", "-e") == lines


def test_what_is_not_there(shell: Shell) -> None:
    assert "UNKNOWN_TOPIC_OR_PARTITION" in shell.fails("consume", "nowhere", "-e")
    shell("topic", "create", "narrow", "-p", "1")
    assert "counted from 0" in shell.fails("consume", "narrow", "-p", "7", "-e")


def test_the_doctor_finds_a_clock_that_is_ahead(shell: Shell) -> None:
    endpoint = (shell.directory / ".penstock" / "endpoint").read_text().strip()
    assert all(each["is_well"] for each in json.loads(shell("doctor", "-o", "json")) if each["check"] != "disk")
    with SyncClient(endpoint) as client:
        client.publish("early", b"x", timestamp_ms=int(time.time() * 1000) + 600_000)
    done = shell.run("doctor")
    assert done.returncode == 1
    assert re.search(r"WRONG  records +early\[0\] has a record from \d+ s in the future", done.stdout.decode())


def test_data_outlives_the_broker_and_belongs_to_one(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with a_broker(tmp_path, "dev", "--port", "0") as broker:
        found = re.search(
            rf"ready in \d+\.\d s  \(pid {broker.process.pid}\)\nKafka    localhost:\d+\nMetrics  (http://localhost:\d+)/m",
            broker.said,
        )
        assert found
        for page, word in (("metrics", b"process_resident_memory_bytes "), ("health", b"serving")):
            with urlopen(f"{found[1]}/{page}", timeout=30) as answer:
                assert word in answer.read()
        assert (tmp_path / ".penstock" / "endpoint").read_text().startswith("127.0.0.1:")
        shell("produce", "kept", given=b"one\n")
        assert "another broker uses .penstock/data" in shell.fails("dev", "--port", "0")
    assert not (tmp_path / ".penstock" / "endpoint").exists()
    with a_broker(tmp_path, "dev", "--port", "0"):
        assert shell("produce", "kept", given=b"two\n") == "kept[0]@1\n"
        assert shell("consume", "kept", "-e") == "one\ntwo\n"
