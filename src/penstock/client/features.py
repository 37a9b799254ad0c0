"""Features of a cluster: which levels are in force, which each node knows, and how a level is raised or lowered.

A level that is in force binds everybody: a node that does not know it is not let in. An upgrade raises levels last.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from penstock import __version__
from penstock.client.bootstrap import Address, parse_address
from penstock.client.brokers import describe_cluster
from penstock.client.cluster import Cluster
from penstock.client.connection import SOFTWARE
from penstock.client.errors import ClientError, Unreachable, check
from penstock.client.quorum import describe_quorum
from penstock.model.errors import ErrorCode
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse


class Direction(IntEnum):
    """Which way a level may go; the numbers are the protocol's."""

    UP = 1
    DOWN = 2
    """Only if nothing is lost by it."""


class Levels(NamedTuple):
    """Those of a feature that somebody knows, both ends among them."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least}-{self.most}"


@dataclass(frozen=True, slots=True)
class NodeFeatures:
    """What one node says."""

    known: Mapping[str, Levels]
    in_force: Mapping[str, int]
    epoch: int
    """How far into the metadata log the node has come; who is furthest knows best what is in force."""


@dataclass(frozen=True, slots=True)
class FeaturesDescription:
    """What all nodes say."""

    nodes: Mapping[int, NodeFeatures]
    silent: Mapping[int, ClientError] = field(default_factory=dict)
    """Nodes that are registered and did not answer."""

    @property
    def in_force(self) -> Mapping[str, int]:
        """Levels by feature; what is not listed is off (0)."""
        return max(self.nodes.values(), key=lambda node: node.epoch).in_force

    @property
    def names(self) -> list[str]:
        """Every feature that somebody knows."""
        return sorted({name for node in self.nodes.values() for name in (*node.known, *node.in_force)})

    def common(self, name: str) -> Levels | None:
        """The levels that every node which answers knows; None if there are none."""
        known = [node.known.get(name, Levels(0, 0)) for node in self.nodes.values()]
        found = Levels(max(each.least for each in known), min(each.most for each in known))
        return found if found.least <= found.most else None


async def describe_features(cluster: Cluster, *, timeout_ms: int | None = None) -> FeaturesDescription:
    """Asks every broker and every controller for itself; again while none of them answers."""
    retry = cluster.retry(timeout_ms)
    while True:
        places = await _places(cluster, retry.left_ms)
        found = await asyncio.gather(*(_ask(cluster, address) for address in places.values()))
        said = dict(zip(places, found, strict=True))
        nodes = {node_id: each for node_id, each in said.items() if isinstance(each, NodeFeatures)}
        silent = {node_id: each for node_id, each in said.items() if isinstance(each, ClientError)}
        if nodes:
            return FeaturesDescription(nodes, silent)
        await retry.after(next(iter(silent.values()), Unreachable("no broker is let in")))


async def _places(cluster: Cluster, timeout_ms: int) -> dict[int, Address]:
    """Where nodes are asked: brokers as clients do, nodes that are only controllers where other nodes do."""
    described = await describe_cluster(cluster, timeout_ms=timeout_ms)
    places = {each.node_id: each.address for each in (*described.brokers, *described.fenced)}
    try:
        voters = (await describe_quorum(cluster, timeout_ms=timeout_ms)).voters
    except ClientError:  # not told by old brokers, or nobody leads: brokers are looked at all the same
        voters = ()
    for voter in voters:
        for endpoint in voter.endpoints[:1]:
            places.setdefault(voter.node_id, parse_address(endpoint))
    return places


async def _ask(cluster: Cluster, address: Address) -> NodeFeatures | ClientError:
    request = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=__version__)
    try:
        connection = await cluster.connection_to(address)
        response = await connection.ask(request, ApiVersionsResponse)
        check(response.error_code, subject=str(address))
    except ClientError as error:
        return error
    return NodeFeatures(
        {each.name: Levels(each.min_version, each.max_version) for each in response.supported_features},
        {each.name: each.max_version_level for each in response.finalized_features},
        response.finalized_features_epoch,
    )


async def update_features(
    cluster: Cluster,
    levels: Mapping[str, int],
    direction: Direction,
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> None:
    """Puts levels in force, all of them or none; 0 turns a feature off."""
    request = UpdateFeaturesRequest(
        timeout_ms=cluster.request_timeout_ms,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=direction)
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    response = await cluster.ask_controller(request, UpdateFeaturesResponse, _codes, timeout_ms=timeout_ms)
    for each in response.results:
        check(each.error_code, each.error_message, f"feature {each.feature}")
    check(response.error_code, response.error_message)


def _codes(response: UpdateFeaturesResponse) -> Iterable[ErrorCode]:
    codes = [response.error_code, *(each.error_code for each in response.results)]
    return [code for code in codes if code is not ErrorCode.NONE]
