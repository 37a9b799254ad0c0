"""The topic of a benchmark: a new one, which is created and removed, or an existing one with the user's consent."""

import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import typer

from penstock.cli.errors import Failed, Misused
from penstock.client.client import Client
from penstock.client.errors import Refused
from penstock.client.metadata import Topic
from penstock.model.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The topic that the user asked for."""

    name: str | None
    partitions: int
    replicas: int
    configs: Mapping[str, str]
    keeps: bool
    may_write: bool | None
    """Whether an existing topic may be written to without a question; None if it is only read."""


@dataclass(frozen=True, slots=True)
class BenchTopic:
    """The topic in use."""

    name: str
    topic_id: bytes
    partitions: tuple[int, ...]
    is_new: bool


@asynccontextmanager
async def a_bench_topic(client: Client, plan: TopicPlan) -> AsyncIterator[BenchTopic]:
    """Creates the topic and removes it at the end; an existing topic stays."""
    found = None if plan.name is None else await existing_topic(client, plan.name)
    if found is not None:
        _ask(found.name, plan.may_write)
        yield _topic(found, is_new=False)
        return
    name = plan.name or f"penstock-bench-{secrets.token_hex(4)}"
    await client.create_topic(name, plan.partitions, plan.replicas, plan.configs)
    try:
        yield _topic(await client.admin.describe_topic(name), is_new=True)
    finally:
        if plan.keeps:
            typer.echo(f"{name} stays: `penstock topic delete {name}` removes it.", err=True)
        else:
            await client.delete_topic(name)


async def existing_topic(client: Client, name: str) -> Topic | None:
    """The topic, or None if it does not exist."""
    try:
        return await client.admin.describe_topic(name)
    except Refused as refused:
        if refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        raise


def _ask(name: str, may_write: bool | None) -> None:
    if may_write is None or may_write:
        return
    if not sys.stdin.isatty():
        raise Misused(f"topic {name} exists, and a benchmark would fill it with rubbish: give another name, or --yes")
    if not typer.confirm(f"Topic {name} exists. Fill it with the records of a benchmark?", err=True):
        raise Failed("nothing was written")


def _topic(topic: Topic, *, is_new: bool) -> BenchTopic:
    return BenchTopic(topic.name, topic.topic_id, tuple(each.index for each in topic.partitions), is_new)
