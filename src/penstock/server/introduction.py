"""What a controller tells about itself when it comes up: where it listens, its data directory, what it can do.

The voters that a cluster begins with are numbers and addresses. Once each has told its directory, who comes back with
an empty disk is somebody else, and cannot break promises that it no longer knows of (KIP-853).
"""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.raft.replicas import Endpoint
from penstock.server.advertised import PLAINTEXT
from penstock.server.controller_channel import ControllerChannel
from penstock.server.controller_runner import NotController
from penstock.server.quorum_runner import QuorumRunner
from penstock.server.settings import Feature
from penstock.wire.messages import controller_registration as registering
from penstock.wire.messages import update_raft_voter as updating
from penstock.wire.types import ZERO_UUID


async def introduce_voter(
    channel: ControllerChannel, quorum: QuorumRunner, cluster_id: str, endpoint: Endpoint
) -> bool:
    """Whether the voter set has this voter as it is, or need not; else it was told to the leader, and may soon."""
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
    return False  # the voter set in the log tells when it is so


async def introduce_controller(
    channel: ControllerChannel,
    node_id: int,
    incarnation_id: bytes,
    endpoint: Endpoint,
    features: Sequence[Feature],
) -> bool:
    """Whether the active controller knows what this one can do."""
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
