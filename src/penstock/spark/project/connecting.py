"""A connection to the cluster that the file names."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.client.blocking import SyncClient
from penstock.client.errors import TimedOut
from penstock.spark.project.plan import ClusterPlan
from penstock.spark.security import read_security, tls_context

CLIENT_ID = "penstock-spark"
REQUEST_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 10_000
T = TypeVar("T")


def connect(
    cluster: ClusterPlan, *, timeout_ms: int = 60_000, connect_timeout_ms: int = CONNECT_TIMEOUT_MS
) -> SyncClient:
    """A blocking client; the caller closes it."""
    security = read_security(cluster.kafka)
    return SyncClient(
        cluster.bootstrap,
        client_id=cluster.kafka.get("client.id", CLIENT_ID),
        sasl=security.credentials,
        tls=tls_context(cluster.kafka) if security.is_encrypted else None,
        timeout_ms=timeout_ms,
        connect_timeout_ms=connect_timeout_ms,
        first_contact_ms=timeout_ms,
        request_timeout_ms=int(cluster.kafka.get("request.timeout.ms", REQUEST_TIMEOUT_MS)),
    )


async def within(limit_s: float, work: Coroutine[Any, Any, T]) -> T:
    """Bounds a whole piece of work: the time-outs of a client apply to each connection and each request."""
    try:
        return await asyncio.wait_for(work, limit_s)
    except TimeoutError:
        raise TimedOut(f"no broker answered within {limit_s:g} s") from None
