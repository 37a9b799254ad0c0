"""Brokers that are down, stale metadata, and calls that end by their deadline."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from penstock.client.admin.admin import Admin
from penstock.client.cluster import METADATA_AGE_MS_MAX, Cluster
from penstock.client.connection.connection import BrokerConnection
from penstock.client.errors import Closed, Refused, Unreachable, Unsupported
from penstock.client.metadata import Broker, ClusterView, TopicPartition
from penstock.client.offsets import Moment, list_offsets
from penstock.client.ports import ClientPorts
from penstock.client.retry import pause_ms
from penstock.host.entropy import HostEntropy
from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.fetch import FetchRequest, FetchResponse
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.client.brokers import Brokers, Fault, play

T = TypeVar("T")


def ask(
    brokers: Brokers,
    story: Callable[[Cluster], Awaitable[T]],
    bootstrap: list[str] | None = None,
    timeout_ms: int = 10_000,
) -> T:
    async def main(ports: ClientPorts) -> T:
        names = brokers.names if bootstrap is None else bootstrap
        cluster = Cluster(names, ports=ports, timeout_ms=timeout_ms, request_timeout_ms=2000)
        try:
            return await story(cluster)
        finally:
            await cluster.close()

    return play(brokers, main)


def metadata_requests(brokers: Brokers) -> int:
    return sum(api is Api.METADATA for _, api, _ in brokers.seen)


# --- closing


def test_what_fails_inside_leaves_no_connection_open() -> None:
    brokers = Brokers(1)
    opened: list[BrokerConnection] = []

    async def fail(ports: ClientPorts) -> None:
        async with Cluster(brokers.names, ports=ports) as cluster:
            opened.append(await cluster.any_connection())
            raise ZeroDivisionError

    async def main(ports: ClientPorts) -> None:
        with pytest.raises(ZeroDivisionError):
            await fail(ports)
        assert [each.is_closed for each in opened] == [True]

    play(brokers, main)


def test_whoever_is_cancelled_while_closing_leaves_no_connection_open() -> None:
    brokers = Brokers(1)

    async def story(cluster: Cluster) -> None:
        connection = await cluster.any_connection()
        closing = asyncio.create_task(cluster.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert connection.is_closed

    ask(brokers, story)


# --- brokers


def test_any_of_the_bootstrap_list_will_do() -> None:
    brokers = Brokers(3)

    async def story(cluster: Cluster) -> None:
        brokers.world.kill("broker-0")
        brokers.world.kill("broker-1")
        await cluster.refresh()
        assert sorted(cluster.view.brokers) == [0, 1, 2]

    ask(brokers, story)


def test_if_none_answers_all_are_named() -> None:
    brokers = Brokers(2)

    async def story(cluster: Cluster) -> float:
        brokers.world.kill("broker-0")
        brokers.world.kill("broker-1")
        before = asyncio.get_running_loop().time()
        with pytest.raises(Unreachable) as error:
            await cluster.refresh()
        for name in brokers.names:
            assert f"no connection to {name}:9092: nothing listens there" in str(error.value)
        assert "gave up after" in error.value.__notes__[0]
        return asyncio.get_running_loop().time() - before

    assert ask(brokers, story, timeout_ms=5000) == pytest.approx(4.5, abs=0.6)


def test_a_name_that_only_the_broker_knows_is_explained() -> None:
    brokers = Brokers(2)
    brokers.add_topic("t", 2)

    async def story(cluster: Cluster) -> None:
        await cluster.refresh(["t"])
        cluster.view.brokers[1] = Broker(1, "elsewhere", 9092)
        with pytest.raises(Unreachable, match=r"names elsewhere:9092 as its address: see its advertised\.listeners"):
            await cluster.connection(1)

    ask(brokers, story, ["broker-0"])


def test_a_broker_that_went_is_replaced_by_another() -> None:
    brokers = Brokers(3)

    async def story(cluster: Cluster) -> None:
        await cluster.refresh()
        for name in ("broker-0", "broker-1"):
            brokers.world.kill(name)
            await cluster.refresh()

    ask(brokers, story, ["broker-0"])


def test_two_who_need_a_connection_open_it_once() -> None:
    brokers = Brokers()

    async def story(cluster: Cluster) -> None:
        await cluster.refresh()
        first, second, other = await asyncio.gather(
            cluster.connection(0), cluster.connection(0), cluster.connection(0, "lane")
        )
        assert first is second
        assert other is not first
        await cluster.close_lane("lane")
        assert other.is_closed
        assert not first.is_closed

    ask(brokers, story)
    assert sum(api is Api.API_VERSIONS for _, api, _ in brokers.seen) == 2


def test_who_goes_away_while_it_opens_does_not_stop_the_others() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.refresh()
        first = asyncio.ensure_future(cluster.connection(0, "lane"))
        second = asyncio.ensure_future(cluster.connection(0, "lane"))
        await asyncio.sleep(0)
        first.cancel()
        assert not (await second).is_closed

    ask(Brokers(), story)


def test_what_is_closed_says_so() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.close()
        with pytest.raises(Closed):
            await cluster.refresh()

    ask(Brokers(), story)


class ShortLogin:
    """A login that is valid for ten seconds."""

    def __init__(self) -> None:
        self.count = 0

    async def log_in(self, connection: BrokerConnection) -> int:
        assert connection.served
        self.count += 1
        return 10_000


def test_a_login_that_runs_out_is_renewed_in_time_and_without_haste() -> None:
    brokers = Brokers()

    async def story(ports: ClientPorts) -> None:
        login = ShortLogin()
        cluster = Cluster("broker-0", ports=ports, login=login)
        first = await cluster.any_connection()
        await asyncio.sleep(8)
        assert await cluster.any_connection() is first
        slow = first.begin(FetchRequest(max_wait_ms=3000, min_bytes=1, topics=()), FetchResponse)
        await asyncio.sleep(1)
        second = await cluster.any_connection()
        assert second is not first
        assert login.count == 2
        assert not first.is_closed, "an answer is still under way"
        await slow
        assert first.is_closed
        assert not second.is_closed
        await cluster.close()

    play(brokers, story)


# --- metadata


def test_a_topic_is_asked_for_once_and_again_when_it_is_old() -> None:
    brokers = Brokers()
    brokers.add_topic("t", 2)

    async def story(cluster: Cluster) -> None:
        for _ in range(3):
            assert len((await cluster.topic("t")).partitions) == 2
        assert metadata_requests(brokers) == 1
        brokers.add_topic("t", 5)
        await asyncio.sleep(METADATA_AGE_MS_MAX / 1000 + 1)
        assert cluster.leader(TopicPartition("t", 0)) is None
        assert len((await cluster.topic("t")).partitions) == 5
        cluster.distrust("t")
        await cluster.topic("t")
        assert metadata_requests(brokers) == 3

    ask(brokers, story)


def test_a_topic_that_is_not_there_is_told_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        with pytest.raises(Refused, match="topic t: UNKNOWN_TOPIC_OR_PARTITION: the broker knows no such topic"):
            await cluster.topic("t")

    ask(Brokers(), story)


def test_all_topics_forget_those_that_went() -> None:
    brokers = Brokers()
    brokers.add_topic("a")
    brokers.add_topic("b")

    async def story(cluster: Cluster) -> list[list[str]]:
        admin = Admin(cluster)
        before = [topic.name for topic in await admin.list_topics()]
        del brokers.topics["a"]
        return [before, [topic.name for topic in await admin.list_topics()]]

    assert ask(brokers, story) == [["a", "b"], ["b"]]


def answer(leader: int, epoch: int, topic_id: bytes = b"a" * 16) -> MetadataResponse:
    partition = MetadataResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=0,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[],
        isr_nodes=[],
    )
    topic = MetadataResponseTopic(error_code=ErrorCode.NONE, name="t", topic_id=topic_id, partitions=[partition])
    brokers = [MetadataResponseBroker(node_id=number, host="h", port=1) for number in range(3)]
    return MetadataResponse(brokers=brokers, topics=[topic])


def test_an_older_leader_does_not_come_back_unless_the_topic_is_new() -> None:
    view = ClusterView()
    view.update(answer(leader=1, epoch=5))
    view.update(answer(leader=0, epoch=4))
    assert view.leader("t", 0) == 1
    view.update(answer(leader=2, epoch=5))
    assert view.leader("t", 0) == 2
    view.update(answer(leader=0, epoch=0, topic_id=b"b" * 16))
    assert view.leader("t", 0) == 0


def test_a_leader_told_in_passing_counts_if_it_is_news() -> None:
    view = ClusterView()
    view.update(answer(leader=1, epoch=5))
    assert not view.note_leader("t", 0, 2, 5)
    assert not view.note_leader("t", 0, -1, 9)
    assert not view.note_leader("u", 0, 2, 9)
    assert view.note_leader("t", 0, 7, 6, [Broker(7, "new", 1)])
    assert view.leader("t", 0) == 7


# --- requests


def test_questions_to_leaders_follow_them() -> None:
    brokers = Brokers(3)
    for log in brokers.add_topic("t", 6):
        log.end = log.leader + 10
    brokers.fail(Api.LIST_OFFSETS, ErrorCode.NOT_LEADER_OR_FOLLOWER, Fault.CLOSE, ErrorCode.LEADER_NOT_AVAILABLE)

    async def story(cluster: Cluster) -> list[int]:
        await cluster.topic("t")
        brokers.move("t", 3, 2)
        wanted = {TopicPartition("t", number): int(Moment.LATEST) for number in range(6)}
        return [at.offset for at in (await list_offsets(cluster, wanted)).values()]

    assert ask(brokers, story) == [10, 11, 12, 10, 11, 12]


def test_a_real_refusal_is_not_repeated() -> None:
    brokers = Brokers()
    brokers.add_topic("t")
    brokers.fail(Api.LIST_OFFSETS, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    async def story(cluster: Cluster) -> None:
        with pytest.raises(Refused, match=r"t\[0\]: TOPIC_AUTHORIZATION_FAILED: this login may not use the topic"):
            await list_offsets(cluster, {TopicPartition("t", 0): Moment.LATEST})

    ask(brokers, story)
    assert sum(api is Api.LIST_OFFSETS for _, api, _ in brokers.seen) == 1


def test_the_controller_is_asked_again_when_it_has_moved() -> None:
    brokers = Brokers()
    brokers.fail(Api.CREATE_TOPICS, ErrorCode.NOT_CONTROLLER, Fault.CLOSE)

    async def story(cluster: Cluster) -> int:
        await Admin(cluster).create_topic("t", 4)
        return len((await cluster.topic("t")).partitions)

    assert ask(brokers, story) == 4


def test_waiting_for_a_new_topic_does_not_make_one() -> None:
    """A late Metadata request may arrive after the topic was deleted again: it must not recreate the topic."""
    brokers = Brokers()
    brokers.fail(Api.METADATA, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def story(cluster: Cluster) -> None:
        await Admin(cluster).create_topic("t")

    ask(brokers, story)
    asked = [request for _, request in brokers.requests if isinstance(request, MetadataRequest)]
    assert len(asked) > 1
    assert not any(request.allow_auto_topic_creation for request in asked)


def test_a_refusal_that_lasts_is_told_with_its_code() -> None:
    brokers = Brokers()
    brokers.fail(Api.CREATE_TOPICS, *[ErrorCode.NOT_CONTROLLER] * 1000)

    async def story(cluster: Cluster) -> None:
        with pytest.raises(Refused, match="topic t: NOT_CONTROLLER"):
            await Admin(cluster).create_topic("t")

    ask(brokers, story, timeout_ms=3000)


def test_what_no_broker_serves_is_told_at_once() -> None:
    async def story(cluster: Cluster) -> float:
        before = asyncio.get_running_loop().time()
        with pytest.raises(Unsupported, match="no version at all of DescribeGroups"):
            await cluster.ask_any(DescribeGroupsRequest(groups=()), DescribeGroupsResponse)
        return asyncio.get_running_loop().time() - before

    assert ask(Brokers(), story) < 0.1


def test_pauses_grow_to_a_bound_and_differ() -> None:
    entropy = HostEntropy()
    assert all(40 <= pause_ms(1, entropy) <= 60 for _ in range(100))
    assert all(800 <= pause_ms(50, entropy) <= 1200 for _ in range(100))
    assert len({pause_ms(5, entropy) for _ in range(100)}) > 10
