"""Reading in a group: wrong arguments are refused at once, and every reason for an empty read is reported."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.client.blocking import SyncClient
from penstock.client.client import Client
from penstock.client.consumer.consumer import At
from penstock.client.errors import ClientError, Closed, OutOfRange, Refused, TimedOut, Unreachable
from penstock.client.groups.group_consumer import GroupConsumer
from penstock.client.groups.membership import GroupSettings
from penstock.client.ports import ClientPorts
from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from tests.unit.client.brokers import Brokers, Fault, play
from tests.unit.client.group_brokers import GroupBrokers
from tests.unit.client.group_topic import BOTH, append, everything, filled

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a start": ({"start": "bogus"}, "a start is an offset"),
    "a negative start": ({"start": -1, "group": None}, "offsets count from 0"),
    "an offset for all": ({"start": 3}, "a group starts at"),
    "an empty batch": ({"max_batch": 0}, "at least one record"),
    "no group": ({"group": None, "instance_id": "q"}, "instance_id names a member"),
    "a group without a name": ({"group": ""}, "a group needs a name"),
    "an instance without a name": ({"instance_id": ""}, "an instance_id needs a name"),
    "no topics": ({"topic": []}, "name a topic"),
    "a topic without a name": ({"topic": ["t", ""]}, "name a topic"),
    "partitions": ({"partitions": [0]}, "leave out either group or partitions"),
    "an end": ({"until_end": True}, "no end of its own"),
    "a negative time": ({"idle_ms_max": -1}, "a time in milliseconds"),
    "an isolation": ({"isolation": "serializable"}, "isolation is"),
    "what to do out of range": ({"out_of_range": "middle"}, "out_of_range is one of error, earliest, latest"),
}


def tell(brokers: Brokers, story: Callable[[Client], Awaitable[Any]], **options: Any) -> Any:
    async def main(ports: ClientPorts) -> Any:
        async with Client(brokers.names, ports=ports, request_timeout_ms=2_000, **options) as client:
            return await story(client)

    return play(brokers, main)


async def read(client: Client, topic: Any = "t", **options: Any) -> list[str]:
    return [(each.value or b"").decode() async for each in client.consume(topic, group="g", **options)]


async def read_batches(client: Client, topic: Any = "t", **options: Any) -> list[str]:
    pieces = client.consume_batches(topic, group="g", **options)
    return [(each.value or b"").decode() async for piece in pieces for each in piece.records]


async def read_on(member: GroupConsumer) -> None:
    while True:
        await member.fetch_records(1, 20_000)
        await asyncio.sleep(0.1)


HOW = pytest.mark.parametrize("reads", [read, read_batches])


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_refused_at_once(case: str) -> None:
    given, match = WRONG[case]
    options: dict[str, Any] = {"topic": "t", "group": "g", **given}

    async def story(client: Client) -> None:
        with pytest.raises(ValueError, match=match):
            client.consume(**options)
        with pytest.raises(ValueError, match=match):
            client.consume_batches(**options)

    tell(filled(1), story)
    with SyncClient("127.0.0.1:1") as client:
        with pytest.raises(ValueError, match=match):
            client.consume(**options)
        with pytest.raises(ValueError, match=match):
            client.consume_batches(**options)


def test_a_cluster_that_is_not_there_is_told() -> None:
    with SyncClient("127.0.0.1:1", timeout_ms=200) as client:
        with pytest.raises(Unreachable, match="nothing listens there"):
            list(client.consume("t", group="g", idle_ms_max=10))
        with pytest.raises(Unreachable, match="nothing listens there"):
            next(client.consume_batches("t", group="g"))


@BOTH
@HOW
@pytest.mark.parametrize("topic", ["missing", ["t", "missing"]], ids=["one", "one of two"])
def test_a_topic_that_is_not_there_is_told_as_without_a_group(is_new: bool, reads: Any, topic: Any) -> None:
    async def story(client: Client) -> str:
        with pytest.raises(Refused, match="topic missing: UNKNOWN_TOPIC_OR_PARTITION") as told:
            await reads(client, topic, idle_ms_max=500)
        with pytest.raises(Refused) as without:
            await anext(aiter(client.consume("missing", idle_ms_max=500)))
        assert str(told.value) == str(without.value)
        assert not client._opened
        return str(told.value)

    tell(filled(1, is_new=is_new), story)


def test_a_coordinator_that_is_not_to_be_found_is_told() -> None:
    class Leaderless(GroupBrokers):
        async def handle(self, node_id: int, version: int, request: Any, code: ErrorCode | None) -> Any:
            response = await super().handle(node_id, version, request, code)
            for each in getattr(response, "coordinators", ()):
                object.__setattr__(each, "error_code", ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return response

    brokers = Leaderless()
    brokers.add_topic("t")

    async def story(client: Client) -> None:
        with pytest.raises(Refused, match="COORDINATOR_NOT_AVAILABLE"):
            await read(client, idle_ms_max=200)

    tell(brokers, story, timeout_ms=5_000)


@BOTH
@HOW
def test_topics_are_read_together(is_new: bool, reads: Any) -> None:
    brokers = filled(2, 3, is_new=is_new)
    append(brokers.add_topic("u")[0], "other")

    async def story(client: Client) -> tuple[list[str], list[str]]:
        alone = [(each.value or b"").decode() async for each in client.consume(["t", "u", "t"], until_end=True)]
        return alone, await reads(client, ["t", "u"], idle_ms_max=500)

    alone, shared = tell(brokers, story)
    assert sorted(alone) == sorted(shared) == [*everything(2, 3), "other"]


@BOTH
@HOW
def test_waiting_for_others_is_not_idle(is_new: bool, reads: Any) -> None:
    """The other member owns all partitions, and learns only with its next heartbeat that it must revoke some."""
    brokers = filled(2, 5, is_new=is_new)

    async def story(client: Client) -> list[str]:
        first = client.group_consumer("g", "t")
        await first.join()
        found: list[str] = await reads(client, idle_ms_max=50)
        await first.close()
        return found

    assert len(tell(brokers, story)) == 5


@BOTH
def test_a_member_too_many_is_idle_in_the_end(is_new: bool) -> None:
    async def story(client: Client) -> list[str]:
        first = client.group_consumer("g", "t")
        await first.join()
        found = await read(client, idle_ms_max=50)
        await first.close()
        return found

    assert tell(filled(1, is_new=is_new), story, timeout_ms=8_000) == []


def test_a_group_that_does_not_come_together_is_told() -> None:
    """A rebalance takes longer than a call may, because another client's member holds it up."""
    brokers = filled(1, is_new=False)
    brokers.fail(Api.JOIN_GROUP, None, Fault.SILENCE)

    async def story(client: Client) -> None:
        with pytest.raises(TimedOut, match="group g did not come together in 4000 ms"):
            await read(client, idle_ms_max=50)

    tell(brokers, story, timeout_ms=4_000)


@BOTH
def test_why_nobody_answers_is_told(is_new: bool) -> None:
    brokers = filled(1, is_new=is_new)
    api = Api.CONSUMER_GROUP_HEARTBEAT if is_new else Api.JOIN_GROUP
    brokers.fail(api, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 100)

    async def story(client: Client) -> None:
        with pytest.raises(Refused, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await read(client, idle_ms_max=50)

    tell(brokers, story, timeout_ms=4_000)


@BOTH
@pytest.mark.parametrize("place", ["give", "take_back", "_commit", "_member_of"])
def test_what_nobody_foresaw_reaches_the_reader_and_is_not_tried_again(
    is_new: bool, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = filled(2, is_new=is_new)
    calls: list[str] = []

    async def story(client: Client) -> None:
        member = client.group_consumer("g", "t", settings=GroupSettings(heartbeat_ms=500))
        others = []
        if place == "take_back":
            await member.join()

        def broken(*_: Any) -> Any:
            calls.append(place)
            raise RuntimeError("a defect")

        monkeypatch.setattr(member, place, broken)
        if place == "take_back":
            others.append(client.group_consumer("g", "t"))
            waiting = asyncio.get_running_loop().create_task(others[0].fetch_records(1, 30_000))
        with pytest.raises(RuntimeError, match="a defect"):
            await asyncio.wait_for(read_on(member), 60)
        monkeypatch.undo()
        if others:
            await waiting

    tell(brokers, story)
    assert calls == [place]


def test_what_nobody_foresaw_in_a_fetch_reaches_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    async def story(client: Client) -> None:
        consumer = client.consumer()

        def broken(*_: Any) -> Any:
            calls.append(1)
            raise RuntimeError("a defect")

        monkeypatch.setattr(consumer._fetcher, "_request", broken)
        await consumer.assign_topic("t", "earliest")
        with pytest.raises(RuntimeError, match="a defect"):
            await consumer.fetch_records(1, 5_000)
        await asyncio.sleep(5)

    tell(filled(1), story)
    assert len(calls) <= 2


@BOTH
def test_once_joined_a_reader_bears_a_coordinator_that_is_away(is_new: bool) -> None:
    brokers = filled(1, 4, is_new=is_new)

    async def story(client: Client) -> list[str]:
        found = []
        async for each in client.consume("t", group="g", max_batch=1):
            found.append((each.value or b"").decode())
            if len(found) == 2:
                api = Api.CONSUMER_GROUP_HEARTBEAT if is_new else Api.HEARTBEAT
                brokers.fail(api, *[Fault.CLOSE] * 8)
                await asyncio.sleep(10)
            if len(found) == 4:
                break
        return found

    assert tell(brokers, story) == everything(1, 4)


def test_a_reader_that_was_refused_may_ask_again() -> None:
    brokers = GroupBrokers()

    async def story(client: Client) -> bool:
        member: GroupConsumer = client.group_consumer("g", "t")
        with pytest.raises(ClientError):
            await member.fetch_records(1)
        append(brokers.add_topic("t")[0], "later")
        return await member.fetch_records(1, 20_000) is not None

    assert tell(brokers, story)


def test_a_member_that_is_closed_while_it_begins_begins_nothing() -> None:
    brokers = filled(1)
    brokers.fail(Api.METADATA, Fault.SILENCE)

    async def story(client: Client) -> None:
        member = client.group_consumer("g", "t")
        waiting = asyncio.get_running_loop().create_task(member.fetch_records(1))
        await asyncio.sleep(1)
        await member.close()
        with pytest.raises(Closed):
            await waiting
        assert not member._tasks

    tell(brokers, story)


def test_a_batch_of_nothing_is_no_batch() -> None:
    async def story(client: Client) -> None:
        for reader in (client.consumer(), client.group_consumer("g", "t")):
            with pytest.raises(ValueError, match="at least one record"):
                await reader.fetch_records(0)

    tell(GroupBrokers(), story)


# --- offsets out of range


@HOW
def test_a_gap_is_told_with_what_to_do_about_it(reads: Any) -> None:
    brokers = filled(1, 10)
    brokers.topics["t"][1][0].start = 5

    async def story(client: Client) -> list[str]:
        await client.commit_offset("t", "g", 0, 2)
        with pytest.raises(OutOfRange, match='out_of_range="earliest"'):
            await reads(client, idle_ms_max=500)
        alone = [each.offset async for each in client.consume("t", 2, until_end=True, out_of_range="earliest")]
        assert alone == [5, 6, 7, 8, 9]
        found: list[str] = await reads(client, idle_ms_max=500, out_of_range="earliest")
        return found

    assert tell(brokers, story) == [f"0/{offset}" for offset in range(5, 10)]


def test_a_broker_waits_no_longer_for_one_partition_than_a_reader_may_be_idle() -> None:
    """The fetch after the offset reset waits for a fetch in flight on an empty partition."""
    brokers = filled(1, 3)
    brokers.topics["t"][1].append(type(brokers.topics["t"][1][0])(0))

    async def story(client: Client) -> list[str]:
        await client.commit_offset("t", "g", 0, 300)
        return await read(client, idle_ms_max=300, out_of_range="earliest")

    assert tell(brokers, story) == everything(1, 3)


@pytest.mark.parametrize(
    ("topic", "group", "partition", "offset", "match"),
    [
        ("t", "g", 0, -1, "offsets count from 0: a group cannot go on at -1"),
        ("t", "g", 2, 0, "t has partitions 0 to 1: there is no 2"),
        ("t", "g", -1, 0, "t has partitions 0 to 1: there is no -1"),
        ("t", "", 0, 0, "a group needs a name"),
    ],
)
def test_nothing_is_committed_that_makes_no_sense(
    topic: str, group: str, partition: int, offset: int, match: str
) -> None:
    brokers = filled(2)

    async def story(client: Client) -> None:
        with pytest.raises(ValueError, match=match):
            await client.commit_offset(topic, group, partition, offset)
        with pytest.raises(ValueError, match="a group needs a name"):
            await client.committed(topic, "")
        with pytest.raises(Refused, match="topic missing: UNKNOWN_TOPIC_OR_PARTITION"):
            await client.commit_offset("missing", "g", 0, 0)

    tell(brokers, story)
    assert Api.OFFSET_COMMIT not in {api for _, api, _ in brokers.seen}


def test_a_commit_may_be_for_a_partition_that_is_new() -> None:
    brokers = filled(1)

    async def story(client: Client) -> dict[int, int]:
        await client.commit_offset("t", "g", 0, 1)
        brokers.topics["t"][1].append(type(brokers.topics["t"][1][0])(0))
        await client.commit_offset("t", "g", 1, 0)
        return await client.committed("t", "g")

    assert tell(brokers, story) == {0: 1, 1: 0}


def test_a_start_may_be_a_moment() -> None:
    async def story(client: Client) -> int:
        return len(await read(client, start=At(0), idle_ms_max=500))

    assert tell(filled(1, 10), story) == 10
