"""The cluster at one offset of the metadata log, never changed: records make the next image out of the last one.

What an image does not change it shares with the one before, so keeping old ones costs little, and whoever holds one
reads a consistent cluster for as long as they like.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.metadata.declare import MetadataRecord
from penstock.metadata.records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    DelegationTokenRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)
from penstock.metadata.shelves import Resource, Shelves

NO_LEADER = -1

TOPIC = 2
BROKER = 4
GROUP = 32
"""Types of resources that have settings, as ConfigRecord numbers them."""

MIGRATING_DIRECTORY = bytes(16)
"""Stands for the directory of a replica whose broker never told its directories."""
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
"""Stands for the directory of a replica whose broker has not yet chosen one."""
LOST_DIRECTORY = bytes(15) + b"\x02"
"""Stands among the directories of a broker that cannot write to them now, and for that of a replica that is damaged."""


class Partition(NamedTuple):
    """One partition: where it lies and who leads it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def damaged(self) -> tuple[int, ...]:
        """Replicas whose brokers have reported that their logs cannot be read any more."""
        if LOST_DIRECTORY not in self.directories:
            return ()
        pairs = zip(self.replicas, self.directories, strict=False)
        return tuple(each for each, directory in pairs if directory == LOST_DIRECTORY)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic with its partitions by number, in order."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, Partition]


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    listeners: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...] = ()
    rack: str | None = None
    is_fenced: bool = False
    is_shutting_down: bool = False
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] = ()
    active_epoch: int = -1
    """The last epoch in which it was not fenced, so that others may have counted on its records."""
    can_write: bool = True
    """Whether its disk takes records. One that is full leads and is in sync only where nobody else could."""

    @property
    def is_active(self) -> bool:
        """Whether it may lead and be in sync at all."""
        return not self.is_fenced and not self.is_shutting_down

    @property
    def is_fit(self) -> bool:
        """Whether it may lead and join an ISR as well as any other."""
        return self.is_active and self.can_write

    @property
    def told_log_dirs(self) -> tuple[bytes, ...]:
        """Its directories as records tell them."""
        return self.log_dirs if self.can_write else (*self.log_dirs, LOST_DIRECTORY)

    @property
    def default_directory(self) -> bytes:
        """Where a new replica goes as far as the controller knows."""
        if not self.log_dirs:
            return MIGRATING_DIRECTORY
        return self.log_dirs[0] if len(self.log_dirs) == 1 else UNASSIGNED_DIRECTORY


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whom a quota binds: pairs of type (user, client-id, ip) and name, None for the default."""


@dataclass(frozen=True, slots=True)
class Image:
    """All of it."""

    topics: Shelves[str, Topic] = field(default_factory=Shelves)
    """By name."""
    topic_names: Shelves[bytes, str] = field(default_factory=Shelves)
    """By topic id."""
    unified_names: Shelves[str, tuple[str, ...]] = field(default_factory=Shelves)
    """Names of topics that contain "." or "_", by the name in which all of them are "_"."""
    partition_count: int = 0
    configs: Shelves[Resource, Mapping[str, str]] = field(default_factory=Shelves)
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    controllers: Mapping[int, RegisterControllerRecord] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    acls: Shelves[bytes, AccessControlEntryRecord] = field(default_factory=Shelves)
    scram: Mapping[tuple[str, int], UserScramCredentialRecord] = field(default_factory=dict)
    """By user and mechanism."""
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    tokens: Mapping[str, DelegationTokenRecord] = field(default_factory=dict)
    """By token id."""
    pending: tuple[MetadataRecord, ...] | None = None
    """Records of a metadata transaction that has begun (KIP-868); they count once it ends."""

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def config(self, kind: int, name: str) -> Mapping[str, str]:
        """The settings of a resource, as they were given."""
        return self.configs.get(Resource(kind, name)) or {}

    def apply(self, records: Iterable[MetadataRecord]) -> "Image":
        """The image after these records."""
        from penstock.metadata.draft import Draft  # the draft is made of images

        draft = Draft(self)
        for record in records:
            draft.apply(record)
        return draft.image()
