"""FastStream and Quix Streams run the example of their own description on a node: only the address is changed."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.penstock_node import PenstockNode
from harness.raw_client import RawClient
from penstock.client.blocking import SyncClient
from tests.compatibility import frameworks
from tests.compatibility.raw_groups import RawGroups

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("frameworks")]

WRITTEN_ADDRESS = "localhost:9092"
WAIT_S = 60.0
STOP_S = 30.0


@contextmanager
def running(command: Sequence[str], directory: Path) -> Iterator[Callable[[], str]]:
    """Runs an example, which must exit with 0 when it is interrupted. Yields a function that returns its output."""
    log = directory / "said.txt"
    with log.open("w") as said:
        process = subprocess.Popen(
            command, cwd=directory, stdout=said, stderr=subprocess.STDOUT, env=frameworks.environment()
        )
    try:

        def words() -> str:
            assert process.poll() is None, f"it has ended: {log.read_text()}"
            return log.read_text()

        yield words
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def written(package: str, bootstrap: str, directory: Path) -> Path:
    """The example as a file."""
    text = frameworks.example(package)
    assert WRITTEN_ADDRESS in text
    path = directory / "example.py"
    path.write_text(text.replace(WRITTEN_ADDRESS, bootstrap))
    return path


def answer_of(client: SyncClient, topic: str, question: object, answers: str, say: Callable[[], str]) -> bytes:
    """Sends a question until it is answered: a consumer that starts at the end has to be there first."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        client.publish(topic, json.dumps(question).encode())
        for record in client.consume(answers, until_end=True):
            return record.value or b""
        time.sleep(0.2)
    raise AssertionError(f"no answer: {say()}")


def test_faststream(penstock: PenstockNode, tmp_path: Path) -> None:
    written("faststream", penstock.bootstrap, tmp_path)
    with SyncClient(penstock.bootstrap) as client:
        for topic in ("in", "out"):
            client.create_topic(topic, 2)
        with running([frameworks.command("faststream"), "run", "example:app"], tmp_path) as words:
            said = answer_of(client, "in", {"user": "John", "user_id": 7}, "out", words)
    assert said == b"User: 7 - John registered"


def test_quix_streams(penstock: PenstockNode, penstock_client: RawClient, tmp_path: Path) -> None:
    """It creates its own topics, and commits as a member of a group."""
    path = written("quixstreams", penstock.bootstrap, tmp_path)
    with (
        SyncClient(penstock.bootstrap) as client,
        running([frameworks.command("python"), str(path)], tmp_path) as words,
    ):
        end_s = time.monotonic() + WAIT_S
        while not penstock_client.metadata("temperature-alerts").topics[0].partitions:
            assert time.monotonic() < end_s, words()
            time.sleep(0.1)
        said = answer_of(client, "temperature-celsius", {"temperature": 100}, "temperature-alerts", words)
        assert json.loads(said) == {"temperature_F": 212}
        client.publish("temperature-celsius", b'{"temperature": 1}')
    raw = RawGroups(penstock_client)
    (group,) = raw.names()
    end = sum(raw.committed(group).values())
    assert raw.look(group, "classic").state in {"Empty", "Dead"}
    assert end > 0
