"""Applies records to an image: the next image while it is under construction.

Changes are collected and reads see them; `image()` then copies each touched shelf once, however many records touched
it. A record that does not fit (a partition of no topic, a broker that is not registered) raises InconsistentRecord: the
log does not belong to this image, and continuing would spread the damage.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.metadata import records as r
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import LOST_DIRECTORY, TOPIC, Broker, Image, Partition, Topic
from penstock.metadata.shelves import Resource
from penstock.model.epochs import next_epoch


class InconsistentRecord(Exception):
    """A record of the metadata log that contradicts the state before it."""


def unified(name: str) -> str:
    """The form in which names that differ only in "." and "_" are equal."""
    return name.replace(".", "_")


def _directories(told: Sequence[bytes]) -> tuple[bytes, ...]:
    return tuple(each for each in told if each != LOST_DIRECTORY)


class Draft:
    """An image under construction."""

    def __init__(self, image: Image) -> None:
        self._base = image
        self._names: dict[bytes, str | None] = {}
        self._partitions: dict[bytes, dict[int, Partition]] = {}
        self._unordered: dict[bytes, None] = {}
        """Topics to which partitions were added out of order."""
        self._directories: dict[bytes, bytes] | None = None
        self._directory_lists: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
        self._configs: dict[Resource, dict[str, str] | None] = {}
        self._acls: dict[bytes, r.AccessControlEntryRecord | None] = {}
        self._maps: dict[str, dict[Any, Any]] = {}
        self._next_producer_id = image.next_producer_id
        self._pending = None if image.pending is None else list(image.pending)

    def apply(self, *records: MetadataRecord) -> None:
        """Applies records; inside a metadata transaction, holds them until it ends."""
        for record in records:
            if self._pending is None or isinstance(record, r.EndTransactionRecord | r.AbortTransactionRecord):
                APPLY[type(record)](self, record)
            else:
                self._pending.append(record)

    def image(self) -> Image:
        """The image after the applied records. The draft becomes part of it and must not be used any more."""
        base = self._base
        topics: dict[str, Topic | None] = {}
        unified_names: dict[str, tuple[str, ...] | None] = {}
        count = base.partition_count
        for topic_id, name in self._names.items():
            old_name = base.topic_names.get(topic_id)
            if old_name is not None and name is None:  # deletions first: a new topic may have taken the name
                topics[old_name] = None
                count -= len(base.topics[old_name].partitions)
                self._unify(unified_names, old_name, is_there=False)
        for topic_id, partitions in self._partitions.items():
            if topic_id in self._unordered:
                partitions = dict(sorted(partitions.items()))  # noqa: PLW2901
            name = self._name_of(topic_id)
            topics[name] = Topic(name, topic_id, partitions)
            count += len(partitions)
            if topic_id in self._names:
                self._unify(unified_names, name, is_there=True)
            else:
                count -= len(base.topics[name].partitions)
        return replace(
            base,
            topics=base.topics.changed(topics),
            topic_names=base.topic_names.changed(self._names),
            unified_names=base.unified_names.changed(unified_names),
            partition_count=count,
            configs=base.configs.changed({key: values or None for key, values in self._configs.items()}),
            acls=base.acls.changed(self._acls),
            next_producer_id=self._next_producer_id,
            pending=None if self._pending is None else tuple(self._pending),
            **self._maps,
        )

    # --- state under change -------------------------------------------------------------------------------------------

    def _unify(self, changes: dict[str, tuple[str, ...] | None], name: str, *, is_there: bool) -> None:
        key = unified(name)
        if "_" in key:
            now = changes[key] if key in changes else self._base.unified_names.get(key)
            others = tuple(other for other in now or () if other != name)
            changes[key] = ((*others, name) if is_there else others) or None

    def _name_of(self, topic_id: bytes) -> str:
        name = self._names[topic_id] if topic_id in self._names else self._base.topic_names.get(topic_id)
        if name is None:
            raise InconsistentRecord(f"there is no topic with id {topic_id.hex()}")
        return name

    def _partitions_of(self, topic_id: bytes) -> dict[int, Partition]:
        found = self._partitions.get(topic_id)
        if found is None:
            found = self._partitions[topic_id] = dict(self._base.topics[self._name_of(topic_id)].partitions)
        return found

    def _map(self, name: str) -> dict[Any, Any]:
        """One of the small maps, copied on first use."""
        if name not in self._maps:
            self._maps[name] = dict(getattr(self._base, name))
        return self._maps[name]

    def _broker(self, broker_id: int, epoch: int) -> Broker:
        found = self._map("brokers").get(broker_id)
        if not isinstance(found, Broker) or found.epoch != epoch:
            raise InconsistentRecord(f"there is no registration of broker {broker_id} with epoch {epoch}")
        return found

    # --- topics and partitions ----------------------------------------------------------------------------------------

    def _topic(self, record: r.TopicRecord) -> None:
        if record.topic_id in self._names or record.topic_id in self._base.topic_names:
            raise InconsistentRecord(f"topic id {record.topic_id.hex()} is taken")
        self._names[record.topic_id] = record.name
        self._partitions[record.topic_id] = {}

    def _remove_topic(self, record: r.RemoveTopicRecord) -> None:
        self._configs[Resource(TOPIC, self._name_of(record.topic_id))] = None
        self._names[record.topic_id] = None
        self._partitions.pop(record.topic_id, None)

    def _partition(self, record: r.PartitionRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        number = record.partition_id
        if partitions and number not in partitions and number < next(reversed(partitions)):
            self._unordered[record.topic_id] = None
        # Ten thousand of them are applied at once, so unnecessary calls are avoided.
        replicas, isr = tuple(record.replicas), tuple(record.isr)
        partitions[number] = Partition(
            replicas,
            replicas if isr == replicas else isr,  # a million partitions: equal tuples are kept once
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            self._known_directories(tuple(record.directories)),
            tuple(record.removing_replicas) if record.removing_replicas else (),
            tuple(record.adding_replicas) if record.adding_replicas else (),
            record.leader_recovery_state,
            tuple(record.eligible_leader_replicas) if record.eligible_leader_replicas else (),
            tuple(record.last_known_elr) if record.last_known_elr else (),
        )

    def _known_directories(self, ids: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """The ids as the objects of the registrations, so that each id is kept once and not with every replica."""
        found = self._directory_lists.get(ids)
        if found is None:
            if self._directories is None:
                brokers = self._maps.get("brokers", self._base.brokers).values()
                self._directories = {directory: directory for broker in brokers for directory in broker.log_dirs}
            known = self._directories
            found = self._directory_lists[ids] = tuple([known.get(each, each) for each in ids])
        return found

    def _change_partition(self, record: r.PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        old = partitions.get(record.partition_id)
        if old is None:
            raise InconsistentRecord(f"{self._name_of(record.topic_id)} has no partition {record.partition_id}")
        given: dict[str, Any] = {
            name: tuple(value) for name in _MAY_CHANGE if (value := getattr(record, name)) is not None
        }
        if "directories" in given:
            given["directories"] = self._known_directories(given["directories"])
        if record.leader != _SAME_LEADER:
            given |= {"leader": record.leader, "leader_epoch": next_epoch(old.leader_epoch, "the partition")}
        if record.leader_recovery_state != _SAME_STATE:
            given["leader_recovery_state"] = record.leader_recovery_state
        partition_epoch = next_epoch(old.partition_epoch, "the partition")
        partitions[record.partition_id] = old._replace(partition_epoch=partition_epoch, **given)

    def _clear_elr(self, record: r.ClearElrRecord) -> None:
        drafted = {name: topic_id for topic_id, name in self._names.items() if name is not None}
        names = [record.topic_name] if record.topic_name else [*sorted(self._base.topics), *drafted]
        for name in names:
            topic = self._base.topics.get(name)
            topic_id = drafted.get(name) or (None if topic is None else topic.topic_id)
            if topic_id is None or self._names.get(topic_id, name) is None:
                continue  # deleted meanwhile
            now = self._partitions[topic_id] if topic_id in self._partitions else self._base.topics[name].partitions
            # With an empty ISR nothing has been committed since: eligible replicas stay eligible, unlike in Kafka.
            listed = [n for n, p in now.items() if p.isr and (p.eligible_leader_replicas or p.last_known_elr)]
            for index in listed:
                partitions = self._partitions_of(topic_id)
                partitions[index] = partitions[index]._replace(eligible_leader_replicas=(), last_known_elr=())

    # --- brokers and controllers --------------------------------------------------------------------------------------

    def _register_broker(self, record: r.RegisterBrokerRecord) -> None:
        self._directories = None
        self._directory_lists.clear()
        before = self._map("brokers").get(record.broker_id)
        was_active = before.active_epoch if record.fenced and isinstance(before, Broker) else record.broker_epoch
        self._map("brokers")[record.broker_id] = Broker(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            listeners=tuple(record.end_points),
            features=tuple(record.features),
            rack=record.rack,
            is_fenced=record.fenced,
            is_shutting_down=record.in_controlled_shutdown,
            log_dirs=_directories(record.log_dirs),
            cordoned_log_dirs=tuple(record.cordoned_log_dirs or ()),
            active_epoch=was_active,
            can_write=LOST_DIRECTORY not in record.log_dirs,
        )

    def _unregister_broker(self, record: r.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self._map("brokers")[record.broker_id]

    def _fence_broker(self, record: r.FenceBrokerRecord) -> None:
        broker = self._broker(record.id, record.epoch)
        self._map("brokers")[record.id] = replace(broker, is_fenced=True)

    def _unfence_broker(self, record: r.UnfenceBrokerRecord) -> None:
        broker = self._broker(record.id, record.epoch)
        self._map("brokers")[record.id] = replace(broker, is_fenced=False, active_epoch=broker.epoch)

    def _change_broker(self, record: r.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        cordoned = record.cordoned_log_dirs
        self._map("brokers")[record.broker_id] = replace(
            broker,
            is_fenced=record.fenced > 0 or (broker.is_fenced and record.fenced == 0),
            active_epoch=broker.epoch if record.fenced < 0 else broker.active_epoch,
            is_shutting_down=record.in_controlled_shutdown > 0 or broker.is_shutting_down,
            log_dirs=_directories(record.log_dirs) or broker.log_dirs,
            cordoned_log_dirs=broker.cordoned_log_dirs if cordoned is None else tuple(cordoned),
            can_write=LOST_DIRECTORY not in record.log_dirs if record.log_dirs else broker.can_write,
        )

    def _register_controller(self, record: r.RegisterControllerRecord) -> None:
        self._map("controllers")[record.controller_id] = record

    # --- everything else ----------------------------------------------------------------------------------------------

    def _config(self, record: r.ConfigRecord) -> None:
        resource = Resource(record.resource_type, record.resource_name)
        if resource not in self._configs:
            self._configs[resource] = dict(self._base.configs.get(resource) or {})
        values = self._configs[resource] or {}
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        self._configs[resource] = values

    def _feature_level(self, record: r.FeatureLevelRecord) -> None:
        if record.feature_level:
            self._map("features")[record.name] = record.feature_level
        else:
            self._map("features").pop(record.name, None)

    def _producer_ids(self, record: r.ProducerIdsRecord) -> None:
        if record.next_producer_id < self._next_producer_id:
            raise InconsistentRecord(f"producer ids go back to {record.next_producer_id}")
        self._next_producer_id = record.next_producer_id

    def _acl(self, record: r.AccessControlEntryRecord) -> None:
        self._acls[record.id] = record

    def _remove_acl(self, record: r.RemoveAccessControlEntryRecord) -> None:
        self._acls[record.id] = None

    def _scram(self, record: r.UserScramCredentialRecord) -> None:
        self._map("scram")[record.name, record.mechanism] = record

    def _remove_scram(self, record: r.RemoveUserScramCredentialRecord) -> None:
        self._map("scram").pop((record.name, record.mechanism), None)

    def _quota(self, record: r.ClientQuotaRecord) -> None:
        entity = tuple((part.entity_type, part.entity_name) for part in record.entity)
        quotas = dict(self._map("quotas").pop(entity, {}))
        quotas.pop(record.key, None)
        if not record.remove:
            quotas[record.key] = record.value
        if quotas:
            self._map("quotas")[entity] = quotas

    def _token(self, record: r.DelegationTokenRecord) -> None:
        self._map("tokens")[record.token_id] = record

    def _remove_token(self, record: r.RemoveDelegationTokenRecord) -> None:
        self._map("tokens").pop(record.token_id, None)

    def _begin(self, _: r.BeginTransactionRecord) -> None:
        self._pending = []

    def _end(self, _: r.EndTransactionRecord) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            raise InconsistentRecord("a metadata transaction ends that has not begun")
        self.apply(*pending)

    def _abort(self, _: r.AbortTransactionRecord) -> None:
        if self._pending is None:
            raise InconsistentRecord("a metadata transaction is aborted that has not begun")
        self._pending = None

    def _nothing(self, _: MetadataRecord) -> None:
        """Ignores records that do not change the image."""


_SAME_LEADER: Final = -2
_SAME_STATE: Final = -1
_MAY_CHANGE: Final = (
    "replicas",
    "isr",
    "directories",
    "removing_replicas",
    "adding_replicas",
    "eligible_leader_replicas",
    "last_known_elr",
)

APPLY: Final[dict[type[MetadataRecord], Callable[[Draft, Any], None]]] = {
    r.TopicRecord: Draft._topic,
    r.RemoveTopicRecord: Draft._remove_topic,
    r.PartitionRecord: Draft._partition,
    r.PartitionChangeRecord: Draft._change_partition,
    r.ClearElrRecord: Draft._clear_elr,
    r.RegisterBrokerRecord: Draft._register_broker,
    r.UnregisterBrokerRecord: Draft._unregister_broker,
    r.FenceBrokerRecord: Draft._fence_broker,
    r.UnfenceBrokerRecord: Draft._unfence_broker,
    r.BrokerRegistrationChangeRecord: Draft._change_broker,
    r.RegisterControllerRecord: Draft._register_controller,
    r.ConfigRecord: Draft._config,
    r.FeatureLevelRecord: Draft._feature_level,
    r.ProducerIdsRecord: Draft._producer_ids,
    r.AccessControlEntryRecord: Draft._acl,
    r.RemoveAccessControlEntryRecord: Draft._remove_acl,
    r.UserScramCredentialRecord: Draft._scram,
    r.RemoveUserScramCredentialRecord: Draft._remove_scram,
    r.ClientQuotaRecord: Draft._quota,
    r.DelegationTokenRecord: Draft._token,
    r.RemoveDelegationTokenRecord: Draft._remove_token,
    r.BeginTransactionRecord: Draft._begin,
    r.EndTransactionRecord: Draft._end,
    r.AbortTransactionRecord: Draft._abort,
    r.NoOpRecord: Draft._nothing,
    r.ZkMigrationStateRecord: Draft._nothing,
}


def applied(image: Image, records: Iterable[MetadataRecord]) -> Image:
    """The image after these records."""
    draft = Draft(image)
    draft.apply(*records)
    return draft.image()
