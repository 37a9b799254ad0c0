"""Opens a client, runs a piece of work with it, and closes it. Options that say where the broker is."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from penstock.client.client import Client

T = TypeVar("T")

BootstrapOption = Annotated[
    str | None,
    typer.Option("-b", "--bootstrap", "--bootstrap-server", "--brokers", help="host:port, several with commas."),
]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds that the broker has to answer.")]
TIMEOUT_S = 30.0
CONNECT_MS = 10_000


def run_with_client(
    bootstrap: str | None,
    timeout_s: float,
    work: "Callable[[Client], Awaitable[T]]",
    *,
    connect_timeout_ms: int = CONNECT_MS,
) -> T:
    """What the work gives. Who types a command wants to know at once that nobody is there: the first try decides."""
    import asyncio

    from penstock.cli.failing import PartlyReached
    from penstock.client.client import Client
    from penstock.client.errors import Unreachable

    async def run() -> T:
        async with Client(
            bootstrap,
            client_id="penstock-cli",
            timeout_ms=int(timeout_s * 1000),
            connect_timeout_ms=connect_timeout_ms,
        ) as client:
            await client.cluster.refresh(timeout_ms=1)
            try:
                return await work(client)
            except Unreachable as error:
                raise PartlyReached(str(error)) from error

    return asyncio.run(run())


def parse_pairs(texts: "list[str] | None", option: str) -> dict[str, str]:
    """`k=v` by k."""
    from penstock.cli.failing import Misused

    pairs = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Misused(f"{option} {text!r} is not name=value")
        pairs[name] = value
    return pairs
