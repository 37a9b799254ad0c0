"""The topic of a run: a new one, which is created and removed, or an existing one with the user's consent.

Records of a new topic do not expire. A topic that cannot be removed at the end is reported, and changes no verdict.
"""

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import typer

from penstock.cli.bench.topic import existing_topic
from penstock.cli.errors import Misused
from penstock.client.admin.configs import ConfigKind
from penstock.client.client import Client
from penstock.client.errors import ClientError, Refused
from penstock.client.metadata import Topic
from penstock.model.errors import ErrorCode

REPLICAS = 3
FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
REMOVAL_MS = 30_000


@dataclass(frozen=True, slots=True)
class TopicWish:
    """The topic that the user asked for."""

    name: str | None
    partitions: int
    replicas: int | None
    """Three, or as many as there are brokers, if not given."""
    in_sync: int | None
    """One less than replicas, if not given."""
    configs: Mapping[str, str]
    keeps: bool
    may_write: bool
    """Whether an existing topic may be written to."""


@dataclass(frozen=True, slots=True)
class RunTopic:
    """The topic in use."""

    name: str
    partitions: tuple[int, ...]
    replicas: int
    in_sync: int
    """The number of replicas that must be in sync for acks=all."""
    is_new: bool


@asynccontextmanager
async def a_topic(client: Client, wish: TopicWish) -> AsyncIterator[RunTopic]:
    """Creates the topic and removes it at the end; an existing topic stays."""
    found = None if wish.name is None else await existing_topic(client, wish.name)
    if found is not None:
        yield _topic(found, await _check_usable(client, found, wish), is_new=False)
        return
    name = wish.name or f"penstock-verify-{secrets.token_hex(4)}"
    replicas = wish.replicas or min(REPLICAS, len((await client.admin.describe_cluster()).brokers))
    in_sync = wish.in_sync or max(1, replicas - 1)
    if in_sync > replicas:
        raise Misused(f"--min-insync {in_sync} of {replicas} replicas can never be: ask for fewer, or for more -r")
    configs = {**FOR_EVER, "min.insync.replicas": str(in_sync), **wish.configs}
    await client.create_topic(name, wish.partitions, replicas, configs)
    try:
        yield _topic(await client.admin.describe_topic(name), in_sync, is_new=True)
    finally:
        if wish.keeps:
            typer.echo(f"{name} stays: `penstock topic delete {name}` removes it.", err=True)
        else:
            await _remove(client, name)


async def _check_usable(client: Client, topic: Topic, wish: TopicWish) -> int:
    """Checks that an existing topic can be used; returns how many replicas must be in sync."""
    if not wish.may_write:
        raise Misused(
            f"topic {topic.name} exists, and its readers would get the records of this run: leave out --topic for one "
            "of its own, give another name, or --yes"
        )
    settings = await client.admin.describe_configs(ConfigKind.TOPIC, topic.name)
    if "compact" in (settings["cleanup.policy"].value or ""):
        raise Misused(f"topic {topic.name} is compacted: what compaction removes would count as lost; take another one")
    return int(settings["min.insync.replicas"].value or 1)


async def _remove(client: Client, name: str) -> None:
    try:
        await client.admin.delete_topic(name, timeout_ms=REMOVAL_MS)
    except ClientError as error:
        if isinstance(error, Refused) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return  # an earlier attempt removed it, and the response was lost
        typer.echo(f"{name} could not be removed ({error}): `penstock topic delete {name}` does it later.", err=True)


def _topic(topic: Topic, in_sync: int, *, is_new: bool) -> RunTopic:
    replicas = len(topic.partitions[0].replicas)
    return RunTopic(topic.name, tuple(each.index for each in topic.partitions), replicas, in_sync, is_new)
