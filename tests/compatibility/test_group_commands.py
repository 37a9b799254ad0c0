"""`penstock group` on Penstock and on Apache Kafka: the output equals what was written, to the tenth of a second."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Client
from penstock.client.admin.lag import lag
from penstock.client.groups.membership import GroupProtocol, GroupSettings
from penstock.client.metadata import TopicPartition

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("apache-kafka")]

LIMIT_S = 60
TOPIC = "commanded"
EXACT_S = 0.1
DELAY_MS = 2_500


class Commands:
    """Runs command lines against a broker."""

    def __init__(self, bootstrap: str, directory: Path, *, is_kafka: bool) -> None:
        self.bootstrap = bootstrap
        self.is_kafka = is_kafka
        self._directory = directory

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "penstock", "group", *arguments, "-b", self.bootstrap]
        return subprocess.run(
            command, cwd=self._directory, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    def __call__(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))

    def refused(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 1, done.stdout
        return done.stderr


@pytest.fixture
def group(coordinated: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Commands]:
    commands = Commands(coordinated, tmp_path, is_kafka=request.node.callspec.params["coordinated"] == "kafka")
    with Client.blocking(coordinated) as client:
        client.create_topic(TOPIC, 2)
        yield commands
        client.delete_topic(TOPIC)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_life_of_a_group(group: Commands, protocol: GroupProtocol) -> None:
    name = f"lived-{protocol}"
    asyncio.run(_read_three(group, name, protocol))
    written_ms = _write_late(group)
    (found,) = group.json("lag", name)
    places = {each["partition"]: each for each in found["partitions"]}
    assert (found["state"], found["lag"], places[0]["lag"], places[1]["lag"]) == ("Empty", 5, 2, 3)
    assert places[0]["oldest_ms"] == written_ms
    assert 59.9 <= places[0]["lag_s"] <= 59.9 + LIMIT_S
    assert f"{name}: Empty, 0 members, 5 records" in group("lag", name)
    assert name in group("list")
    assert "Nobody is in it." in group("describe", name)

    shown = group("reset", name, "--to-earliest")
    assert "Nothing was changed" in shown
    assert {each["partition"]: each["committed"] for each in group.json("lag", name)[0]["partitions"]} == {0: 3, 1: 0}
    plan = group.json("reset", name, "-t", f"{TOPIC}:0", "--shift-by", "-100", "--execute")
    assert [(each["now"], each["to"], each["change"]) for each in plan["partitions"]] == [(3, 0, -3)]
    soon = str(f"@{written_ms + 600_000}")
    plan = group.json("reset", name, "-t", f"{TOPIC}:0", "--to-datetime", soon)
    assert [(each["to"], each["note"]) for each in plan["partitions"]] == [(5, "every record is older: the end")]
    group("reset", name, "-t", f"{TOPIC}:0", "--to-offset", "3", "--execute")
    assert {each["partition"]: each["committed"] for each in group.json("lag", name)[0]["partitions"]} == {0: 3, 1: 0}
    group("reset", name, "--to-latest", "--execute")
    assert "at the end" in group("lag", name)

    why = group.json("why", name)
    assert why["is_complete"] is not group.is_kafka
    kinds = [each["kind"] for each in why["events"]]
    assert {"joined", "left"} <= set(kinds)
    text = group("why", name)
    assert ("Reasons and pauses are missing" in text) == group.is_kafka
    if not group.is_kafka:
        begun = next(each for each in why["events"] if each["kind"] == "rebalance-begun")
        assert begun["reason"].endswith(" joined")
        assert f"{name}: 1 rebalance since " in text
    assert group("delete", name) == f"{name} deleted.\n"
    assert "`penstock group list`" in group.refused("delete", name)
    assert "`penstock group list`" in group.refused("describe", name)


async def _read_three(group: Commands, name: str, protocol: GroupProtocol) -> None:
    """A member reads three records of the first partition; commands run while it is a member."""
    async with Client(group.bootstrap) as client:
        for number in range(3):
            await client.publish(TOPIC, f"{number}", partition=0)
        member = client.group_consumer(name, TOPIC, settings=GroupSettings(protocol=protocol))
        seen = 0
        while seen < 3:
            piece = await member.fetch_records(3)
            assert piece is not None
            seen += len(piece.records)
        loop = asyncio.get_running_loop()
        described = await loop.run_in_executor(None, group, "describe", name)
        assert f"{TOPIC}[0,1]" in described
        refused = await loop.run_in_executor(None, group.refused, "reset", name, "--to-earliest", "--execute")
        assert "has 1 member at work (penstock). Its offsets are its members' to commit: stop them" in refused
        refused = await loop.run_in_executor(None, group.refused, "delete", name)
        assert "A group at work is not deleted: stop them" in refused
        assert await member.fetch_records(3, 200) is None
        await member.close()


def _write_late(group: Commands) -> int:
    """Writes records dated a minute ago; returns their timestamp."""
    with Client.blocking(group.bootstrap) as client:
        then_ms = int(time.time() * 1000) - 60_000
        for number in range(2):
            client.publish(TOPIC, "late", partition=0, timestamp_ms=then_ms + number)
        for _ in range(3):
            client.publish(TOPIC, "new", partition=1)
    return then_ms


def test_seconds_are_exact(group: Commands) -> None:
    with Client.blocking(group.bootstrap) as client:
        client.publish(TOPIC, "x", partition=0)
        client.commit_offset(TOPIC, "exact", 0, 0)
        (record,) = client.consume(TOPIC, until_end=True, partitions=[0])
        before_s = time.time()
        (found,) = group.json("lag", "exact")
        after_s = time.time()
    written_s = record.timestamp_ms / 1000
    assert before_s - written_s - EXACT_S <= found["lag_s"] <= after_s - written_s + EXACT_S


def test_seconds_are_exact_against_a_known_delay(group: Commands) -> None:
    """Without the start of a command in between. The best of several tries counts: the machine may pause."""
    with Client.blocking(group.bootstrap) as client:
        written_ms = int(time.time() * 1000) - DELAY_MS
        client.publish(TOPIC, "x", partition=0, timestamp_ms=written_ms)
        off_by_s = []
        for _ in range(5):
            (found,) = client.run(lag(client.admin.cluster, {TopicPartition(TOPIC, 0): 0}))
            truth_s = time.time() - written_ms / 1000
            assert found.seconds is not None
            off_by_s.append(abs(found.seconds - truth_s))
    assert min(off_by_s) <= EXACT_S


def test_watching_ends_with_whoever_watches(group: Commands) -> None:
    with Client.blocking(group.bootstrap) as client:
        client.publish(TOPIC, "x", partition=0)
        client.commit_offset(TOPIC, "watched", 0, 0)
    command = [sys.executable, "-m", "penstock", "group", "lag", "watched", "--watch", "--interval", "0.1"]
    watching = subprocess.Popen(
        [*command, "-o", "json", "-b", group.bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert watching.stdout is not None
        looks = [json.loads(watching.stdout.readline()) for _ in range(3)]
        assert looks[0][0]["lag_s"] < looks[1][0]["lag_s"] < looks[2][0]["lag_s"]
    finally:
        watching.terminate()
        watching.communicate()
