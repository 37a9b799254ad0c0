"""Listing and describing groups while brokers come and go."""

import asyncio
from typing import Any

import pytest

from penstock.client.admin.groups import GroupListing, describe_group, group_offsets, list_groups
from penstock.client.cluster import Cluster
from penstock.client.errors import Refused
from penstock.client.ports import ClientPorts
from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from penstock.wire.declare import Request, Response
from penstock.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.client.brokers import Fault, play
from tests.unit.client.group_brokers import GroupBrokers

LEAVES_S = 9.0


class ListingBrokers(GroupBrokers):
    """Brokers that list groups; a dead broker stays in the metadata for a while, then another takes over its groups."""

    def __init__(self, groups: dict[int, list[str]]) -> None:
        super().__init__(len(groups))
        self.groups = groups
        self.served = (*self.served, Api.LIST_GROUPS, Api.DESCRIBE_GROUPS)
        self.gone: dict[int, float] = {}

    def die(self, node_id: int, heir: int) -> None:
        self.world.kill(self.names[node_id])
        self.gone[node_id] = self.world.loop.time() + LEAVES_S
        self.world.loop.call_later(LEAVES_S, self.groups[heir].extend, self.groups[node_id])

    async def handle(self, node_id: int, version: int, request: Request, code: ErrorCode | None) -> Response | None:
        match request:
            case ListGroupsRequest():
                listed = [ListedGroup(group_id=name, protocol_type="consumer") for name in self.groups[node_id]]
                return ListGroupsResponse(error_code=code or ErrorCode.NONE, groups=listed)
            case DescribeGroupsRequest():
                group = DescribedGroup(
                    error_code=code or ErrorCode.NONE,
                    group_id=request.groups[0],
                    group_state="Empty",
                    protocol_type="consumer",
                    protocol_data="",
                    members=(),
                )
                return DescribeGroupsResponse(groups=[group])
            case MetadataRequest():
                answer = await super().handle(node_id, version, request, code)
                assert isinstance(answer, MetadataResponse)
                now = self.world.loop.time()
                answer.brokers = [each for each in answer.brokers if self.gone.get(each.node_id, now + 1) > now]
                return answer
        return await super().handle(node_id, version, request, code)


def told(brokers: ListingBrokers, ask: Any, *, dead: int | None = None) -> Any:
    async def story(ports: ClientPorts) -> Any:
        cluster = Cluster(brokers.names, ports=ports, timeout_ms=30_000)
        try:
            await cluster.refresh()
            if dead is not None:
                brokers.die(dead, heir=0)
            return await ask(cluster)
        finally:
            await cluster.close()

    return play(brokers, story)


def test_groups_of_all_brokers_by_name() -> None:
    found = told(ListingBrokers({0: ["c", "a"], 1: ["b"]}), list_groups)
    assert [(each.group_id, each.coordinator) for each in found] == [("a", 0), ("b", 1), ("c", 0)]


def test_a_broker_that_has_left_is_not_waited_for() -> None:
    """Its groups are listed at their new coordinator."""
    found: list[GroupListing] = told(ListingBrokers({0: ["a"], 1: ["b"], 2: ["c"]}), list_groups, dead=2)
    assert [(each.group_id, each.coordinator) for each in found] == [("a", 0), ("b", 1), ("c", 0)]


def test_a_group_that_moves_meanwhile_is_listed_once() -> None:
    found = told(ListingBrokers({0: ["a"], 1: ["a"]}), list_groups)
    assert [each.group_id for each in found] == ["a"]


def test_a_lost_connection_to_a_coordinator_is_made_again() -> None:
    brokers = ListingBrokers({0: ["g"]})
    brokers.fail(Api.DESCRIBE_GROUPS, Fault.CLOSE)
    brokers.fail(Api.OFFSET_FETCH, Fault.CLOSE)

    async def ask(cluster: Cluster) -> Any:
        return await describe_group(cluster, "g"), await group_offsets(cluster, "g")

    described, offsets = told(brokers, ask)
    assert (described.state, offsets) == ("Empty", {})


def test_what_is_refused_for_good_is_told_at_once() -> None:
    brokers = ListingBrokers({0: ["g"]})
    brokers.fail(Api.OFFSET_FETCH, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(Refused, match="GROUP_AUTHORIZATION_FAILED"):
        told(brokers, lambda cluster: asyncio.wait_for(group_offsets(cluster, "g"), 5))
