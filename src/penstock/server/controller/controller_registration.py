"""Registration of a starting controller: its listener, its data directory and its supported features.

The initial voters of a cluster are ids and addresses. Once each voter has registered its directory id, a node that
returns with an empty disk counts as another replica, and cannot break a vote that it no longer has on disk (KIP-853).
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.metadata.runtime import NotController
from penstock.model.errors import ErrorCode
from penstock.raft.replicas import Endpoint
from penstock.server.connections.advertised import PLAINTEXT
from penstock.server.controller.controller_channel import ControllerChannel
from penstock.server.quorum.quorum_runner import QuorumRunner
from penstock.server.settings import Feature
from penstock.wire.messages import controller_registration as registering
from penstock.wire.messages import update_raft_voter as updating
from penstock.wire.types import ZERO_UUID

RETRY_S: Final = 0.2


async def register(
    channel: ControllerChannel,
    quorum: QuorumRunner,
    cluster_id: str,
    incarnation_id: bytes,
    endpoint: Endpoint,
    features: Sequence[Feature],
) -> None:
    """Registers this voter's address and directory with the quorum, then its features with the controller, once."""
    while not await update_voter(channel, quorum, cluster_id, endpoint):
        await asyncio.sleep(RETRY_S)
    while not await register_controller(channel, quorum.key.node_id, incarnation_id, endpoint, features):
        await asyncio.sleep(RETRY_S)


async def update_voter(channel: ControllerChannel, quorum: QuorumRunner, cluster_id: str, endpoint: Endpoint) -> bool:
    """Whether the voter set is up to date for this node, or does not concern it; if not, sends the leader an update."""
    raft, key = quorum.raft, quorum.key
    known = raft.voters.by_id.get(key.node_id)
    if known is None or known.key.directory_id not in (key.directory_id, ZERO_UUID):
        return True
    if known.key == key and known.endpoints == (endpoint,):
        return True
    request = updating.UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=raft.epoch,
        voter_id=key.node_id,
        voter_directory_id=key.directory_id,
        listeners=[updating.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)],
        k_raft_version_feature=updating.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )
    try:
        await channel.ask(request, updating.UpdateRaftVoterResponse)
    except NotController:
        return False
    return False  # the voter set in the log shows when the update is done


async def register_controller(
    channel: ControllerChannel,
    node_id: int,
    incarnation_id: bytes,
    endpoint: Endpoint,
    features: Sequence[Feature],
) -> bool:
    """Registers this controller's features; returns whether the active controller accepted them."""
    request = registering.ControllerRegistrationRequest(
        controller_id=node_id,
        incarnation_id=incarnation_id,
        zk_migration_ready=False,
        listeners=[
            registering.Listener(
                name=endpoint.name, host=endpoint.host, port=endpoint.port, security_protocol=PLAINTEXT
            )
        ],
        features=[
            registering.Feature(name=f.name, min_supported_version=f.min_version, max_supported_version=f.max_version)
            for f in features
        ],
    )
    try:
        response = await channel.ask(request, registering.ControllerRegistrationResponse)
    except NotController:
        return False
    return response.error_code is ErrorCode.NONE
