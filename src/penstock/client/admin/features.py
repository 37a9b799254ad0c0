"""Features of a cluster: finalized levels, the levels that each node supports, and level changes.

A finalized level binds all nodes: a node that does not support it is not admitted. An upgrade raises levels last.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from penstock.client.admin.brokers import describe_cluster
from penstock.client.admin.quorum import describe_quorum
from penstock.client.bootstrap import Address, parse_address
from penstock.client.cluster import Cluster
from penstock.client.connection.connection import SOFTWARE
from penstock.client.errors import ClientError, Unreachable, check
from penstock.model.errors import ErrorCode
from penstock.version import __version__
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse


class Direction(IntEnum):
    """Direction of a level change; the numbers are the protocol's."""

    UP = 1
    DOWN = 2
    """A safe downgrade: only if no metadata is lost."""


class Levels(NamedTuple):
    """Supported levels of a feature, both bounds included."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least}-{self.most}"


@dataclass(frozen=True, slots=True)
class NodeFeatures:
    """The features that one node reports."""

    known: Mapping[str, Levels]
    in_force: Mapping[str, int]
    epoch: int
    """The node's metadata offset; the node with the highest one has the latest finalized levels."""


@dataclass(frozen=True, slots=True)
class FeaturesDescription:
    """The features that all nodes report."""

    nodes: Mapping[int, NodeFeatures]
    silent: Mapping[int, ClientError] = field(default_factory=dict)
    """Registered nodes that did not answer."""

    @property
    def in_force(self) -> Mapping[str, int]:
        """Finalized levels by feature; a feature that is not listed is off (0)."""
        return max(self.nodes.values(), key=lambda node: node.epoch).in_force

    @property
    def names(self) -> list[str]:
        """Every feature that some node supports or reports as finalized."""
        return sorted({name for node in self.nodes.values() for name in (*node.known, *node.in_force)})

    def common(self, name: str) -> Levels | None:
        """The levels that every answering node supports; None if there are none."""
        known = [node.known.get(name, Levels(0, 0)) for node in self.nodes.values()]
        found = Levels(max(each.least for each in known), min(each.most for each in known))
        return found if found.least <= found.most else None


async def describe_features(cluster: Cluster, *, timeout_ms: int | None = None) -> FeaturesDescription:
    """Queries every broker and every controller; retries while none of them answers."""
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
    """Addresses of all nodes: client listeners of brokers, controller listeners of dedicated controllers."""
    described = await describe_cluster(cluster, timeout_ms=timeout_ms)
    places = {each.node_id: each.address for each in (*described.brokers, *described.fenced)}
    try:
        voters = (await describe_quorum(cluster, timeout_ms=timeout_ms)).voters
    except ClientError:  # an old broker, or a quorum without a leader: query the brokers anyway
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
    """Finalizes levels, all or none; 0 turns a feature off."""
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
