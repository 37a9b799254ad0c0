"""Partitions by what the controller asks about them: whose they are, who leads them, what is to be done about them.

Derived from images and nothing else: `follow` compares the image that it has seen with the next one, which costs the
size of the difference, so that the failure of one broker among a million partitions costs that broker's share. A
partition is one number here, its topic's and its own. What is to be done is kept in dicts, in the order in which it
came up: whoever does a bounded piece of it takes the first, and need not look at the rest.
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


class Placed(NamedTuple):
    """A partition with where to find it."""

    topic: Topic
    number: int
    partition: Partition


class PartitionIndex:
    """The index of the last image that it followed."""

    def __init__(self) -> None:
        self.image = Image()
        self.active: frozenset[int] = frozenset()
        """Brokers that may lead and be in sync."""
        self.unfit: frozenset[int] = frozenset()
        """Those of them that cannot write now."""
        self.led: dict[int, int] = {}
        """How many partitions a broker leads."""
        self.preferred: dict[int, int] = {}
        """Of how many partitions it is the first replica."""
        self.held: dict[int, int] = {}
        """How many replicas it has and keeps, those that are on their way to it among them."""
        self.arriving: dict[int, int] = {}
        """How many replicas are on their way to it."""
        self._by_broker: dict[int, set[Key]] = {}
        self._leaderless: dict[Key, None] = {}
        self._astray: dict[Key, None] = {}
        self._returnable: dict[Key, None] = {}
        self._moving: dict[Key, None] = {}
        self._troubled: dict[Key, None] = {}
        self._numbers: dict[bytes, int] = {}
        self._names: dict[int, str] = {}
        self._next_number = 0

    # --- asking ---------------------------------------------------------------------------------------------------

    def of_broker(self, broker_id: int) -> Iterator[Placed]:
        """Every partition with a replica there."""
        return self._placed(self._by_broker.get(broker_id, ()))

    def replicas_on(self, broker_id: int) -> int:
        """How many replicas lie there, those that are to go among them."""
        return len(self._by_broker.get(broker_id, ()))

    @property
    def leaderless(self) -> Iterator[Placed]:
        """Partitions that nobody leads: offline."""
        return self._placed(self._leaderless)

    @property
    def leaderless_count(self) -> int:
        """How many partitions are offline."""
        return len(self._leaderless)

    @property
    def astray(self) -> Iterator[Placed]:
        """Partitions that somebody other than their first replica leads."""
        return self._placed(self._astray)

    def returnable(self, count: int) -> Iterator[Placed]:
        """The first so many of these whose first replica is in sync."""
        return self._placed(islice(self._returnable, count))

    @property
    def moving(self) -> Iterator[Placed]:
        """Partitions that are being moved."""
        return self._placed(self._moving)

    @property
    def moving_count(self) -> int:
        """How many partitions are being moved."""
        return len(self._moving)

    def troubled(self, count: int | None = None) -> Iterator[Placed]:
        """Partitions that must change because of brokers: somebody inactive is in sync, or somebody could lead."""
        return self._placed(islice(self._troubled, count))

    @property
    def has_trouble(self) -> bool:
        """Whether there are any of these."""
        return bool(self._troubled)

    def _placed(self, keys: Iterable[Key]) -> Iterator[Placed]:
        """Sorted by topic name and number, whatever numbers topics were given here."""
        topics: dict[int, list[Key]] = {}
        for key in keys:
            topics.setdefault(key >> _BITS, []).append(key)
        for name, of_topic in sorted(((self._names[n], keys) for n, keys in topics.items()), key=itemgetter(0)):
            topic = self.image.topics[name]
            for key in sorted(of_topic):
                yield Placed(topic, key & _MASK, topic.partitions[key & _MASK])

    # --- following ------------------------------------------------------------------------------------------------

    def follow(self, image: Image, rules_of: RulesOf) -> None:
        """Takes the next image in, or any other."""
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
        """Brokers have become active, or stopped being so."""
        for broker_id in broker_ids:
            for topic, number, partition in self.of_broker(broker_id):
                key = self._numbers[topic.topic_id] << _BITS | number
                if key in self._troubled or not is_sound(partition, self.active, self.unfit):
                    self._check(key, partition, rules_of(topic.name))

    def _follow_rules(self, old: Image, new: Image, rules_of: RulesOf) -> None:
        """Settings may allow what they did not: only partitions that nobody leads, or that are troubled, can tell."""
        if old.configs is new.configs and old.features is new.features:
            return
        names = {resource.name for resource, *_ in old.configs.differences(new.configs) if resource.kind == TOPIC}
        is_for_all = old.features != new.features or old.config(BROKER, "") != new.config(BROKER, "")
        for topic, number, partition in list(self._placed({**self._leaderless, **self._troubled})):
            if is_for_all or topic.name in names:
                self._check(self._numbers[topic.topic_id] << _BITS | number, partition, rules_of(topic.name))
