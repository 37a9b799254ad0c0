"""A controller with several brokers, and a minimal environment: a log of bytes, a clock, heartbeats."""

from collections.abc import Sequence
from typing import TypeVar

from harness.metadata_world import NOW_MS, Dice
from penstock.metadata.cluster_commands import (
    AlteredPartition,
    AlterPartition,
    AlterReassignments,
    Heard,
    Heartbeat,
    NewIsr,
    PartitionRef,
    Reassigned,
    Reassignment,
    Tick,
)
from penstock.metadata.commands import CreateTopics, NewTopic, RegisterBroker, RegisteredBroker
from penstock.metadata.controller import Controller
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.frames import decode_record, encode_record
from penstock.metadata.image import Broker, Image, Partition
from penstock.metadata.records import BrokerEndpoint, BrokerFeature, FeatureLevelRecord
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.view import ELR_FEATURE
from penstock.model.errors import ErrorCode
from penstock.model.shard import Command

Reply = TypeVar("Reply")


class ClusterWorld:
    """Brokers send heartbeats as time passes, except `silent` ones; brokers in `full` report full disks."""

    def __init__(
        self, brokers: Sequence[int] = (1, 2, 3), *, has_elr: bool = True, settings: dict[str, str] | None = None
    ) -> None:
        self.settings = BrokerSettings({"auto.balance.enable": "false", **(settings or {})})
        self.controller = Controller(9, self.settings, Dice())
        self.log: list[bytes] = []
        self.now = NOW_MS
        self.silent: set[int] = set()
        self.full: set[int] = set()
        self.incarnations = 0
        self.records_most = 0
        if has_elr:
            self.write(FeatureLevelRecord(name=ELR_FEATURE, feature_level=1))
        self.controller.begin(self.now)
        for broker_id in brokers:
            self.start(broker_id)

    # --- driving --------------------------------------------------------------------------------------------------

    def ask(self, command: Command[Reply]) -> Reply:
        decision = self.controller.decide(command, self.now)
        self.records_most = max(self.records_most, len(decision.records))
        for record in decision.records:
            self.write(record)
        return decision.reply

    def write(self, record: MetadataRecord) -> None:
        self.log.append(encode_record(record))
        self.controller.apply(decode_record(self.log[-1]))

    def tick(self) -> int:
        """Carries out all due work, and returns the number of steps."""
        pieces = 0
        while True:
            self.controller.time_passes(self.now)
            decision = self.controller.decide(Tick(), self.now)
            self.records_most = max(self.records_most, len(decision.records))
            for record in decision.records:
                self.write(record)
            (wake,) = decision.changes
            if wake.at_ms > self.now:
                return pieces
            pieces += 1
            assert pieces < 1_000, "it never comes to rest"

    def pass_ms(self, milliseconds: int) -> None:
        """Advances the clock, with heartbeats of all brokers that are not silent."""
        end = self.now + milliseconds
        while self.now < end:
            self.now = min(end, self.now + 100)
            for broker_id in sorted(self.image.brokers):
                if broker_id not in self.silent:
                    self.beat(broker_id)
            self.tick()

    # --- brokers --------------------------------------------------------------------------------------------------

    def register(
        self,
        broker_id: int,
        rack: str | None = None,
        previous_epoch: int = -1,
        features: tuple[BrokerFeature, ...] = (),
    ) -> RegisteredBroker:
        self.incarnations += 1
        known = BrokerFeature(name=ELR_FEATURE, min_supported_version=0, max_supported_version=1)
        return self.ask(
            RegisterBroker(
                broker_id=broker_id,
                incarnation_id=self.incarnations.to_bytes(16, "big"),
                epoch=len(self.log),
                listeners=(BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0),),
                features=features or (known,),
                rack=rack,
                log_dirs=(b"d" * 12 + broker_id.to_bytes(4, "big"),),
                is_fenced=True,
                previous_epoch=previous_epoch,
            )
        )

    def start(self, broker_id: int, rack: str | None = None, previous_epoch: int = -1) -> None:
        """Registers a broker and unfences it."""
        registered = self.register(broker_id, rack, previous_epoch)
        assert registered.code is ErrorCode.NONE, registered
        assert not self.beat(broker_id).is_fenced
        self.tick()

    def beat(self, broker_id: int, *, offset: int | None = None, fence: bool = False, stop: bool = False) -> Heard:
        broker = self.image.brokers[broker_id]
        command = Heartbeat(
            broker_id,
            broker.epoch,
            len(self.log) - 1 if offset is None else offset,
            len(self.log),
            wants_fence=fence,
            wants_shutdown=stop,
            offline_log_dirs=broker.log_dirs if broker_id in self.full else (),
        )
        self.controller.hear(command, self.now)
        return self.ask(command)

    def fill(self, *broker_ids: int) -> None:
        """Makes brokers report full disks."""
        self.full |= set(broker_ids)
        self.pass_ms(100)

    def empty(self, *broker_ids: int) -> None:
        """Makes brokers report free disk space again."""
        self.full -= set(broker_ids)
        self.pass_ms(100)

    def kill(self, *broker_ids: int) -> None:
        """Silences brokers until the controller has fenced them."""
        self.silent |= set(broker_ids)
        self.pass_ms(3_100)
        for broker_id in broker_ids:
            assert self.broker(broker_id).is_fenced

    def restart(self, broker_id: int, *, is_clean: bool = True) -> None:
        self.silent.discard(broker_id)
        self.start(broker_id, previous_epoch=self.broker(broker_id).epoch if is_clean else -1)

    # --- inspection -----------------------------------------------------------------------------------------------

    @property
    def image(self) -> Image:
        return self.controller.image

    def broker(self, broker_id: int) -> Broker:
        return self.image.brokers[broker_id]

    def partition(self, topic: str = "orders", index: int = 0) -> Partition:
        return self.image.topics[topic].partitions[index]

    def replayed(self) -> Controller:
        other = Controller(9, self.settings, Dice("another"))
        for data in self.log:
            other.apply(decode_record(data))
        return other

    # --- topics ---------------------------------------------------------------------------------------------------

    def create(self, *replicas: tuple[int, ...], name: str = "orders", min_isr: int = 2, **configs: str) -> None:
        given = {
            "min.insync.replicas": str(min_isr),
            **{key.replace("_", "."): value for key, value in configs.items()},
        }
        (made,) = self.ask(
            CreateTopics((NewTopic(name, assignments=tuple(enumerate(replicas)), configs=tuple(given.items())),))
        )
        assert made.code is ErrorCode.NONE, made

    def new_isr(self, *isr: int, name: str = "orders", index: int = 0, **other: int) -> NewIsr:
        topic = self.image.topics[name]
        partition = topic.partitions[index]
        return NewIsr(
            topic.topic_id,
            index,
            other.get("leader_epoch", partition.leader_epoch),
            other.get("partition_epoch", partition.partition_epoch),
            tuple((each, self.image.brokers[each].epoch) for each in isr),
            other.get("recovery", 0),
        )

    def alter(self, wanted: NewIsr, leader: int | None = None) -> AlteredPartition:
        topic = self.image.topic_by_id(wanted.topic_id)
        assert topic is not None
        leader = topic.partitions[wanted.index].leader if leader is None else leader
        altered = self.ask(AlterPartition(leader, self.broker(leader).epoch, (wanted,)))
        assert altered.code is ErrorCode.NONE
        return altered.partitions[0]

    def sync(self, *isr: int, name: str = "orders", index: int = 0) -> Partition:
        result = self.alter(self.new_isr(*isr, name=name, index=index))
        assert result.code in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED), result
        return self.partition(name, index)

    def reassign(self, replicas: tuple[int, ...] | None, name: str = "orders", index: int = 0) -> Reassigned:
        (result,) = self.ask(AlterReassignments((Reassignment(PartitionRef(name, index), replicas),)))
        return result
