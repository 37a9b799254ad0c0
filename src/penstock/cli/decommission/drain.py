"""Emptying a broker: what makes it impossible, the moves, and how far they are.

A Penstock broker is marked (`broker.decommission`): it gets no new replicas, and with `auto.balance.enable` the cluster
moves its replicas away. Otherwise, and on Apache Kafka, the replicas are reassigned from here. Everything that is known
about the progress is in the cluster, so another run continues where one has ended.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.cli.errors import Failed
from penstock.cli.reassign.plan import Placement, plan_moves
from penstock.cli.reassign.watch import Pace, partition_bytes, standings
from penstock.client.admin.configs import ConfigKind
from penstock.client.client import Client
from penstock.client.errors import ClientError, Refused, Unsupported
from penstock.client.metadata import Broker, TopicPartition
from penstock.model.errors import ErrorCode

MARK = "broker.decommission"
BALANCE = "auto.balance.enable"
POLL_S = 0.5
STUCK_S = 15.0
"""How long a move that has begun must be impossible to end with an error: one broker may lag behind another."""
NAMES_MAX = 5
Show = Callable[[int, int, Pace], None]
"""Shows the bytes that have left the broker, all that must leave it, and the pace."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known about a cluster before a broker of it is emptied."""

    brokers: Mapping[int, Broker]
    """Brokers that are registered and not fenced."""
    fenced: Mapping[int, Broker] = field(default_factory=dict)
    leaving: frozenset[int] = frozenset()
    """Brokers that are being decommissioned."""
    placed: Placement = field(default_factory=dict)
    """The replicas of every partition; the target replicas, where it is being reassigned."""
    in_sync: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    held: tuple[TopicPartition, ...] = ()
    """Partitions with a replica on the broker, those that are moving away included."""
    voters: tuple[int, ...] = ()
    is_marking: bool = False
    """Whether brokers of this cluster can be marked: it is a Penstock cluster."""
    is_balancing: bool = False
    """Whether the cluster moves the replicas of marked brokers by itself."""

    def targets(self, node: int) -> dict[int, str | None]:
        """The brokers that may get the replicas, with their racks."""
        return {each: broker.rack for each, broker in self.brokers.items() if each != node and each not in self.leaving}


def obstacles(node: int, now: Situation) -> list[str]:
    """Why the broker cannot be emptied, and what to do about it; nothing if it can."""
    if node not in now.brokers and node not in now.fenced and not now.held:
        known = ", ".join(map(str, sorted(now.brokers)))
        return [f"there is no broker {node} in this cluster, and nothing is left of it; its brokers are {known}"]
    return [*_as_voter(node, now), *_too_few(node, now), *_only_there(node, now)]


def _as_voter(node: int, now: Situation) -> list[str]:
    if node not in now.voters:
        return []
    voters = ", ".join(map(str, sorted(now.voters)))
    text = f"node {node} is a voter of the metadata quorum ({voters}), which would be one voter short without it"
    if len(now.voters) == 1:
        return [f"{text}: add another voter first, with `penstock quorum add`, and remove this one then"]
    return [f"{text}: remove it from the quorum first, with `penstock quorum remove {node}`"]


def _too_few(node: int, now: Situation) -> list[str]:
    targets = now.targets(node)
    stuck: dict[int, list[str]] = {}
    for partition in now.held:
        replicas = now.placed[partition]
        names = stuck.setdefault(len(replicas), [])
        if node in replicas and not targets.keys() - set(replicas) and partition.topic not in names:
            names.append(partition.topic)
    left = {0: "there is no other broker", 1: "there is only 1 broker"}.get(
        len(targets), f"there are only {len(targets)} brokers"
    )
    return [
        f"{_names(topics)} {'has' if len(topics) == 1 else 'have'} {count} replica{'s' * (count != 1)}, and without "
        f"broker {node} {left} to take them: add a broker first"
        for count, topics in sorted(stuck.items())
        if topics
    ]


def _only_there(node: int, now: Situation) -> list[str]:
    if node in now.brokers:
        return []
    alone = [str(each) for each in now.held if not set(now.in_sync.get(each, ())) & now.brokers.keys()]
    if not alone:
        return []
    return [
        f"broker {node} is down, and no broker that is up is in sync for {_names(alone)}: start broker {node} first"
    ]


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


# --- the cluster ------------------------------------------------------------------------------------------------------


async def situation(client: Client, node: int) -> Situation:
    """Queries the cluster."""
    described = await client.admin.describe_cluster()
    before = await client.admin.list_reassignments()  # a move may end while topics are listed with its old replicas
    topics = await client.admin.list_topics(with_internal=True)
    moving = {each.partition: each.target for each in (*before, *await client.admin.list_reassignments())}
    placed, in_sync, held = {}, {}, []
    for topic in topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.index)
            placed[partition], in_sync[partition] = moving.get(partition, part.replicas), part.isr
            if node in part.replicas:
                held.append(partition)
    brokers = {each.node_id: each for each in described.brokers}
    asked = sorted(brokers)
    found = await asyncio.gather(*(_settings(client, each) for each in asked))
    settings = dict(zip(asked, found, strict=True))
    return Situation(
        brokers,
        {each.node_id: each for each in described.fenced},
        frozenset(each for each in asked if settings[each].get(MARK) == "true"),
        placed,
        in_sync,
        tuple(held),
        await _voters(client),
        any(MARK in each for each in found),
        any(each.get(BALANCE) == "true" for each in found),
    )


async def removed_if_down(client: Client, node: int) -> bool:
    """Removes a broker that is down from the list of brokers; whether it was down, and the cluster can do so."""
    if node not in {each.node_id for each in (await client.admin.describe_cluster()).fenced}:
        return False
    try:
        await client.admin.unregister_broker(node)
    except Unsupported:  # a cluster with ZooKeeper forgets it by itself
        return False
    except Refused as refused:
        if refused.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:  # an attempt whose answer was lost has done it
            raise
    return True


async def _settings(client: Client, node: int) -> dict[str, str | None]:
    try:
        found = await client.admin.describe_configs(ConfigKind.BROKER, str(node), names=[MARK, BALANCE], timeout_ms=1)
    except ClientError:
        return {}
    return {name: entry.value for name, entry in found.items()}


async def _voters(client: Client) -> tuple[int, ...]:
    try:
        return tuple(each.node_id for each in (await client.admin.describe_quorum()).voters)
    except Unsupported:
        return ()


async def mark(client: Client, node: int, *, is_leaving: bool) -> None:
    """Marks a Penstock broker, or takes the mark away."""
    await client.admin.alter_configs(ConfigKind.BROKER, str(node), {MARK: "true" if is_leaving else None})


async def cancel_moves(client: Client, node: int) -> int:
    """Cancels the reassignments that take replicas away from a broker; returns their number."""
    leaving = [each.partition for each in await client.admin.list_reassignments() if node in each.removing]
    if leaving:
        await client.admin.alter_reassignments(dict.fromkeys(leaving))
    return len(leaving)


async def drain(client: Client, node: int, first: Situation, limit_s: float | None, show: Show) -> int:
    """Has the replicas of a broker move, and watches them; returns how many are left at the time limit, 0 if none."""
    is_by_itself = first.is_balancing and node in first.brokers
    end_s = None if limit_s is None else time.monotonic() + limit_s
    now, pace, total = first, Pace(), 0
    stuck_since_s = None
    while now.held:
        why = obstacles(node, now)
        if not why:
            stuck_since_s = None
            if not is_by_itself:
                await _begin(client, node, now)
        elif stuck_since_s is None:
            stuck_since_s = time.monotonic()
        elif time.monotonic() - stuck_since_s >= STUCK_S:
            count = f"{len(now.held)} replica{'s' * (len(now.held) != 1)}"
            raise Failed(f"broker {node} still has {count}, and the rest cannot move: {'; '.join(why)}")
        left = await _left_bytes(client, node, now)
        total = max(total, left)
        pace.note(left, time.monotonic())
        show(total - left, total, pace)
        if end_s is not None and time.monotonic() >= end_s:
            break
        await asyncio.sleep(POLL_S)
        now = await situation(client, node)
    return len(now.held)


async def _begin(client: Client, node: int, now: Situation) -> None:
    """Reassigns partitions that are not moving away yet."""
    staying = [each for each in now.held if node in now.placed[each]]
    if not staying:
        return
    after = new_places(node, now)
    done = await client.admin.alter_reassignments({each: after[each] for each in staying if each in after})
    if refused := [each for each in done.values() if each is not None and not each.is_retriable]:
        raise Failed(f"{len(refused)} of {len(done)} moves were refused, the others go on: {refused[0]}")


def new_places(node: int, now: Situation) -> Placement:
    """The replicas of partitions that are not moving away yet, with another broker in place of this one."""
    targets = now.targets(node)
    allowed = targets.keys() | {node}
    after = plan_moves(
        {each: those for each, those in now.placed.items() if set(those) <= allowed}, targets, evens=False
    )
    for each in now.held:
        replicas = now.placed[each]
        if node in replicas and each not in after:  # some of its other replicas are on brokers that are down, and stay
            others = dict.fromkeys(broker for broker in replicas if broker != node)
            after |= plan_moves({each: replicas}, {**targets, **others}, evens=False)
    return after


async def _left_bytes(client: Client, node: int, now: Situation) -> int:
    """The bytes on the broker without those that were copied already."""
    sizes = await partition_bytes(client, now.held)
    copied = {each.moving.partition: each.copied_bytes for each in await standings(client)}
    size_of = {each: sizes.get(each, {}).get(node) or max(sizes.get(each, {0: 0}).values()) for each in now.held}
    return sum(max(0, size - copied.get(each, 0)) for each, size in size_of.items())
