"""Connections between replicas of the quorum: one per peer for fetches, one for all other requests.

A fetch may be held for half a second, and the responses of one connection come in order: a vote must not wait behind a
fetch. If a connection breaks, its requests fail, and the next request opens a new one.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from penstock.client.bootstrap import Address
from penstock.client.connection.pool import Pool
from penstock.client.errors import ClientError
from penstock.client.ports import ClientPorts
from penstock.metadata.names import METADATA_TOPIC
from penstock.model.errors import ProtocolError
from penstock.raft.messages import Fetch, FetchSnapshot, Reply, Request
from penstock.raft.replicas import Endpoint, ReplicaKey, Voter, VoterSet
from penstock.server.quorum.quorum_messages import PARTITION, reply_from_wire, request_to_wire
from penstock.wire.messages import describe_quorum as describing

RETRY_S: Final = 0.2
FETCHES: Final = "fetch"
OTHERS: Final = ""


class QuorumPeers:
    """See the module. `endpoint_of` returns the endpoint of a voter, or None if it is unknown."""

    def __init__(
        self,
        ports: ClientPorts,
        cluster_id: str,
        request_timeout_ms: int,
        endpoint_of: Callable[[int], Endpoint | None],
    ) -> None:
        self._cluster_id = cluster_id
        self._endpoint_of = endpoint_of
        self._pool = Pool(
            ports,
            client_id="quorum",
            login=None,
            connect_timeout_ms=request_timeout_ms,
            timeout_ms=request_timeout_ms,
        )

    async def ask(self, to: int, request: Request) -> Reply:
        """Sends a request and returns the reply; raises ClientError, OSError or ProtocolError if there is none."""
        endpoint = self._endpoint_of(to)
        if endpoint is None:
            raise OSError(f"nobody knows where node {to} listens")
        lane = FETCHES if isinstance(request, Fetch | FetchSnapshot) else OTHERS
        connection = await self._pool.connection(Address(endpoint.host, endpoint.port), lane)
        message, answer = request_to_wire(request, self._cluster_id)
        return reply_from_wire(await connection.ask(message, answer))

    async def find_voters(self, servers: Sequence[Address]) -> VoterSet:
        """Queries the servers in turn until one returns the voters."""
        topic = describing.TopicData(
            topic_name=METADATA_TOPIC, partitions=[describing.PartitionData(partition_index=PARTITION)]
        )
        request = describing.DescribeQuorumRequest(topics=[topic])
        while True:
            for server in servers:
                try:
                    connection = await self._pool.connection(server)
                    response = await connection.ask(request, describing.DescribeQuorumResponse)
                except (ClientError, ProtocolError, OSError):
                    continue
                if response.nodes:
                    return VoterSet(
                        Voter(
                            ReplicaKey(node.node_id),
                            tuple(Endpoint(each.name, each.host, each.port) for each in node.listeners),
                        )
                        for node in response.nodes
                    )
            await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """Closes all connections."""
        await self._pool.close()
