"""The topics of the cluster as groups need them: names, ids, partitions, and the racks of their replicas."""

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from penstock.metadata.image import Image


class Topic(NamedTuple):
    """One topic; `racks` has the sorted racks of each partition's replicas, or is empty if brokers have none."""

    name: str
    topic_id: bytes
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()


class Topics:
    """All topics at one time. A later instance must have a higher version."""

    def __init__(self, topics: Mapping[str, Topic], version: int) -> None:
        self.by_name = dict(topics)
        self.by_id = {topic.topic_id: topic for topic in topics.values()}
        self.version = version

    @cached_property
    def names_hash(self) -> int:
        """Hash of the topic names, equal on all nodes; versions are local to a node."""
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(self.by_name):
            digest.update(name.encode() + b"\0")
        return int.from_bytes(digest.digest(), signed=True)


NO_TOPICS = Topics({}, -1)


def topics_of(image: Image, version: int) -> Topics:
    """The topics of an image."""
    racks = {number: broker.rack for number, broker in image.brokers.items() if broker.rack}
    found: dict[str, Topic] = {}
    for name, topic in image.topics.items():
        places = (
            tuple(
                tuple(sorted({racks[number] for number in partition.replicas if number in racks}))
                for _, partition in sorted(topic.partitions.items())
            )
            if racks
            else ()
        )
        found[name] = Topic(name, topic.topic_id, len(topic.partitions), places)
    return Topics(found, version)
