"""Reports of a controller to operators: its own role, and committed changes of the cluster.

Only the active controller reports on the cluster, so that each change is reported by one node.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from penstock.metadata.changes import Changes
from penstock.metadata.image import BROKER, GROUP, NO_LEADER, TOPIC, Broker, Image, Partition, Topic
from penstock.metadata.names import INTERNAL_TOPICS
from penstock.metadata.settings.broker import BROKER_SETTINGS
from penstock.metadata.settings.effects import listed, without_effect
from penstock.metadata.settings.group import GROUP_SETTINGS
from penstock.metadata.settings.topic import TOPIC_SETTINGS
from penstock.metadata.shelves import Resource
from penstock.model.report import NAMED_MAX, Kind, Level, Report

T = TypeVar("T")

CONTROLLER_ACTIVE: Final = Kind(
    "controller-active",
    "Is the active controller, in epoch {epoch}; the metadata log is applied up to offset {position}.",
    "From now on this node decides for the cluster.",
)
CONTROLLER_INACTIVE: Final = Kind(
    "controller-inactive",
    "Is the active controller of epoch {epoch} no longer; {waiting} requests that waited are refused.",
    "Another node decides, or soon will. Clients ask again by themselves.",
)
BROKER_REGISTERED: Final = Kind(
    "broker-registered",
    "Broker {broker} is registered in epoch {epoch}; it is fenced until it has caught up with the metadata log.",
    "A broker has started.",
)
BROKER_UNFENCED: Final = Kind(
    "broker-unfenced", "Broker {broker} takes part from now on, in epoch {epoch}.", "It may lead and be in sync."
)
BROKER_FENCED: Final = Kind(
    "broker-fenced",
    "Broker {broker} is fenced, in epoch {epoch}: {why}.",
    "It leads nothing and is in sync nowhere until it is heard again. If it was not stopped on purpose, see "
    "[a broker is down](broker-down.md).",
)
BROKER_GONE: Final = Kind(
    "broker-gone",
    "Nobody listens where broker {broker} was, in epoch {epoch}.",
    "Its process has ended; it is fenced at once.",
)
BROKER_STOPPING: Final = Kind(
    "broker-stopping",
    "Broker {broker} stops, in epoch {epoch}, and hands over what it leads.",
    "A broker was stopped on purpose.",
)
BROKER_UNREGISTERED: Final = Kind(
    "broker-unregistered", "Broker {broker} is registered no longer.", "An operator has removed it."
)
BROKER_FULL: Final = Kind(
    "broker-full",
    "The disk of broker {broker} takes no more records; others lead instead of it where they can.",
    "Make room: see [a disk is full](disk-full.md).",
    Level.WARNING,
)
BROKER_WRITABLE: Final = Kind(
    "broker-writable", "The disk of broker {broker} takes records again.", "Nothing is left to be done."
)
TOPICS_CREATED: Final = Kind("topics-created", "Topics created: {named}.", "Somebody has created topics.")
TOPICS_DELETED: Final = Kind("topics-deleted", "Topics deleted: {named}.", "Somebody has deleted topics.")
LEADERS_CHANGED: Final = Kind(
    "leaders-changed",
    "Partitions with another leader: {named}.",
    "After a broker was lost, stopped or came back. Clients follow by themselves.",
)
LEADERS_MISSING: Final = Kind(
    "leaders-missing",
    "Partitions without a leader: {named}.",
    "None of the replicas that have all committed records is up. Start the brokers that have them: see "
    "[a broker is down](broker-down.md).",
    Level.WARNING,
)
ISR_CHANGED: Final = Kind(
    "isr-changed",
    "Partitions with other replicas in sync: {named}.",
    "A replica that is missing is down or slow: see [a follower lags](follower-lags.md).",
)
PARTITIONS_MOVED: Final = Kind(
    "partitions-moved", "Partitions whose replicas move or have moved: {named}.", "A reassignment, or balancing."
)
SETTINGS_CHANGED: Final = Kind(
    "settings-changed",
    "Settings of {resource} changed: {names}.",
    "Somebody has altered settings; values are not logged, as some are secrets.",
)
SETTINGS_WITHOUT_EFFECT: Final = Kind(
    "settings-without-effect",
    "Settings of {resource} have no effect in this version, or not all of it: {named}.",
    "They were accepted, and the sentence says what is true instead: see [settings](../configuration.md). At its start "
    "a node logs it for its own settings (logger `penstock.settings`).",
    Level.WARNING,
    of_each="resource",
    alike=("named",),
)
FEATURES_CHANGED: Final = Kind(
    "features-changed", "Feature levels changed: {named}.", "Somebody has upgraded or downgraded features."
)

KINDS: Final = (
    CONTROLLER_ACTIVE,
    CONTROLLER_INACTIVE,
    BROKER_REGISTERED,
    BROKER_UNFENCED,
    BROKER_FENCED,
    BROKER_GONE,
    BROKER_STOPPING,
    BROKER_UNREGISTERED,
    BROKER_FULL,
    BROKER_WRITABLE,
    TOPICS_CREATED,
    TOPICS_DELETED,
    LEADERS_CHANGED,
    LEADERS_MISSING,
    ISR_CHANGED,
    PARTITIONS_MOVED,
    SETTINGS_CHANGED,
    SETTINGS_WITHOUT_EFFECT,
    FEATURES_CHANGED,
)


def reports_of(changes: Changes, old: Image, new: Image) -> Iterator[Report]:
    """Reports the changes in a few lines, whatever the number of partitions."""
    for _, before, after in changes.brokers:
        yield from _of_broker(before, after)
    yield from _many(TOPICS_CREATED, changes.topics_created, _shown_topic)
    yield from _many(TOPICS_DELETED, changes.topics_deleted, lambda topic: topic.name)
    changed = [
        (f"{change.new.name}-{index}", before, after)
        for change in changes.topics_changed
        for index, before, after in change.partitions
        if before is not None
    ]
    led = [each for each in changed if each[1].leader != each[2].leader]
    yield from _many(LEADERS_CHANGED, [each for each in led if each[2].leader != NO_LEADER], _shown_leader)
    yield from _many(LEADERS_MISSING, [each for each in led if each[2].leader == NO_LEADER], lambda each: each[0])
    yield from _many(ISR_CHANGED, [each for each in changed if set(each[1].isr) != set(each[2].isr)], _shown_isr)
    moved = [each for each in changed if each[1].replicas != each[2].replicas]
    yield from _many(PARTITIONS_MOVED, moved, _shown_move)
    for resource in changes.configs:
        names = _names_changed(resource, old, new)
        if names:
            yield SETTINGS_CHANGED(resource=_shown_resource(resource), names=", ".join(names))
            yield from _without_effect(resource, names, new)
    if changes.features:
        named = ", ".join(f"{name} {'off' if level is None else level}" for name, level in changes.features.items())
        yield FEATURES_CHANGED(named=named)


def _without_effect(resource: Resource, names: list[str], new: Image) -> Iterator[Report]:
    """Reports changed settings without effect; internal topics are created with settings that nobody has asked for."""
    if resource.kind == TOPIC and resource.name in INTERNAL_TOPICS:
        return
    known = {TOPIC: TOPIC_SETTINGS, BROKER: BROKER_SETTINGS, GROUP: GROUP_SETTINGS}.get(resource.kind, {})
    after = new.config(*resource)
    gaps = without_effect({name: after[name] for name in names if name in after}, known)
    if gaps:
        yield SETTINGS_WITHOUT_EFFECT(resource=_shown_resource(resource), named=listed(gaps), count=len(gaps))


def _of_broker(before: Broker | None, after: Broker | None) -> Iterator[Report]:
    if after is None:
        assert before is not None
        yield BROKER_UNREGISTERED(broker=before.broker_id)
        return
    broker, epoch = after.broker_id, after.epoch
    if before is None or before.epoch != epoch:
        yield BROKER_REGISTERED(broker=broker, epoch=epoch)
    was_fenced = before is None or before.is_fenced or before.epoch != epoch
    if was_fenced and not after.is_fenced:
        yield BROKER_UNFENCED(broker=broker, epoch=epoch)
    elif before is not None and not before.is_fenced and before.epoch == epoch and after.is_fenced:
        why = "it has stopped" if before.is_shutting_down else "it was not heard, or nobody was found where it was"
        yield BROKER_FENCED(broker=broker, epoch=epoch, why=why)
    if after.is_shutting_down and not (before is not None and before.is_shutting_down):
        yield BROKER_STOPPING(broker=broker, epoch=epoch)
    if before is not None and before.can_write != after.can_write:
        yield (BROKER_WRITABLE if after.can_write else BROKER_FULL)(broker=broker)


def _many(kind: Kind, found: Iterable[T], show: Callable[[T], str]) -> Iterator[Report]:
    items = list(found)
    if items:
        more = len(items) - NAMED_MAX
        named = "; ".join(map(show, items[:NAMED_MAX])) + (f"; and {more} more" if more > 0 else "")
        yield kind(named=named, count=len(items))


def _shown_topic(topic: Topic) -> str:
    copies = len(next(iter(topic.partitions.values())).replicas) if topic.partitions else 0
    return f"{topic.name} ({len(topic.partitions)} partitions, {copies} replicas each)"


def _shown_leader(changed: tuple[str, Partition, Partition]) -> str:
    name, before, after = changed
    was = "nobody" if before.leader == NO_LEADER else f"broker {before.leader}"
    return f"{name}: broker {after.leader} in epoch {after.leader_epoch}, before {was}"


def _shown_isr(changed: tuple[str, Partition, Partition]) -> str:
    name, before, after = changed
    return f"{name}: {_listed(after.isr)}, before {_listed(before.isr)}"


def _shown_move(changed: tuple[str, Partition, Partition]) -> str:
    name, before, after = changed
    return f"{name}: on {_listed(after.replicas)}, before {_listed(before.replicas)}"


def _listed(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, sorted(brokers))) or "nobody"


def _shown_resource(resource: Resource) -> str:
    if resource.kind == TOPIC:
        return f"topic {resource.name}"
    if resource.kind == BROKER:
        return f"broker {resource.name}" if resource.name else "all brokers"
    return resource.name


def _names_changed(resource: Resource, old: Image, new: Image) -> list[str]:
    before, after = old.config(*resource), new.config(*resource)
    return sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
