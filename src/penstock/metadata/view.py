"""State that a decision of the controller may read, and the bounds of one command."""

from collections.abc import Generator, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias, TypeVar, cast

from penstock.metadata.image import BROKER, TOPIC, Image
from penstock.metadata.index import PartitionIndex
from penstock.metadata.liveness import Liveness
from penstock.metadata.partition_change import Rules
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.settings.setting import InvalidSetting, Value
from penstock.metadata.settings.topic import TOPIC_SETTINGS
from penstock.model.ports import Entropy

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
Pieces: TypeAlias = Generator[None, None, T]
"""A decision in pieces: yields after each piece of work, and returns the decision."""

RECORDS_PER_COMMAND_MAX: Final = 10_000
"""A command's records are committed together, so they must fit into one batch."""
PARTITIONS_PER_COMMAND_MAX: Final = 10_000
REPLICAS_PER_COMMAND_MAX: Final = 40_000
"""For the new partitions of one topic. They are applied at once, on every node."""
REPLICAS_PER_PIECE: Final = 2_000
"""Replicas, or records, that a decision processes before it yields."""
RECORDS_PER_STEP_MAX: Final = 300
"""For the controller's own work, so that it never delays requests for long."""

TOO_MANY_REPLICAS: Final = (
    f"More than {REPLICAS_PER_COMMAND_MAX} replicas of one topic in one request. Use fewer partitions, and add "
    "the others with further requests (CreatePartitions)."
)
TOO_MANY_RECORDS: Final = "Unable to perform excessively large batch operation."

ELR_FEATURE: Final = "eligible.leader.replicas.version"
DECOMMISSION: Final = "broker.decommission"


@dataclass(frozen=True, slots=True)
class View:
    """State that a decision may read."""

    image: Image
    settings: BrokerSettings
    entropy: Entropy


class TopicRules:
    """Rules that topics set for their partitions, by topic name; each is computed once."""

    def __init__(self, image: Image, settings: BrokerSettings) -> None:
        self._image = image
        self._settings = settings
        self._has_eligible = image.features.get(ELR_FEATURE, 0) >= 1
        self._found: dict[str, Rules] = {}

    def are_of(self, image: Image, settings: BrokerSettings) -> bool:
        """Whether the rules also hold for this image and these settings."""
        same = self._image.configs is image.configs and self._image.features is image.features
        return same and self._settings is settings

    def __call__(self, topic: str) -> Rules:
        """The rules of a topic."""
        found = self._found.get(topic)
        if found is None:
            configs = self._image.config(TOPIC, topic)
            in_sync_min = self._value("min.insync.replicas", configs)
            assert isinstance(in_sync_min, int)
            is_unclean = self._value("unclean.leader.election.enable", configs) is True
            found = self._found[topic] = Rules(in_sync_min, self._has_eligible, is_unclean)
        return found

    def _value(self, name: str, configs: Mapping[str, str]) -> Value:
        if name in configs:
            try:
                return TOPIC_SETTINGS[name].parse(configs[name])
            except InvalidSetting:
                pass  # written by a newer version; the default is safe
        return self._settings.topic_defaults[name][0]


@dataclass(frozen=True)
class Cluster:
    """State that a decision on brokers and their partitions may read."""

    image: Image
    settings: BrokerSettings
    entropy: Entropy
    index: PartitionIndex
    liveness: Liveness
    rules: TopicRules

    @property
    def session_timeout_ms(self) -> int:
        """Time without a heartbeat after which a broker is fenced."""
        return self.settings.number("broker.session.timeout.ms")

    def is_draining(self, broker_id: int) -> bool:
        """Whether the broker is being decommissioned."""
        return is_draining(self.image, broker_id)

    @cached_property
    def active(self) -> frozenset[int]:
        """Brokers that may lead and be in an ISR; those whose session has expired count as fenced."""
        silent = self.liveness.expired(self.image, self.session_timeout_ms)
        return self.index.active.difference(silent) if silent else self.index.active

    @property
    def unfit(self) -> frozenset[int]:
        """Active brokers that cannot write now: they lead, and are in an ISR, only where no other replica can."""
        return self.index.unfit


def is_draining(image: Image, broker_id: int) -> bool:
    """Whether the broker is being decommissioned."""
    return image.config(BROKER, str(broker_id)).get(DECOMMISSION) == "true"


def is_leaving(image: Image, broker_id: int) -> bool:
    """Whether the broker should have no replicas: it is being decommissioned, or all its directories are cordoned."""
    broker = image.brokers[broker_id]
    is_cordoned = bool(broker.log_dirs) and frozenset(broker.log_dirs) <= frozenset(broker.cordoned_log_dirs)
    return is_cordoned or is_draining(image, broker_id)


def repeated(names: Iterable[K]) -> dict[K, int]:
    """Number of occurrences of each name, in order of first appearance."""
    counts: dict[K, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def finished(pieces: Pieces[T]) -> T:
    """Runs all pieces and returns the decision."""
    while True:
        try:
            next(pieces)
        except StopIteration as stop:
            return cast("T", stop.value)
