"""Connection to the coordinator of a group: looked up once, and again after it has moved."""

from typing import TypeVar

from penstock.client.cluster import Cluster
from penstock.client.connection.connection import BrokerConnection
from penstock.client.errors import ClientError
from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response

R = TypeVar("R", bound=Response)

MOVED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""The coordinator has moved or is not ready: look it up again after a pause."""


class CoordinatorLink:
    """See the module. Requests of one lane wait for each other: a caller of long requests needs its own lane."""

    def __init__(self, cluster: Cluster, group_id: str, lane: str = "") -> None:
        self.cluster = cluster
        self.group_id = group_id
        self._lane = lane
        self._node_id: int | None = None

    async def connection(self, *, timeout_ms: int | None = None) -> BrokerConnection:
        """A connection to the coordinator."""
        if self._node_id is None:
            self._node_id = await self.cluster.coordinator(self.group_id, timeout_ms=timeout_ms)
        try:
            return await self.cluster.connection(self._node_id, self._lane)
        except ClientError:
            self.forget()
            raise

    async def ask(
        self,
        request: Request,
        answer: type[R],
        *,
        version_max: int | None = None,
        timeout_ms: int | None = None,
    ) -> R:
        """Makes one attempt; after an error, the next attempt looks up the coordinator again."""
        connection = await self.connection(timeout_ms=timeout_ms)
        try:
            version = connection.version_for(type(request), version_max)
            return await connection.ask(request, answer, version=version, timeout_ms=timeout_ms)
        except ClientError:
            self.forget()
            raise

    def forget(self) -> None:
        """Drops the cached coordinator."""
        self._node_id = None
