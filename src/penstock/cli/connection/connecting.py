"""Finds the cluster of a command, opens a client there, runs a piece of work with it, and closes it."""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from penstock.cli.errors import Failed, Misused, NotReached, PartlyReached

if TYPE_CHECKING:
    from penstock.client.blocking import SyncClient
    from penstock.client.bootstrap import FoundCluster
    from penstock.client.client import Client
    from penstock.client.configuration.options import ClientOptions

T = TypeVar("T")

BootstrapOption = Annotated[
    str | None,
    typer.Option("-b", "--bootstrap", "--bootstrap-server", "--brokers", help="host:port, several with commas."),
]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds that the broker has to answer.")]
TIMEOUT_S = 30.0
CONNECT_MS = 5_000
CLIENT_ID = "penstock-cli"


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """What the options that every command with -b has were given."""

    context: str | None = None
    command_config: Path | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


given: ContextVar[ConnectionOptions | None] = ContextVar("given", default=None)
"""The connection options of the command that runs."""


def find(bootstrap: str | None = None, *, option: str = "-b", directory: Path | None = None) -> "FoundCluster":
    """The cluster that the command line names, or that the rule finds; with the properties of the command line."""
    from dataclasses import replace

    from penstock.cli.connection.properties import properties_of
    from penstock.client.bootstrap import find_cluster
    from penstock.client.contexts import BOOTSTRAP

    options = given.get() or ConnectionOptions()
    own = properties_of(options.command_config, options.properties)
    address = own.pop(BOOTSTRAP, None)
    if bootstrap is None and address is not None:
        bootstrap, option = address, f"{BOOTSTRAP} on the command line"
    found = find_cluster(bootstrap, option=option, context=options.context, directory=directory)
    return replace(found, properties={**found.properties, **own})


def client_arguments(found: "FoundCluster") -> "ClientOptions":
    """The keyword arguments of a client that the properties ask for."""
    from penstock.client.configuration.config import ConfigError, options_from

    try:
        return options_from(found.properties)[1]
    except ConfigError as error:
        raise Failed(str(error).removeprefix("config: ")) from None


def open_client(cluster: "str | FoundCluster | None", **options: Any) -> "Client":
    """A client of a cluster that was found, or of the one that the rule finds for this -b."""
    from penstock.client.client import Client

    found = find(cluster) if cluster is None or isinstance(cluster, str) else cluster
    return Client(found.bootstrap, **{"client_id": CLIENT_ID, **options, **client_arguments(found)})


def open_blocking_client(cluster: "FoundCluster", **options: Any) -> "SyncClient":
    """The same for a program without an event loop."""
    from penstock.client.blocking import SyncClient

    return SyncClient(cluster.bootstrap, **{"client_id": CLIENT_ID, **options, **client_arguments(cluster)})


def run_with_client(
    cluster: "str | FoundCluster | None",
    timeout_s: float,
    work: "Callable[[Client], Awaitable[T]]",
    *,
    connect_timeout_ms: int = CONNECT_MS,
) -> T:
    """Runs the work and returns its result. Fails at the first attempt if no broker answers: a user waits for it."""
    import asyncio

    from penstock.client.connection.connection import TIMEOUT_MS
    from penstock.client.errors import Unreachable

    found = find(cluster) if cluster is None or isinstance(cluster, str) else cluster

    async def run() -> T:
        limit_ms = int(timeout_s * 1000)
        async with open_client(
            found,
            timeout_ms=limit_ms,
            connect_timeout_ms=min(connect_timeout_ms, limit_ms),
            request_timeout_ms=min(TIMEOUT_MS, limit_ms),
        ) as client:
            try:
                await client.cluster.refresh(timeout_ms=1)
            except Unreachable as error:
                raise NotReached(str(error), found) from error
            try:
                return await work(client)
            except Unreachable as error:
                raise PartlyReached(str(error)) from error

    return asyncio.run(run())


def parse_pairs(texts: "list[str] | None", option: str) -> dict[str, str]:
    """Parses `k=v` texts into a dict."""
    pairs = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Misused(f"{option} {text!r} is not name=value")
        pairs[name] = value
    return pairs
