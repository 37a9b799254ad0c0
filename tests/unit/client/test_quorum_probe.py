"""The probe of the quorum believes a leader only with a majority behind it, and never takes longer than its limit."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.client.admin import quorum_probe
from penstock.client.admin.majority import Majority, QuorumProbe
from penstock.client.admin.quorum import METADATA_TOPIC
from penstock.client.admin.quorum_probe import SERVERS, VOTERS, probe_quorum
from penstock.client.bootstrap import Address
from penstock.client.cluster import Cluster
from penstock.client.errors import TimedOut, Unreachable, Unsupported
from penstock.client.metadata import ClusterView
from penstock.client.ports import host_ports
from penstock.model.errors import ErrorCode
from penstock.wire.messages import describe_quorum as wire
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

NOW_MS = 1_800_000_000_000
BROKER = Address("broker", 9092)
CONTROLLERS = {node_id: Address("controller", 9000 + node_id) for node_id in (1, 2, 3)}
NAMED = ",".join(f"{node_id}@{address}" for node_id, address in CONTROLLERS.items())


def description(
    leader: int = 1, ago_ms: tuple[int, ...] = (0, 200, 300), *, leads: bool = True
) -> wire.DescribeQuorumResponse:
    """A response that names all voters; of the leader, with the time since each was heard, or of another replica."""
    voters = [
        wire.ReplicaState(
            replica_id=node_id, log_end_offset=10, last_fetch_timestamp=NOW_MS - ago, last_caught_up_timestamp=NOW_MS
        )
        for node_id, ago in zip(CONTROLLERS, ago_ms, strict=True)
    ]
    part = wire.DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER,
        leader_id=leader,
        leader_epoch=4,
        high_watermark=10,
        current_voters=voters if leads else (),
        observers=(),
    )
    topic = wire.DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    nodes = [
        wire.Node(node_id=node_id, listeners=[wire.Listener(name="C", host=each.host, port=each.port)])
        for node_id, each in CONTROLLERS.items()
    ]
    return wire.DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=[topic], nodes=nodes)


LEADER, FOLLOWER = description(), description(leads=False)
STALE = description(ago_ms=(0, 2500, 2600))
REFUSED = Unreachable("nothing listens there")
SILENT = None
Quorum = wire.DescribeQuorumResponse | Exception | None


class World:
    """One broker and three controllers: what each answers to DescribeQuorum, and what the broker's settings say."""

    def __init__(self, through_broker: Quorum, controllers: dict[int, Quorum], settings: dict[str, str]) -> None:
        self.bootstrap = (BROKER,)
        self.view = ClusterView()
        self.ports = host_ports()
        self.answers: dict[Address, Quorum] = {CONTROLLERS[each]: said for each, said in controllers.items()}
        self.answers[BROKER] = through_broker
        self.settings = settings
        self.is_up = True

    def new_lane(self, name: str) -> str:
        return name

    async def close_lane(self, _lane: str) -> None:
        pass

    async def connection(self, node_id: int, lane: str = "") -> "Link":
        return await self.connection_to(self.view.brokers[node_id].address, lane)

    async def connection_to(self, address: Address, _lane: str = "") -> "Link":
        if address == BROKER:
            if not self.is_up:
                raise REFUSED
        elif self.answers[address] is SILENT:
            await asyncio.Event().wait()
        return Link(self, address)


class Link:
    def __init__(self, world: World, address: Address) -> None:
        self.world = world
        self.address = address

    async def ask(self, request: object, _answer: object) -> object:
        match request:
            case MetadataRequest():
                broker = MetadataResponseBroker(node_id=7, host=BROKER.host, port=BROKER.port)
                return MetadataResponse(brokers=[broker], topics=())
            case DescribeConfigsRequest():
                configs = [
                    DescribeConfigsResourceResult(
                        name=name, value=value, read_only=True, config_source=4, is_sensitive=False, synonyms=()
                    )
                    for name, value in self.world.settings.items()
                ]
                result = DescribeConfigsResult(
                    error_code=ErrorCode.NONE, error_message="", resource_type=4, resource_name="7", configs=configs
                )
                return DescribeConfigsResponse(throttle_time_ms=0, results=[result])
        answer = self.world.answers[self.address]
        if answer is SILENT:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


def probe(world: World, timeout_ms: int = 60_000) -> QuorumProbe:
    return asyncio.run(probe_quorum(cast("Cluster", world), timeout_ms))


def test_a_leader_with_a_majority_that_answers_is_confirmed_at_once() -> None:
    found = probe(World(LEADER, {1: LEADER, 2: FOLLOWER, 3: SILENT}, {VOTERS: NAMED}))
    assert found.majority is Majority.CONFIRMED
    assert found.quorum is not None
    assert found.quorum.leader_id == 1
    assert found.count_text == "3 of 3 controllers answer", "the leader has just heard the one that is silent here"


@pytest.mark.parametrize("through_broker", [SILENT, REFUSED, FOLLOWER])
def test_refused_connections_are_certain(through_broker: Quorum) -> None:
    began_s = time.monotonic()
    found = probe(World(through_broker, {1: FOLLOWER, 2: REFUSED, 3: REFUSED}, {VOTERS: NAMED}))
    assert time.monotonic() - began_s < 30
    assert (found.majority, found.count_text) == (Majority.LOST, "1 of 3 controllers answers")
    assert [each.failure is None for each in found.controllers] == [True, False, False]


def test_a_leader_that_nobody_follows_any_more_is_not_believed() -> None:
    found = probe(World(STALE, {1: STALE, 2: REFUSED, 3: REFUSED}, {VOTERS: NAMED}))
    assert (found.majority, found.count_text) == (Majority.LOST, "1 of 3 controllers answers")


def test_a_leader_is_believed_at_first_only_if_a_majority_answers_here() -> None:
    """It has just heard two voters, but these do not run any more: its next answers tell."""
    world = World(LEADER, {1: LEADER, 2: REFUSED, 3: REFUSED}, {VOTERS: NAMED})

    async def run() -> QuorumProbe:
        asyncio.get_running_loop().call_later(0.5, lambda: world.answers.update({CONTROLLERS[1]: STALE, BROKER: STALE}))
        return await probe_quorum(cast("Cluster", world), 60_000)

    assert asyncio.run(run()).majority is Majority.LOST


def test_controllers_out_of_reach_do_not_matter_if_their_leader_goes_on_hearing_them() -> None:
    found = probe(World(LEADER, dict.fromkeys(CONTROLLERS, REFUSED), {VOTERS: NAMED}))
    assert (found.majority, found.answering) == (Majority.CONFIRMED, 3)
    assert found.waited_ms >= quorum_probe.GRACE_MS


def test_silence_ends_at_the_limit() -> None:
    found = probe(World(SILENT, {1: FOLLOWER, 2: SILENT, 3: SILENT}, {VOTERS: NAMED}), timeout_ms=400)
    assert (found.majority, found.count_text) == (Majority.LOST, "1 of 3 controllers answers")
    assert "did not answer in time" in str(found.controllers[1].failure)
    assert 400 <= found.waited_ms < 30_000


def test_silence_is_reported_before_a_late_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_probe, "SILENT_MS", 300)
    found = probe(World(SILENT, {1: FOLLOWER, 2: SILENT, 3: SILENT}, {VOTERS: NAMED}))
    assert found.majority is Majority.LOST


def test_a_majority_without_a_leader_is_waited_for_until_the_limit() -> None:
    found = probe(World(FOLLOWER, {1: FOLLOWER, 2: FOLLOWER, 3: REFUSED}, {VOTERS: NAMED}), timeout_ms=500)
    assert (found.majority, found.count_text) == (Majority.LEADERLESS, "2 of 3 controllers answer")


def test_voters_are_learned_from_any_controller_if_the_settings_name_only_some_addresses() -> None:
    found = probe(World(SILENT, {1: FOLLOWER, 2: REFUSED, 3: REFUSED}, {SERVERS: str(CONTROLLERS[1])}))
    assert (found.majority, found.count_text) == (Majority.LOST, "1 of 3 controllers answers")


def test_a_cluster_that_does_not_describe_its_quorum() -> None:
    found = probe(World(Unsupported("too old"), {}, {}))
    assert (found.majority, found.count_text) == (Majority.UNREPORTED, "no controller is known")


def test_nobody_knows_the_controllers_and_nobody_answers() -> None:
    found = probe(World(SILENT, {}, {}), timeout_ms=300)
    assert (found.majority, found.count_text) == (Majority.LOST, "no controller is known")


@pytest.mark.parametrize(("is_silent", "error"), [(False, Unreachable), (True, TimedOut)])
def test_no_broker_answers(is_silent: bool, error: type[Exception]) -> None:
    world = World(SILENT, {}, {})
    world.is_up = False
    if is_silent:
        world.bootstrap = (Address("nowhere", 1),)
        world.answers[Address("nowhere", 1)] = SILENT
    with pytest.raises(error):
        probe(world, timeout_ms=300)


def test_known_controllers_are_asked_even_if_no_broker_answers() -> None:
    world = World(SILENT, {1: LEADER, 2: FOLLOWER, 3: FOLLOWER}, {})
    world.is_up = False
    known = {address: node_id for node_id, address in CONTROLLERS.items()}
    found = asyncio.run(probe_quorum(cast("Cluster", world), 60_000, known))
    assert (found.majority, found.is_reached) == (Majority.CONFIRMED, False)


def test_a_name_server_that_does_not_answer_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lookups cannot be cancelled: closing the client waits for none of them."""
    from penstock.client.client import Client
    from penstock.host import sockets

    never = _Never()
    look_up: Callable[..., Any] = sockets._look_up
    monkeypatch.setattr(
        sockets, "_look_up", lambda host, port, flags: look_up(host, port, flags) if flags else never.wait()
    )

    async def run() -> None:
        async with Client("name.invalid:1") as client:
            await probe_quorum(client.cluster, 300)

    began_s = time.monotonic()
    with pytest.raises(TimedOut):
        asyncio.run(run())
    assert time.monotonic() - began_s < 30
    never.release()


class _Never:
    def __init__(self) -> None:
        import threading

        self._event = threading.Event()

    def wait(self) -> list[Any]:
        self._event.wait(60)
        return []

    def release(self) -> None:
        self._event.set()
