"""Records through `penstock produce` and `penstock consume` on a real node: copies byte by byte, typed lines."""

import asyncio
import os
import pty
import random
import select
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence

import pytest

from penstock import Client
from penstock.client.metadata import TopicPartition
from tests.fenced import blocks_of
from tests.system.commands import ENVIRONMENT, PENSTOCK, Shell, a_broker
from tests.system.page_reader import PageReader

PATIENCE_S = 120
Headers = tuple[tuple[str, bytes | None], ...]
Copied = tuple[int, bytes | None, bytes | None, Headers]
"""What a copy keeps of a record: timestamp, key, value, headers."""

BINARY = bytes(range(256))
DATA: list[bytes | None] = [
    None,
    b"",
    b"null",
    b"\x00",
    b"two\nlines\r\n\r",
    b'{"value": "\\ud800", "key": null}',
    b"\xed\xa0\x80",  # a surrogate, which UTF-8 does not have
    b"\xff\xfe",
    "\ufeff\u2028\u0085\U0001f600".encode(),
    BINARY,
    b"YQ==",
]
HEADERS: list[Headers] = [
    (),
    (("twice", b"1"), ("twice", None), ("twice", b""), ("twice", b"1")),
    (("", b""), ("\udcff\udcfe", BINARY), ("line\nbreak\x00", b"\n"), ("é", "é".encode())),
]
TIMES_MS = (-1, 0, 1, 1_700_000_000_123, 253_402_300_799_999)
LARGE = (random.Random(1).randbytes(900_000), b"\x00" * 900_000, b"x\n" * 450_000)
PARTITIONS = 3
ANY_TIME = ("-c", "retention.ms=-1", "-c", f"message.timestamp.after.max.ms={2**63 - 1}")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    directory = tmp_path_factory.mktemp("records")
    with a_broker(directory, "dev", "--ephemeral", "--port", "0"):
        yield Shell(directory)


def endpoint(shell: Shell) -> str:
    return (shell.directory / ".penstock" / "endpoint").read_text().split()[0]


def hostile_records(partitions: int = PARTITIONS, times_ms: Sequence[int] = TIMES_MS) -> Iterator[tuple[int, Copied]]:
    """Records by partition: every key with every value, and large ones."""
    number = 0
    for key in DATA:
        for value in DATA:
            timestamp_ms = times_ms[number % len(times_ms)]
            yield number % partitions, (timestamp_ms, key, value, HEADERS[number % len(HEADERS)])
            number += 1
    for each in LARGE:
        yield 1, (0, each[:100_000], each, ())


async def write(bootstrap: str, topic: str, records: Iterable[tuple[int, Copied]]) -> None:
    async with Client(bootstrap) as client:
        producer = client.producer(batch_bytes=16 * 1024)
        for partition, (timestamp_ms, key, value, headers) in records:
            await producer.send(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        await producer.flush()


async def read(bootstrap: str, topic: str) -> dict[int, list[Copied]]:
    found: dict[int, list[Copied]] = {}
    async with Client(bootstrap) as client:
        consumer = client.consumer()
        known = await client.cluster.topic(topic)
        starts = {TopicPartition(topic, each.index): 0 for each in known.partitions}
        await consumer.assign(starts, until_end=True)
        async for each in consumer:
            found.setdefault(each.partition, []).append((each.timestamp_ms, each.key, each.value, each.headers))
    return found


def by_partition(records: Iterator[tuple[int, Copied]]) -> dict[int, list[Copied]]:
    found: dict[int, list[Copied]] = {}
    for partition, record in records:
        found.setdefault(partition, []).append(record)
    return found


def multiset(records: dict[int, list[Copied]]) -> list[str]:
    return sorted(repr(each) for found in records.values() for each in found)


# --- copies -----------------------------------------------------------------------------------------------------------


def test_a_copy_in_json_is_the_same_byte_by_byte(shell: Shell) -> None:
    for topic in ("hostile", "from-file", "from-pipe"):
        shell("topic", "create", topic, "-p", str(PARTITIONS), *ANY_TIME)
    shell("topic", "create", "narrow", "-p", "1", *ANY_TIME)
    asyncio.run(write(endpoint(shell), "hostile", hostile_records()))
    original = asyncio.run(read(endpoint(shell), "hostile"))
    assert original == by_partition(hostile_records()), "the client itself keeps everything"

    lines = shell.run("consume", "hostile", "-e", "-f", "json").stdout
    assert len(lines.split(b"\n")) - 1 == sum(map(len, original.values()))
    (shell.directory / "hostile.jsonl").write_bytes(lines)
    shell("produce", "from-file", "-f", "json", "--file", "hostile.jsonl", "-z", "lz4")
    assert asyncio.run(read(endpoint(shell), "from-file")) == original

    penstock = " ".join(PENSTOCK)
    pipe = f"set -o pipefail; {penstock} consume from-file -e -o json | {penstock} produce from-pipe -f json -q"
    subprocess.run(["bash", "-c", pipe], cwd=shell.directory, env=ENVIRONMENT, check=True, timeout=PATIENCE_S)
    assert asyncio.run(read(endpoint(shell), "from-pipe")) == original

    done = shell.run("produce", "narrow", "-f", "json", "-q", given=b'{"value": "fits"}\n' + lines)
    assert done.returncode == 1
    assert b"the topic has 1 partitions, counted from 0: create it with more partitions" in done.stderr
    shell("topic", "delete", "narrow")
    shell("topic", "create", "narrow", "-p", "1", *ANY_TIME)
    shell("produce", "narrow", "-f", "json", "--choose-partitions", "-q", given=lines)
    copied = asyncio.run(read(endpoint(shell), "narrow"))
    assert list(copied) == [0]
    assert multiset(copied) == multiset(original)


def test_the_recipe_of_the_backup_page_restores_byte_by_byte(shell: Shell) -> None:
    """The first block of docs/operating/backup.md, as they stand there, but for replicas on one node."""
    partitions, times_ms = 6, (-1, 1, int(time.time() * 1000))
    shell("topic", "create", "orders", "-p", str(partitions), "-c", "retention.ms=-1")
    records = list(hostile_records(partitions, times_ms))
    asyncio.run(write(endpoint(shell), "orders", records))
    reader = PageReader(shell.directory)
    reader.replaced[" -r 3"] = ""
    copy, *_ = blocks_of("docs/operating/backup.md")
    assert "topic create orders-restored -p 6" in copy.text
    reader.run(copy)
    assert asyncio.run(read(endpoint(shell), "orders-restored")) == by_partition(iter(records))


def test_a_bad_line_stops_after_what_came_before_it(shell: Shell) -> None:
    shell("topic", "create", "bad", "-p", "1")
    done = shell.run("produce", "bad", "-f", "json", given=b'{"value": "a"}\n{"value": "b"}\nnone\n{"value": "c"}\n')
    assert (done.returncode, done.stdout) == (1, b"bad[0]@0-1  2 records\n")
    assert b"2 records were delivered before this went wrong: line 3 is not JSON" in done.stderr
    assert shell("consume", "bad", "-e") == "a\nb\n"
    done = shell.run("produce", "bad", "-K:", given=b"k:v\nnone\n")
    assert (done.returncode, done.stdout) == (1, b"bad[0]@2\n")


# --- a terminal -------------------------------------------------------------------------------------------------------


class Terminal:
    """A command whose input, output and errors are a terminal."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*PENSTOCK, *arguments], cwd=shell.directory, env=ENVIRONMENT, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self.shown = ""

    def until(self, text: str) -> None:
        """Reads until the text is shown."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < deadline_s, self.shown
            if select.select([self._ours], [], [], 1)[0]:
                self.shown += os.read(self._ours, 65536).decode()

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def test_typed_lines_are_acknowledged_one_by_one(shell: Shell) -> None:
    shell("topic", "create", "typed", "-p", "1")
    terminal = Terminal(shell, "produce", "typed", "-K:")
    try:
        terminal.until("Every line becomes a record; Ctrl-D ends.")
        terminal.type("a:one\n")
        terminal.until("typed[0]@0")
        terminal.type("no delimiter\nb:two\nc:three\n")
        terminal.until("typed[0]@2")
        assert "typed[0]@1" in terminal.shown
        assert "Not sent: line 2 has no ':' between key and value." in terminal.shown
        terminal.type("\x04")
        assert terminal.process.wait(PATIENCE_S) == 0
    finally:
        terminal.close()
    assert "records" not in terminal.shown, "every line was reported by itself"
    assert shell("consume", "typed", "-e", "-k") == "a\tone\nb\ttwo\nc\tthree\n"
