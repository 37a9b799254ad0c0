"""A connection to the cluster as the options describe it, for the driver and for tasks."""

from penstock.client.blocking import SyncClient
from penstock.spark.options import SourceOptions
from penstock.spark.security import read_security, tls_context

REQUEST_TIMEOUT_MS = 30_000


def connect(options: SourceOptions) -> SyncClient:
    """A client that waits; close it."""
    security = read_security(options.kafka)
    return SyncClient(
        options.bootstrap,
        client_id=options.client_id,
        sasl=security.credentials,
        tls=tls_context(options.kafka) if security.is_encrypted else None,
        request_timeout_ms=options.kafka_number("request.timeout.ms", REQUEST_TIMEOUT_MS),
        producer={"linger_ms": 0},
    )
