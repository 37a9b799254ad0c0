"""Differences between two images, which a server acts on when it receives the newer one.

Images with a common history share unchanged parts, so this costs some microseconds plus the size of the difference.
A topic that was deleted and created again under its name is in both lists, with its old and its new id.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from penstock.metadata.image import BROKER, TOPIC, Broker, Image, Partition, Topic
from penstock.metadata.shelves import Resource


@dataclass(frozen=True)
class TopicChange:
    """A changed topic that kept its id."""

    old: Topic
    new: Topic

    @cached_property
    def partitions(self) -> tuple[tuple[int, Partition | None, Partition], ...]:
        """New and changed partitions: number, old, new. Compared once, for all observers."""
        old = self.old.partitions
        return tuple(
            [(index, was, now) for index, now in self.new.partitions.items() if (was := old.get(index)) != now]
        )


@dataclass(frozen=True, slots=True)
class Changes:
    """Differences by kind, each sorted by name or number."""

    topics_created: tuple[Topic, ...]
    topics_deleted: tuple[Topic, ...]
    topics_changed: tuple[TopicChange, ...]
    configs: tuple[Resource, ...]
    """Resources whose settings changed, without deleted topics."""
    brokers: tuple[tuple[int, Broker | None, Broker | None], ...]
    """Number, old, new."""
    features: Mapping[str, int | None]
    """New levels; None for a feature that is no longer finalized."""

    @property
    def topics_with_new_settings(self) -> tuple[str, ...]:
        """Names of topics whose own settings changed."""
        return tuple(resource.name for resource in self.configs if resource.kind == TOPIC)

    @property
    def has_new_broker_settings(self) -> bool:
        """Whether dynamic settings of a broker or of all brokers changed: they are defaults of every topic."""
        return any(resource.kind == BROKER for resource in self.configs)


def changes_between(old: Image, new: Image) -> Changes:
    """Compares two images."""
    created: list[Topic] = []
    deleted: list[Topic] = []
    changed: list[TopicChange] = []
    for _, before, after in sorted(old.topics.differences(new.topics), key=lambda difference: difference[0]):
        if before is not None and after is not None and before.topic_id == after.topic_id:
            changed.append(TopicChange(before, after))
            continue
        if before is not None:
            deleted.append(before)
        if after is not None:
            created.append(after)
    gone = {topic.name: None for topic in deleted if topic.name not in new.topics}
    configs = sorted(
        resource
        for resource, *_ in old.configs.differences(new.configs)
        if not (resource.kind == TOPIC and resource.name in gone)
    )
    return Changes(
        topics_created=tuple(created),
        topics_deleted=tuple(deleted),
        topics_changed=tuple(changed),
        configs=tuple(configs),
        brokers=_brokers(old, new),
        features={
            name: new.features.get(name)
            for name in sorted({**old.features, **new.features})
            if old.features.get(name) != new.features.get(name)
        },
    )


def _brokers(old: Image, new: Image) -> tuple[tuple[int, Broker | None, Broker | None], ...]:
    if old.brokers is new.brokers:
        return ()
    numbers = sorted({**old.brokers, **new.brokers})
    both = ((number, old.brokers.get(number), new.brokers.get(number)) for number in numbers)
    return tuple(entry for entry in both if entry[1] != entry[2])
