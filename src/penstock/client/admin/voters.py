"""Changes of the voters of the metadata quorum (KIP-853)."""

from typing import NamedTuple

from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.model.errors import ErrorCode
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


class VoterListener(NamedTuple):
    """A listener for controllers: its name, such as CONTROLLER, and its address."""

    name: str
    host: str
    port: int


async def add_voter(
    cluster: Cluster, node_id: int, directory_id: bytes, listener: VoterListener, *, timeout_ms: int | None = None
) -> None:
    """Makes a controller a voter, once it has caught up; returns when the change is committed."""
    response = await cluster.ask_controller(
        AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=cluster.request_timeout_ms * 3 // 4,
            voter_id=node_id,
            voter_directory_id=directory_id,
            listeners=[Listener(name=listener.name, host=listener.host, port=listener.port)],
        ),
        AddRaftVoterResponse,
        lambda answer: () if answer.error_code is ErrorCode.NONE else (answer.error_code,),
        timeout_ms=timeout_ms,
    )
    check(response.error_code, response.error_message, f"controller {node_id}")


async def remove_voter(cluster: Cluster, node_id: int, directory_id: bytes, *, timeout_ms: int | None = None) -> None:
    """Makes a voter an observer; returns when the change is committed."""
    response = await cluster.ask_controller(
        RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory_id),
        RemoveRaftVoterResponse,
        lambda answer: () if answer.error_code is ErrorCode.NONE else (answer.error_code,),
        timeout_ms=timeout_ms,
    )
    check(response.error_code, response.error_message, f"controller {node_id}")
