"""A connection to the cluster as the options describe it, for the driver and for tasks."""

from penstock.client.blocking import SyncClient
from penstock.spark.options import SourceOptions
from penstock.spark.security import read_security, tls_context

REQUEST_TIMEOUT_MS = 30_000
CONTACT_MS = 60_000
"""Every task has a client of its own, which may start while brokers are restarted."""


def connect(options: SourceOptions) -> SyncClient:
    """A blocking client; the caller closes it."""
    security = read_security(options.kafka)
    return SyncClient(
        options.bootstrap,
        client_id=options.client_id,
        sasl=security.credentials,
        tls=tls_context(options.kafka) if security.is_encrypted else None,
        first_contact_ms=CONTACT_MS,
        request_timeout_ms=options.kafka_number("request.timeout.ms", REQUEST_TIMEOUT_MS),
        producer={"linger_ms": 0},
    )
