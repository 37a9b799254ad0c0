"""What differs between two images: what a server has to do when it learns of the newer one.

Images with a common past share what did not change, so this costs some microseconds and the size of the difference.
A topic that was deleted and created again under its name is in both lists, with its old and its new id.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.metadata.image import BROKER, TOPIC, Broker, Image, Partition, Topic
from penstock.metadata.shelves import Resource


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic that is still the same topic."""

    old: Topic
    new: Topic

    @property
    def partitions(self) -> tuple[tuple[int, Partition | None, Partition], ...]:
        """Partitions that are new or other than before: number, old, new."""
        old, new = self.old.partitions, self.new.partitions
        return tuple((index, old.get(index), now) for index, now in new.items() if old.get(index) != now)


@dataclass(frozen=True, slots=True)
class Changes:
    """By kind, each sorted by name or number."""

    topics_created: tuple[Topic, ...]
    topics_deleted: tuple[Topic, ...]
    topics_changed: tuple[TopicChange, ...]
    configs: tuple[Resource, ...]
    """Whose settings are other than before. A deleted topic's are not named."""
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
    """What happened from the one to the other."""
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
