"""TLS and logins of a query, from the settings of Kafka's clients with `kafka.` in front of each name.

The settings are checked on the driver; files are opened where they are used, so they must exist on the executors.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.client.connection import security
from penstock.client.connection.security import Security, SecurityError, Settings, UnreadableFile
from penstock.spark.options import OptionError

PREFIX = "kafka."


def read_security(kafka: Settings) -> Security:
    """Reads the protocol and the credentials from the settings."""
    with _option_errors():
        return security.read_security(kafka, PREFIX)


def tls_context(kafka: Settings) -> ssl.SSLContext:
    """The trusted certificates and the client's own; reads the files that the settings name."""
    with _option_errors():
        return security.tls_context(kafka, PREFIX)


@contextmanager
def _option_errors() -> Iterator[None]:
    try:
        yield
    except UnreadableFile as error:
        raise OptionError(f"{error} It must lie under this path on the driver and on every executor.") from None
    except SecurityError as error:
        raise OptionError(str(error)) from None
