"""How replicas of the quorum reach each other: one connection per peer for fetches, one for everything else.

A fetch may be held for half a second, and answers of one connection come in order: a vote must not wait behind it. A
connection that breaks takes its requests with it, and is opened again for the next.
"""

from collections.abc import Callable
from typing import Final

from penstock.client.bootstrap import Address
from penstock.client.pool import Pool
from penstock.client.ports import ClientPorts
from penstock.raft.messages import Fetch, FetchSnapshot, Reply, Request
from penstock.raft.replicas import Endpoint
from penstock.server.quorum_messages import reply_from_wire, request_to_wire

FETCHES: Final = "fetch"
OTHERS: Final = ""


class QuorumPeers:
    """Asks other nodes. `endpoint_of` says where a node of the voter set listens, None if nobody knows."""

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
        """The answer; ClientError, OSError or ProtocolError when there is none."""
        endpoint = self._endpoint_of(to)
        if endpoint is None:
            raise OSError(f"nobody knows where node {to} listens")
        lane = FETCHES if isinstance(request, Fetch | FetchSnapshot) else OTHERS
        connection = await self._pool.connection(Address(endpoint.host, endpoint.port), lane)
        message, answer = request_to_wire(request, self._cluster_id)
        return reply_from_wire(await connection.ask(message, answer))

    async def close(self) -> None:
        """Ends all connections."""
        await self._pool.close()
