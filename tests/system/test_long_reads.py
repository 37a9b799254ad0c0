"""`penstock consume` that runs for long on a real node: members of a group, deleted topics, brokers that fail."""

import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from harness.ports import free_port
from tests.system.commands import ENVIRONMENT, PENSTOCK, READY_LINES, Shell, a_broker

PATIENCE_S = 120


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    directory = tmp_path_factory.mktemp("reading")
    with a_broker(directory, "dev", "--ephemeral", "--port", "0"):
        yield Shell(directory)


class Reading:
    """A running `consume`; its lines are read as they arrive."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*PENSTOCK, "consume", *arguments],
            cwd=shell.directory,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.errors: queue.SimpleQueue[str] = queue.SimpleQueue()
        streams = ((self.process.stdout, self.out), (self.process.stderr, self.errors))
        self._threads = [threading.Thread(target=self._read, args=each, daemon=True) for each in streams]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()

    @staticmethod
    def _read(stream: IO[str], lines: "queue.SimpleQueue[str]") -> None:
        with stream:
            for line in stream:
                lines.put(line)

    def all_errors(self) -> str:
        """What an ended process has written to stderr, except for lines that were taken from `errors` before."""
        for thread in self._threads:
            thread.join()
        return "".join(self.errors.get() for _ in range(self.errors.qsize()))

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def reading() -> Iterator[Callable[..., Reading]]:
    started: list[Reading] = []

    def start(shell: Shell, *arguments: str) -> Reading:
        started.append(Reading(shell, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_member_commits_what_it_prints_and_leaves_at_once(
    shell: Shell, reading: Callable[..., Reading], number: signal.Signals
) -> None:
    topic = group = f"shared-{number.name.lower()}"
    shell("topic", "create", topic, "-p", "1")
    shell("produce", topic, given=b"a\nb\nc\n")
    member = reading(shell, topic, "-g", group)
    assert [member.out.get(timeout=PATIENCE_S) for _ in range(3)] == ["a\n", "b\n", "c\n"]
    assert member.end(number) == 0
    assert "Empty" in shell("group", "describe", group), "it has left, rather than timed out"
    shell("produce", topic, given=b"d\ne\n")
    assert shell("consume", topic, "-g", group, "-n", "1") == "d\n"
    assert shell("consume", topic, "-g", group, "-n", "1") == "e\n"


def test_a_member_whose_reader_leaves_commits_what_it_printed(shell: Shell, reading: Callable[..., Reading]) -> None:
    shell("topic", "create", "headed", "-p", "1")
    shell("produce", "headed", given=b"a\n")
    penstock = " ".join(PENSTOCK)
    pipe = f"{penstock} consume headed -g headed | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", pipe], cwd=shell.directory, env=ENVIRONMENT, capture_output=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout) == (0, b"a\n"), done.stderr
    assert "Empty" in shell("group", "describe", "headed")


def test_what_a_member_cannot_have_is_misuse(shell: Shell) -> None:
    for options, why in ((("-e",), "no end"), (("-p", "0"), "by itself"), (("-o", "5"), "penstock group reset")):
        done = shell.run("consume", "any", "-g", "group", *options)
        assert done.returncode == 2
        assert why in done.stderr.decode()


def test_an_interrupted_read_to_the_end_is_no_success(shell: Shell, reading: Callable[..., Reading]) -> None:
    shell("topic", "create", "few", "-p", "1")
    shell("produce", "few", given=b"a\n")
    few = reading(shell, "few", "-n", "2")
    assert few.out.get(timeout=PATIENCE_S) == "a\n"
    assert few.end(signal.SIGINT) == 130


@pytest.mark.parametrize("options", [(), ("-g", "lost")], ids=["alone", "member"])
def test_a_deleted_topic_ends_reading(shell: Shell, reading: Callable[..., Reading], options: tuple[str, ...]) -> None:
    topic = f"lost-{len(options)}"
    shell("topic", "create", topic, "-p", "1")
    shell("produce", topic, given=b"a\n")
    lost = reading(shell, topic, *options)
    assert lost.out.get(timeout=PATIENCE_S) == "a\n"
    shell("topic", "delete", topic)
    assert lost.process.wait(PATIENCE_S) == 1
    assert "cannot be read any more: the brokers do not know it" in lost.all_errors()


# --- brokers that fail ------------------------------------------------------------------------------------------------


@contextmanager
def a_mortal_broker(directory: Path, port: int) -> "Iterator[subprocess.Popen[str]]":
    with (directory / "mortal.log").open("a") as log:
        process = subprocess.Popen(
            [*PENSTOCK, "dev", "--port", str(port)],
            cwd=directory,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    with process:
        try:
            assert "".join(process.stdout.readline() for _ in range(READY_LINES)).endswith("\n")
            yield process
        finally:
            process.kill()
            process.wait()


def test_a_dead_broker_is_reported_and_reading_goes_on_when_it_is_back(
    tmp_path: Path, reading: Callable[..., Reading]
) -> None:
    shell, port = Shell(tmp_path), free_port(is_kept=False)
    where = ("-b", f"127.0.0.1:{port}")
    with a_mortal_broker(tmp_path, port) as broker:
        shell("topic", "create", "t", "-p", "1", *where)
        shell("produce", "t", *where, given=b"one\n")
        readers = [reading(shell, "t", *where), reading(shell, "t", "-g", "g", *where)]
        for each in readers:
            assert each.out.get(timeout=PATIENCE_S) == "one\n"
        to_the_end = reading(shell, "t", "-e", "--timeout", "5", "-n", "2", "--from", "0", *where)
        assert to_the_end.process.wait(PATIENCE_S) == 0
        broker.send_signal(signal.SIGSTOP)
        for each in readers:
            line = each.errors.get(timeout=PATIENCE_S)
            assert line.startswith("penstock: t[0] cannot be read since "), line
            assert f"broker 1 at 127.0.0.1:{port} does not answer. Trying again until it succeeds" in line
        broker.send_signal(signal.SIGCONT)
        for each in readers:
            assert "can be read again" in each.errors.get(timeout=PATIENCE_S)
        killed_s = time.monotonic()
        broker.kill()
        broker.wait()
        for each in readers:
            line = each.errors.get(timeout=PATIENCE_S)
            assert "cannot be read since" in line, line
        told_s = time.monotonic() - killed_s
    time.sleep(5)
    for each in readers:
        assert each.process.poll() is None, "it goes on trying"
        assert each.errors.empty(), "one sentence, not one for every attempt"
    with a_mortal_broker(tmp_path, port):
        shell("produce", "t", *where, given=b"two\n")
        for each in readers:
            assert each.out.get(timeout=PATIENCE_S) == "two\n"
            assert "t[0] can be read again, after " in each.errors.get(timeout=PATIENCE_S)
            assert each.end(signal.SIGINT) == 0
    assert told_s < PATIENCE_S


def test_a_read_to_the_end_gives_up_after_its_timeout(tmp_path: Path) -> None:
    shell, port = Shell(tmp_path), free_port(is_kept=False)
    where = ("-b", f"127.0.0.1:{port}")
    with a_mortal_broker(tmp_path, port) as broker:
        shell("topic", "create", "t", "-p", "1", *where)
        shell("produce", "t", "-q", *where, given=(b"x" * 900_000 + b"\n") * 50)
        many = subprocess.Popen(
            [*PENSTOCK, "consume", "t", "-e", "--timeout", "5", *where],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert many.stdout is not None
        many.stdout.read(1)
        broker.kill()  # while the pipe is full
        broker.wait()
        try:
            out, errors = many.communicate(timeout=PATIENCE_S)
        finally:
            many.kill()
    assert many.returncode == 1
    assert 0 < len(out) < 40 * 900_000
    told = errors.decode()
    assert "Trying again for 5 s." in told
    assert "t could not be read to its end: t[0] cannot be read since 5 s" in told
