"""Index of partitions for the controller: by broker, by leader, and by pending work.

Derived from images only: `follow` compares its image with the next one at the cost of the difference, so the failure of
one broker among a million partitions costs that broker's share. A partition is identified by one number, made of its
topic's number and its own. Pending work is kept in dicts in the order in which it came up, so that a bounded piece is
taken from the front without a scan of the rest.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from penstock.metadata.image import BROKER, NO_LEADER, TOPIC, Image, Partition, Topic
from penstock.metadata.partition_change import Rules, is_sound, settle

Key: TypeAlias = int
_BITS: Final = 32
_MASK: Final = (1 << _BITS) - 1

RulesOf: TypeAlias = Callable[[str], Rules]


class PartitionEntry(NamedTuple):
    """A partition with its topic and number."""

    topic: Topic
    number: int
    partition: Partition


class PartitionIndex:
    """The index of the last image that it followed."""

    def __init__(self) -> None:
        self.image = Image()
        self.active: frozenset[int] = frozenset()
        """Brokers that may lead and be in an ISR."""
        self.unfit: frozenset[int] = frozenset()
        """Active brokers that cannot write now."""
        self.led: dict[int, int] = {}
        """Number of partitions that each broker leads."""
        self.preferred: dict[int, int] = {}
        """Number of partitions of which each broker is the first replica."""
        self.held: dict[int, int] = {}
        """Number of replicas that each broker has and keeps, including those being added."""
        self.arriving: dict[int, int] = {}
        """Number of replicas being added to each broker."""
        self._by_broker: dict[int, set[Key]] = {}
        self._leaderless: dict[Key, None] = {}
        self._astray: dict[Key, None] = {}
        self._returnable: dict[Key, None] = {}
        self._moving: dict[Key, None] = {}
        self._troubled: dict[Key, None] = {}
        self._numbers: dict[bytes, int] = {}
        self._names: dict[int, str] = {}
        self._next_number = 0

    # --- queries --------------------------------------------------------------------------------------------------

    def of_broker(self, broker_id: int) -> Iterator[PartitionEntry]:
        """Every partition with a replica on the broker."""
        return self._entries(self._by_broker.get(broker_id, ()))

    def replicas_on(self, broker_id: int) -> int:
        """Number of replicas on the broker, including those being removed."""
        return len(self._by_broker.get(broker_id, ()))

    @property
    def leaderless(self) -> Iterator[PartitionEntry]:
        """Partitions without a leader: offline."""
        return self._entries(self._leaderless)

    @property
    def leaderless_count(self) -> int:
        """Number of offline partitions."""
        return len(self._leaderless)

    @property
    def astray(self) -> Iterator[PartitionEntry]:
        """Partitions led by a replica other than their first one."""
        return self._entries(self._astray)

    def returnable(self, count: int) -> Iterator[PartitionEntry]:
        """Up to `count` of the `astray` partitions whose first replica is in sync."""
        return self._entries(islice(self._returnable, count))

    @property
    def moving(self) -> Iterator[PartitionEntry]:
        """Partitions that are being moved."""
        return self._entries(self._moving)

    @property
    def moving_count(self) -> int:
        """Number of partitions that are being moved."""
        return len(self._moving)

    def troubled(self, count: int | None = None) -> Iterator[PartitionEntry]:
        """Partitions that must change because of brokers: an inactive one is in the ISR, or one could lead."""
        return self._entries(islice(self._troubled, count))

    @property
    def has_trouble(self) -> bool:
        """Whether there are troubled partitions."""
        return bool(self._troubled)

    def _entries(self, keys: Iterable[Key]) -> Iterator[PartitionEntry]:
        """The partitions sorted by topic name and number, independent of the topic numbers of this index."""
        topics: dict[int, list[Key]] = {}
        for key in keys:
            topics.setdefault(key >> _BITS, []).append(key)
        for name, of_topic in sorted(((self._names[n], keys) for n, keys in topics.items()), key=itemgetter(0)):
            topic = self.image.topics[name]
            for key in sorted(of_topic):
                yield PartitionEntry(topic, key & _MASK, topic.partitions[key & _MASK])

    # --- updates --------------------------------------------------------------------------------------------------

    def follow(self, image: Image, rules_of: RulesOf) -> None:
        """Updates the index to the next image, or to any other."""
        old, self.image = self.image, image
        if old is image:
            return
        was_active, was_unfit = self.active, self.unfit
        if old.brokers is not image.brokers:
            self.active = frozenset(number for number, broker in image.brokers.items() if broker.is_active)
            self.unfit = frozenset(number for number in self.active if not image.brokers[number].can_write)
        for _, before, after in old.topics.differences(image.topics):
            if before is not None and (after is None or after.topic_id != before.topic_id):
                self._forget_topic(before)
                before = None  # noqa: PLW2901
            if after is not None:
                self._follow_topic(before, after, rules_of)
        self._recheck(sorted((was_active ^ self.active) | (was_unfit ^ self.unfit)), rules_of)
        self._follow_rules(old, image, rules_of)

    def _follow_topic(self, before: Topic | None, after: Topic, rules_of: RulesOf) -> None:
        base = self._number(after) << _BITS
        if before is None:
            for number, partition in after.partitions.items():
                self._add(base | number, partition)
                if not is_sound(partition, self.active, self.unfit):
                    self._check(base | number, partition, rules_of(after.name))
            return
        old = before.partitions
        changed = [(n, p) for n, p in after.partitions.items() if old.get(n) is not p]
        for number, partition in changed:
            was = old.get(number)
            if was is not None:
                self._remove(base | number, was)
            self._add(base | number, partition)
            self._check(base | number, partition, rules_of(after.name))

    def _forget_topic(self, topic: Topic) -> None:
        base = self._number(topic) << _BITS
        for number, partition in topic.partitions.items():
            self._remove(base | number, partition)
            self._troubled.pop(base | number, None)
        del self._names[self._numbers.pop(topic.topic_id)]

    def _number(self, topic: Topic) -> int:
        number = self._numbers.get(topic.topic_id)
        if number is None:
            number = self._numbers[topic.topic_id] = self._next_number
            self._names[number] = topic.name
            self._next_number += 1
        return number

    def _add(self, key: Key, partition: Partition) -> None:
        by_broker, held = self._by_broker, self.held
        for each in partition.replicas:
            if each in by_broker:
                by_broker[each].add(key)
                held[each] += 1
            else:
                by_broker[each] = {key}
                held[each] = 1
        leader, first = partition.leader, partition.replicas[0]
        self.preferred[first] = self.preferred.get(first, 0) + 1
        if leader == NO_LEADER:
            self._leaderless[key] = None
        else:
            self.led[leader] = self.led.get(leader, 0) + 1
            if leader != first:
                self._astray[key] = None
                if first in partition.isr:
                    self._returnable[key] = None
        if partition.adding_replicas or partition.removing_replicas:
            self._moving[key] = None
            for each in partition.removing_replicas:
                held[each] -= 1
            for each in partition.adding_replicas:
                self.arriving[each] = self.arriving.get(each, 0) + 1

    def _remove(self, key: Key, partition: Partition) -> None:
        for each in partition.replicas:
            self._by_broker[each].discard(key)
            self.held[each] -= 1
        self.preferred[partition.replicas[0]] -= 1
        if partition.leader == NO_LEADER:
            self._leaderless.pop(key, None)
        else:
            self.led[partition.leader] -= 1
            self._astray.pop(key, None)
            self._returnable.pop(key, None)
        if partition.adding_replicas or partition.removing_replicas:
            self._moving.pop(key, None)
            for each in partition.removing_replicas:
                self.held[each] += 1
            for each in partition.adding_replicas:
                self.arriving[each] -= 1

    # --- trouble --------------------------------------------------------------------------------------------------

    def _check(self, key: Key, partition: Partition, rules: Rules) -> None:
        if (
            not is_sound(partition, self.active, self.unfit)
            and settle(partition, partition, self.active, rules, unfit=self.unfit) != partition
        ):
            self._troubled[key] = None
        else:
            self._troubled.pop(key, None)

    def _recheck(self, broker_ids: Iterable[int], rules_of: RulesOf) -> None:
        """Checks the partitions of brokers that became active, inactive, fit or unfit."""
        for broker_id in broker_ids:
            for topic, number, partition in self.of_broker(broker_id):
                key = self._numbers[topic.topic_id] << _BITS | number
                if key in self._troubled or not is_sound(partition, self.active, self.unfit):
                    self._check(key, partition, rules_of(topic.name))

    def _follow_rules(self, old: Image, new: Image, rules_of: RulesOf) -> None:
        """Checks partitions after a change of settings; only leaderless and troubled partitions can be affected."""
        if old.configs is new.configs and old.features is new.features:
            return
        names = {resource.name for resource, *_ in old.configs.differences(new.configs) if resource.kind == TOPIC}
        is_for_all = old.features != new.features or old.config(BROKER, "") != new.config(BROKER, "")
        for topic, number, partition in list(self._entries({**self._leaderless, **self._troubled})):
            if is_for_all or topic.name in names:
                self._check(self._numbers[topic.topic_id] << _BITS | number, partition, rules_of(topic.name))
