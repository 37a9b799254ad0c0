"""Completion of names in a shell: topics and groups of the cluster, and contexts.

A completion never prints an error, and ends within seconds: the shell waits for it.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from penstock.client.client import Client

ANSWER_MS = 2_000


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin with the text."""

    async def names(client: "Client") -> list[str]:
        return [each.name for each in await client.admin.list_topics(timeout_ms=ANSWER_MS)]

    return _beginning(incomplete, _ask(context, names))


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    """Groups that begin with the text."""

    async def names(client: "Client") -> list[str]:
        return [each.group_id for each in await client.admin.list_groups(timeout_ms=ANSWER_MS)]

    return _beginning(incomplete, _ask(context, names))


def complete_contexts(incomplete: str) -> list[str]:
    """Contexts that begin with the text."""
    from penstock.client.contexts import Contexts

    return _beginning(incomplete, Contexts().names())


def _ask(context: typer.Context, names: "Callable[[Client], Awaitable[list[str]]]") -> list[str]:
    import asyncio

    from penstock.cli.connection.connecting import ConnectionOptions, find, given, open_client, parse_pairs

    async def ask() -> list[str]:
        async with asyncio.timeout(ANSWER_MS / 1000):
            async with open_client(
                found, timeout_ms=ANSWER_MS, connect_timeout_ms=ANSWER_MS, request_timeout_ms=ANSWER_MS
            ) as client:
                return await names(client)

    options = context.params
    try:
        pairs = parse_pairs(options.get("x_properties"), "-X")
        given.set(ConnectionOptions(options.get("context"), options.get("command_config"), pairs))
        found = find(options.get("bootstrap"))
        return asyncio.run(ask())
    except Exception:
        return []


def _beginning(incomplete: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
