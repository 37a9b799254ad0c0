"""Controller decisions on brokers: registration, heartbeats, shutdown, fencing, unregistration.

Answers   codes are Kafka 4.3's. A broker is fenced until it has followed the metadata log up to its own registration.
Departs   a broker leaves its partitions in pieces of RECORDS_PER_STEP_MAX: it is first removed from every ISR, and is
          fenced, registered again or unregistered with the last piece. A registration or unregistration that has not
          finished this answers REQUEST_TIMED_OUT and must be sent again. A registration that names an epoch before the
          last active one comes from an earlier run, or from a restored disk, and gets STALE_BROKER_EPOCH; a live broker
          that receives this registers without an epoch, and is distrusted. A broker that was not stopped cleanly, but
          has lost nothing that it had synced, reports `but_for_unsynced`: it is distrusted only where the topic's own
          setting durability is 'replicated'. A broker whose directories are all offline (its disk is full) may report
          them online later, without a restart; until then it leads, and is in an ISR, only where no other replica can.
Invariant: no fenced broker is in an ISR (except the last one, where the cluster keeps no eligible leaders).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from penstock.metadata.cluster_commands import DecommissionBroker, Heard, Heartbeat, Result, UnregisterBroker
from penstock.metadata.commands import RegisterBroker, RegisteredBroker, epoch_but_for_unsynced
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import BROKER, TOPIC, Broker, Image
from penstock.metadata.liveness import WakeAt
from penstock.metadata.partition_change import change_record, settle
from penstock.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from penstock.metadata.view import DECOMMISSION, RECORDS_PER_STEP_MAX, Cluster
from penstock.model.epochs import INT64_EPOCH_MAX
from penstock.model.errors import ErrorCode
from penstock.model.shard import Decision, answer

Distrust = Callable[[str], bool]
"""Whether a broker may have lost records of a topic."""
NOWHERE: Final[Distrust] = lambda _topic: False  # noqa: E731 - two answers, named
EVERYWHERE: Final[Distrust] = lambda _topic: True  # noqa: E731
_AGAIN = "The partitions of the broker are being handed over; ask again."


class Step(NamedTuple):
    """One piece of a broker's departure, and whether it is the last."""

    records: list[MetadataRecord]
    is_last: bool


def leave_partitions(broker_id: int, cluster: Cluster, *, is_distrusted: Distrust = NOWHERE) -> Step:
    """Removes a broker from the ISR of its partitions and, if distrusted, from their eligible leaders."""
    active = cluster.active - {broker_id}
    records: list[MetadataRecord] = []
    for topic, number, partition in cluster.index.of_broker(broker_id):
        is_concerned = broker_id in partition.isr or broker_id == partition.leader
        is_eligible = broker_id in partition.eligible_leader_replicas
        if not is_concerned and not is_eligible:
            continue
        distrusted = (broker_id,) if is_distrusted(topic.name) else ()
        if not is_concerned and not distrusted:
            continue
        left = settle(
            partition, partition, active, cluster.rules(topic.name), distrusted=distrusted, unfit=cluster.unfit
        )
        record = change_record(topic.topic_id, number, partition, left)
        if record is None:
            continue
        if len(records) == RECORDS_PER_STEP_MAX:
            return Step(records, is_last=False)
        records.append(record)
    return Step(records, is_last=True)


def fence(broker: Broker, cluster: Cluster) -> Step:
    """One piece of fencing a broker; the record that fences it comes last."""
    step = leave_partitions(broker.broker_id, cluster)
    if step.is_last:
        step.records.append(_change(broker, fenced=1))
    return step


def _change(
    broker: Broker, *, fenced: int = 0, shutting_down: int = 0, can_write: bool | None = None
) -> BrokerRegistrationChangeRecord:
    is_new = can_write is not None and can_write != broker.can_write
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=shutting_down,
        log_dirs=replace(broker, can_write=not broker.can_write).told_log_dirs if is_new else (),
    )


# --- registration -----------------------------------------------------------------------------------------------------


def register_broker(command: RegisterBroker, cluster: Cluster) -> Decision[MetadataRecord, RegisteredBroker]:
    """Registers a broker."""
    image = cluster.image
    known = image.brokers.get(command.broker_id)
    if known is not None and known.incarnation_id == command.incarnation_id:
        return answer((), RegisteredBroker(known.epoch))
    refused = _refusal(command, known, cluster)
    if refused is not None:
        return answer((), refused)
    records: list[MetadataRecord] = []
    if known is not None and command.is_fenced:
        step = leave_partitions(known.broker_id, cluster, is_distrusted=_distrust(command, known, cluster))
        if not step.is_last:
            return answer(tuple(step.records), RegisteredBroker(-1, ErrorCode.REQUEST_TIMED_OUT, _AGAIN))
        records += step.records
    broker_epoch = command.epoch + len(records)  # the record's offset in the metadata log
    assert 0 <= broker_epoch <= INT64_EPOCH_MAX
    records.append(
        RegisterBrokerRecord(
            broker_id=command.broker_id,
            incarnation_id=command.incarnation_id,
            broker_epoch=broker_epoch,
            end_points=command.listeners,
            features=command.features,
            rack=command.rack,
            fenced=command.is_fenced,
            log_dirs=command.log_dirs,
        )
    )
    return answer(tuple(records), RegisteredBroker(broker_epoch))


def _distrust(command: RegisterBroker, known: Broker, cluster: Cluster) -> Distrust:
    if command.previous_epoch >= known.active_epoch:
        return NOWHERE
    if epoch_but_for_unsynced(command.previous_epoch) >= known.active_epoch:
        return lambda topic: cluster.image.config(TOPIC, topic).get("durability") == "replicated"
    return EVERYWHERE


def _refusal(command: RegisterBroker, known: Broker | None, cluster: Cluster) -> RegisteredBroker | None:
    if known is not None and not known.is_shutting_down and _is_live(known, cluster):
        message = f"Another broker is registered with that broker id: {known.broker_id} was heard of just now."
        return RegisteredBroker(-1, ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)
    if known is not None and 0 <= command.previous_epoch < known.active_epoch:
        message = f"Broker {known.broker_id} was active in epoch {known.active_epoch}; register without an earlier one."
        return RegisteredBroker(-1, ErrorCode.STALE_BROKER_EPOCH, message)
    if len(frozenset(command.log_dirs)) != len(command.log_dirs):
        return RegisteredBroker(-1, ErrorCode.INVALID_REGISTRATION, "Directories are registered more than once.")
    for other in cluster.image.brokers.values():
        if other.broker_id != command.broker_id and not frozenset(command.log_dirs).isdisjoint(other.log_dirs):
            message = (
                f"Broker {other.broker_id} already registered one of the directories of broker {command.broker_id}."
            )
            return RegisteredBroker(-1, ErrorCode.INVALID_REGISTRATION, message)
    return _unsupported(command, cluster.image) if command.is_fenced else None


def _is_live(broker: Broker, cluster: Cluster) -> bool:
    return cluster.liveness.is_live(broker.broker_id, broker.epoch, cluster.session_timeout_ms)


def _unsupported(command: RegisterBroker, image: Image) -> RegisteredBroker | None:
    ranges = {each.name: each for each in command.features}
    for name, level in sorted(image.features.items()):
        found = ranges.get(name)
        if found is None or not found.min_supported_version <= level <= found.max_supported_version:
            message = (
                f"Unable to register because the broker does not support finalized version {level} of {name}; "
                "use a version of the broker that does."
            )
            return RegisteredBroker(-1, ErrorCode.UNSUPPORTED_VERSION, message)
    return None


# --- heartbeats -------------------------------------------------------------------------------------------------------


def heartbeat(command: Heartbeat, cluster: Cluster, now: int) -> Decision[MetadataRecord, Heard]:
    """Answers a heartbeat: whether the broker is fenced, and whether it may stop."""
    broker = cluster.image.brokers.get(command.broker_id)
    if broker is None:
        message = f"Broker id {command.broker_id} is not registered."
        return answer((), Heard(code=ErrorCode.BROKER_ID_NOT_REGISTERED, message=message))
    if broker.epoch != command.broker_epoch:
        message = f"Expected broker epoch {broker.epoch}, but got broker epoch {command.broker_epoch}"
        return answer((), Heard(code=ErrorCode.STALE_BROKER_EPOCH, message=message))
    is_caught_up = command.metadata_offset >= broker.epoch
    if broker.is_fenced:
        return _while_fenced(command, broker, cluster, now, is_caught_up=is_caught_up)
    if command.wants_fence:
        step = fence(broker, cluster)
        return answer(tuple(step.records), Heard(is_caught_up, is_fenced=step.is_last), WakeAt(now))
    if command.wants_shutdown:
        return _shutdown(broker, cluster, now, is_caught_up=is_caught_up)
    can_write = _can_write(command, broker, cluster)
    if can_write != broker.can_write:
        return answer((_change(broker, can_write=can_write),), Heard(is_caught_up, is_fenced=False), WakeAt(now))
    return answer((), Heard(is_caught_up, is_fenced=False))


def _can_write(command: Heartbeat, broker: Broker, cluster: Cluster) -> bool:
    """Whether one of its directories accepts records. A heartbeat that was overtaken by a later one is ignored."""
    session = cluster.liveness.session(broker.broker_id, broker.epoch)
    if session is not None and command.metadata_offset < session.metadata_offset:
        return broker.can_write
    return not broker.log_dirs or not frozenset(broker.log_dirs) <= frozenset(command.offline_log_dirs)


def _while_fenced(
    command: Heartbeat, broker: Broker, cluster: Cluster, now: int, *, is_caught_up: bool
) -> Decision[MetadataRecord, Heard]:
    if command.wants_shutdown or broker.is_shutting_down:
        return answer((), Heard(is_caught_up, should_shut_down=True))
    if command.wants_fence or not is_caught_up:
        return answer((), Heard(is_caught_up))
    change = _change(broker, fenced=-1, can_write=_can_write(command, broker, cluster))
    return answer((change,), Heard(is_caught_up, is_fenced=False), WakeAt(now))


def _shutdown(broker: Broker, cluster: Cluster, now: int, *, is_caught_up: bool) -> Decision[MetadataRecord, Heard]:
    """Hands over leadership in pieces; once all other brokers have applied that, the broker may stop."""
    waits = Heard(is_caught_up, is_fenced=False)
    if not broker.is_shutting_down:
        return answer((_change(broker, shutting_down=1),), waits, WakeAt(now))
    session = cluster.liveness.session(broker.broker_id, broker.epoch)
    handed_over_at = None if session is None else session.shutdown_end
    if handed_over_at is None or cluster.liveness.least_offset(cluster.image, broker.broker_id) + 1 < handed_over_at:
        return answer((), waits, *([WakeAt(now)] if cluster.index.has_trouble else []))
    step = fence(broker, cluster)
    return answer(tuple(step.records), Heard(is_caught_up, is_fenced=step.is_last, should_shut_down=step.is_last))


def has_handed_over(broker_id: int, cluster: Cluster) -> bool:
    """Whether a broker that shuts down leads nothing and is in no ISR, as far as possible."""
    return cluster.index.led.get(broker_id, 0) == 0 and not leave_partitions(broker_id, cluster).records


# --- unregistration ---------------------------------------------------------------------------------------------------


def unregister_broker(command: UnregisterBroker, cluster: Cluster) -> Decision[MetadataRecord, Result]:
    """Unregisters a broker."""
    broker = cluster.image.brokers.get(command.broker_id)
    if broker is None:
        message = f"Broker ID {command.broker_id} is not currently registered."
        return answer((), Result(ErrorCode.BROKER_ID_NOT_REGISTERED, message))
    step = leave_partitions(broker.broker_id, cluster, is_distrusted=EVERYWHERE)
    if not step.is_last:
        return answer(tuple(step.records), Result(ErrorCode.REQUEST_TIMED_OUT, _AGAIN))
    if cluster.is_draining(broker.broker_id):
        step.records.append(_decommission(broker.broker_id, is_on=False))
    step.records.append(UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch))
    return answer(tuple(step.records), Result())


def decommission_broker(command: DecommissionBroker, cluster: Cluster, now: int) -> Decision[MetadataRecord, Result]:
    """Starts or stops emptying a broker."""
    if command.broker_id not in cluster.image.brokers:
        message = f"Broker ID {command.broker_id} is not currently registered."
        return answer((), Result(ErrorCode.BROKER_ID_NOT_REGISTERED, message))
    if cluster.is_draining(command.broker_id) == command.is_on:
        return answer((), Result())
    return answer((_decommission(command.broker_id, is_on=command.is_on),), Result(), WakeAt(now))


def _decommission(broker_id: int, *, is_on: bool) -> ConfigRecord:
    value = "true" if is_on else None
    return ConfigRecord(resource_type=BROKER, resource_name=str(broker_id), name=DECOMMISSION, value=value)
