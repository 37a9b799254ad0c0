"""The controller: a shard that decides on the cluster's state.

Invariants: `decide` changes nothing; only `apply` does, and the same records give the same image on whatever node; a
reply leaves only after everything applied when it was decided is committed. Chance comes through the Entropy port and
ends up in records, so a replay needs none.
"""

from collections.abc import Mapping
from typing import Final, TypeVar, cast

from penstock.metadata.commands import (
    AllocateProducerIds,
    AlterConfigs,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    ProducerIds,
    RegisterBroker,
    RegisteredBroker,
)
from penstock.metadata.configs import alter_configs
from penstock.metadata.creation import create_topics
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.deletion import delete_topics
from penstock.metadata.draft import Draft
from penstock.metadata.growth import create_partitions
from penstock.metadata.image import BROKER, Image
from penstock.metadata.records import ProducerIdsRecord, RegisterBrokerRecord
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.settings.setting import LONG_MAX
from penstock.metadata.view import View
from penstock.model.errors import ErrorCode
from penstock.model.ports import Entropy
from penstock.model.shard import Command, Decision

Reply = TypeVar("Reply")

PRODUCER_IDS_PER_BLOCK: Final = 1000


class Controller:
    """The shard. `settings` are those of the node that it runs on, out of its file."""

    def __init__(self, node_id: int, settings: BrokerSettings, entropy: Entropy, image: Image | None = None) -> None:
        self._node_id = node_id
        self._entropy = entropy
        self._settings = settings
        self._image = Image() if image is None else image
        self._draft: Draft | None = None

    @property
    def image(self) -> Image:
        """The cluster as of the last applied record. Compare two of them with `changes_between`."""
        if self._draft is not None:
            self._image = self._draft.image()
            self._draft = None
        return self._image

    @property
    def settings(self) -> BrokerSettings:
        """The settings of this node under the dynamic ones that the image holds."""
        default, own = self.image.config(BROKER, ""), self.image.config(BROKER, str(self._node_id))
        if not (_same(self._settings.dynamic_default, default) and _same(self._settings.dynamic, own)):
            self._settings = self._settings.with_dynamic(default, own)
        return self._settings

    def apply(self, record: MetadataRecord) -> None:
        """Takes in what the log says. Raises InconsistentRecord for a record that does not fit."""
        if self._draft is None:
            self._draft = Draft(self._image)
        self._draft.apply(record)

    def decide(self, command: Command[Reply], now: int) -> Decision[MetadataRecord, Reply]:  # noqa: ARG002 - every shard's
        """The records that would carry the command out, and what to answer once they are committed."""
        return cast("Decision[MetadataRecord, Reply]", self._decide(command))

    def _decide(self, command: Command[object]) -> Decision[MetadataRecord, object]:
        view = View(self.image, self.settings, self._entropy)
        match command:
            case CreateTopics():
                return create_topics(command, view)
            case DeleteTopics():
                return delete_topics(command, view)
            case CreatePartitions():
                return create_partitions(command, view)
            case AlterConfigs() | IncrementalAlterConfigs():
                return alter_configs(command, view)
            case RegisterBroker():
                return _register_broker(command, view.image)
            case AllocateProducerIds():
                return _allocate_producer_ids(command, view.image)
        raise TypeError(f"{command} is nothing that a controller can be asked")


def _same(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return one is other or (not one and not other)


def _register_broker(command: RegisterBroker, image: Image) -> Decision[MetadataRecord, RegisteredBroker]:
    known = image.brokers.get(command.broker_id)
    if known is not None and known.incarnation_id == command.incarnation_id:
        return Decision((), RegisteredBroker(known.epoch))
    record = RegisterBrokerRecord(
        broker_id=command.broker_id,
        incarnation_id=command.incarnation_id,
        broker_epoch=command.epoch,
        end_points=command.listeners,
        features=command.features,
        rack=command.rack,
        fenced=command.is_fenced,
        log_dirs=command.log_dirs,
    )
    return Decision((record,), RegisteredBroker(command.epoch))


def _allocate_producer_ids(command: AllocateProducerIds, image: Image) -> Decision[MetadataRecord, ProducerIds]:
    broker = image.brokers.get(command.broker_id)
    if broker is None:
        message = f"No broker registration found for broker id {command.broker_id}"
        return Decision((), ProducerIds(code=ErrorCode.STALE_BROKER_EPOCH, message=message))
    if broker.epoch != command.broker_epoch:
        message = f"Expected broker epoch {broker.epoch}, but got broker epoch {command.broker_epoch}"
        return Decision((), ProducerIds(code=ErrorCode.STALE_BROKER_EPOCH, message=message))
    first = image.next_producer_id
    if first > LONG_MAX - PRODUCER_IDS_PER_BLOCK:
        message = "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit"
        return Decision((), ProducerIds(code=ErrorCode.UNKNOWN_SERVER_ERROR, message=message))
    record = ProducerIdsRecord(
        broker_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        next_producer_id=first + PRODUCER_IDS_PER_BLOCK,
    )
    return Decision((record,), ProducerIds(first, PRODUCER_IDS_PER_BLOCK))
