"""The image: immutable cluster state at one offset of the metadata log. Applying records yields the next image.

An image shares its unchanged parts with the one before, so keeping old images is cheap. A reader that holds an image
sees a consistent cluster for as long as it likes.
"""

from collections.abc import Mapping
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
"""Types of resources that have settings, numbered as in ConfigRecord."""

MIGRATING_DIRECTORY = bytes(16)
"""Directory of a replica whose broker never reported its directories."""
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
"""Directory of a replica whose broker has not yet chosen one."""
LOST_DIRECTORY = bytes(15) + b"\x02"
"""Directory of a damaged replica; also added to the directories of a broker that cannot write to them now."""


class Partition(NamedTuple):
    """One partition: its replicas, ISR, leader and epochs."""

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
        """Replicas whose brokers have reported an unreadable log."""
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
    """Last epoch in which the broker was not fenced, so that others may have relied on its records."""
    can_write: bool = True
    """Whether the disk accepts records. A full broker leads, and is in the ISR, only where no other replica can."""

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead and be in an ISR at all."""
        return not self.is_fenced and not self.is_shutting_down

    @property
    def is_fit(self) -> bool:
        """Whether the broker may lead and join an ISR without restriction."""
        return self.is_active and self.can_write

    @property
    def told_log_dirs(self) -> tuple[bytes, ...]:
        """Directories as written to records; LOST_DIRECTORY marks a full disk."""
        return self.log_dirs if self.can_write else (*self.log_dirs, LOST_DIRECTORY)

    @property
    def default_directory(self) -> bytes:
        """Directory of a new replica, as far as the controller knows it."""
        if not self.log_dirs:
            return MIGRATING_DIRECTORY
        return self.log_dirs[0] if len(self.log_dirs) == 1 else UNASSIGNED_DIRECTORY


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Entity that a quota applies to: pairs of type (user, client-id, ip) and name, None for the default."""


@dataclass(frozen=True, slots=True)
class Image:
    """The complete cluster state."""

    topics: Shelves[str, Topic] = field(default_factory=Shelves)
    """By name."""
    topic_names: Shelves[bytes, str] = field(default_factory=Shelves)
    """By topic id."""
    unified_names: Shelves[str, tuple[str, ...]] = field(default_factory=Shelves)
    """Names of topics that contain "." or "_", by the name with every "." replaced by "_"."""
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
    """Records of an open metadata transaction (KIP-868); they take effect when it ends."""

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def config(self, kind: int, name: str) -> Mapping[str, str]:
        """The settings of a resource, as they were set."""
        return self.configs.get(Resource(kind, name)) or {}
