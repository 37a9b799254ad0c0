"""A connection to the cluster that the file names."""

from penstock.client.blocking import SyncClient
from penstock.spark.project.plan import ClusterPlan
from penstock.spark.security import read_security, tls_context

CLIENT_ID = "penstock-spark"
REQUEST_TIMEOUT_MS = 30_000


def connect(cluster: ClusterPlan, *, timeout_ms: int = 60_000) -> SyncClient:
    """A client that waits; close it."""
    security = read_security(cluster.kafka)
    return SyncClient(
        cluster.bootstrap,
        client_id=cluster.kafka.get("client.id", CLIENT_ID),
        sasl=security.credentials,
        tls=tls_context(cluster.kafka) if security.is_encrypted else None,
        timeout_ms=timeout_ms,
        request_timeout_ms=int(cluster.kafka.get("request.timeout.ms", REQUEST_TIMEOUT_MS)),
    )
