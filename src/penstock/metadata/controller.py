"""The controller: a shard that decides on the cluster's state.

Invariants: `decide` changes nothing; only `apply` does, and the same records give the same image on every node; a reply
leaves only after everything applied when it was decided is committed. Random values come from the Entropy port and are
stored in records, so a replay needs none.

The driver calls `begin` when this node leads the quorum and has applied the whole log; `time_passes` at least every
WAKE_MS, with a `Tick` then and at every `WakeAt` of a decision; `hear` when a heartbeat arrives, before it is decided
or waits for anything; `revert` to the committed image when this node no longer leads.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

from penstock.metadata.brokers import (
    decommission_broker,
    has_handed_over,
    heartbeat,
    register_broker,
    unregister_broker,
)
from penstock.metadata.cluster_commands import (
    AlterPartition,
    AlterReassignments,
    AssignReplicas,
    DecommissionBroker,
    ElectLeaders,
    Heartbeat,
    ListReassignments,
    RegisterController,
    Tick,
    Ticked,
    UnregisterBroker,
    UpdateFeatures,
)
from penstock.metadata.commands import (
    AllocateProducerIds,
    AlterConfigs,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    ProducerIds,
    RegisterBroker,
)
from penstock.metadata.configs import alter_configs
from penstock.metadata.creation import create_topics
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.deletion import delete_topics
from penstock.metadata.directories import assign_replicas
from penstock.metadata.draft import Draft, unified
from penstock.metadata.features import register_controller, update_features
from penstock.metadata.growth import create_partitions
from penstock.metadata.image import BROKER, Image
from penstock.metadata.index import PartitionIndex
from penstock.metadata.liveness import Liveness
from penstock.metadata.partitions import alter_partition, elect_leaders
from penstock.metadata.placement import hosts
from penstock.metadata.reassignment import alter_reassignments, list_reassignments
from penstock.metadata.records import FeatureLevelRecord, ProducerIdsRecord
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.settings.setting import LONG_MAX
from penstock.metadata.upkeep import Pace, return_to_preferred, tick
from penstock.metadata.view import Cluster, Pieces, TopicRules, View, finished
from penstock.model.errors import ErrorCode
from penstock.model.ports import Entropy
from penstock.model.shard import Command, Decision, answer

Reply = TypeVar("Reply")

PRODUCER_IDS_PER_BLOCK: Final = 1000


class Controller:
    """See the module. `settings` are the static settings of this node."""

    def __init__(
        self,
        node_id: int,
        settings: BrokerSettings,
        entropy: Entropy,
        image: Image | None = None,
        features: Iterable[tuple[str, int]] = (),
    ) -> None:
        """`features` are the initial feature levels of a new cluster."""
        self._features = tuple(features)
        self._node_id = node_id
        self._entropy = entropy
        self._settings = settings
        self._image = Image() if image is None else image
        self._draft: Draft | None = None
        self._index = PartitionIndex()
        self._rules: TopicRules | None = None
        self._liveness = Liveness()
        self._preferred_at_ms = 0
        self._looks_for_preferred = False
        self._pace = Pace()
        self._rested: Image | None = None
        """Image for which a Tick last found nothing to do; while it is current, only time and heartbeats add work."""

    @property
    def image(self) -> Image:
        """Cluster state after the last applied record. `changes_between` compares two images."""
        if self._draft is not None:
            self._image = self._draft.image()
            self._draft = None
        return self._image

    @property
    def settings(self) -> BrokerSettings:
        """The settings of this node, with the dynamic settings of the image applied."""
        default, own = self.image.config(BROKER, ""), self.image.config(BROKER, str(self._node_id))
        if not (_same(self._settings.dynamic_default, default) and _same(self._settings.dynamic, own)):
            self._settings = self._settings.with_dynamic(default, own)
        return self._settings

    @property
    def index(self) -> PartitionIndex:
        """Index of the current image. An update is cheap; the first call costs the size of the image."""
        return self._cluster().index

    def apply(self, record: MetadataRecord) -> None:
        """Applies a record of the log. Raises InconsistentRecord for a record that does not fit."""
        if self._draft is None:
            self._draft = Draft(self._image)
        self._draft.apply(record)

    # --- active role ----------------------------------------------------------------------------------------------

    def begin(self, now: int) -> Decision[MetadataRecord, None]:
        """Activates the controller once the whole log is applied; every unfenced broker gets a new session."""
        self._liveness.begin(self.image, now)
        self._preferred_at_ms = self._liveness.running_ms + self._preferred_interval_ms
        if self.image.features or self.image.brokers:
            return Decision()
        return Decision(tuple(FeatureLevelRecord(name=name, feature_level=level) for name, level in self._features))

    def revert(self, image: Image) -> None:
        """Deactivates the controller: returns to the committed image and drops all sessions."""
        self._liveness.end()
        self._draft = None
        self._image = image

    def time_passes(self, now: int) -> None:
        """Advances the clock, at least every WAKE_MS while active; of a longer gap only a part counts (R34)."""
        liveness = self._liveness
        liveness.time_passes(now)
        if self._looks_for_preferred:
            self._looks_for_preferred = bool(return_to_preferred(self._cluster()))
        if liveness.running_ms >= self._preferred_at_ms:
            self._preferred_at_ms = liveness.running_ms + self._preferred_interval_ms
            self._looks_for_preferred = self.settings.is_on("auto.leader.rebalance.enable")

    @property
    def _preferred_interval_ms(self) -> int:
        return 1000 * self.settings.number("leader.imbalance.check.interval.seconds")

    def hear(self, command: Heartbeat, now: int) -> None:
        """Records a heartbeat immediately, even if the decision on it has to wait."""
        broker = self.image.brokers.get(command.broker_id)
        if broker is None or broker.epoch != command.broker_epoch or not self._liveness.is_active:
            return
        session = self._liveness.hear(command.broker_id, command.broker_epoch, command.metadata_offset, now)
        is_leaving = broker.is_shutting_down and not broker.is_fenced
        if is_leaving and session.shutdown_end is None and has_handed_over(command.broker_id, self._cluster()):
            session.shutdown_end = command.log_end

    def lose(self, broker_id: int, broker_epoch: int) -> None:
        """Ends the session of a broker after a failed probe; the next Tick fences it unless a heartbeat comes first."""
        self._liveness.lose(broker_id, broker_epoch)

    # --- deciding -------------------------------------------------------------------------------------------------

    def decide(self, command: Command[Reply], now: int) -> Decision[MetadataRecord, Reply]:
        """Returns the records that carry out the command, and the reply to send once they are committed."""
        return cast("Decision[MetadataRecord, Reply]", self._decide(command, now))

    def decide_in_pieces(self, command: Command[Reply]) -> "Pieces[Decision[MetadataRecord, Reply]] | None":
        """The same in pieces, for commands that may be large; None for others.

        The decision is based on the image at the time of the call. If other commands are decided before the last
        piece, `rests_on` reports whether the decision still holds.
        """
        found = _IN_PIECES.get(type(command))
        return None if found is None else found(command, View(self.image, self.settings, self._entropy))

    def rests_on(self, command: Command[object], image: Image, settings: BrokerSettings) -> bool:
        """Whether a command in pieces, decided on an earlier image and settings, would be decided the same way now.

        The decision depends only on the settings, the brokers and the topics that the command names.
        """
        assert isinstance(command, CreateTopics | CreatePartitions)
        now = self.image
        if now is image:
            return True
        return (
            self.settings is settings
            and now.brokers is image.brokers
            and hosts(now) == hosts(image)
            and all(
                now.topics.get(topic.name) is image.topics.get(topic.name)
                and now.unified_names.get(unified(topic.name)) == image.unified_names.get(unified(topic.name))
                for topic in command.topics
            )
        )

    def advance(self, image: Image) -> None:
        """Replaces the image by the result of applying records to it."""
        self._draft = None
        self._image = image

    def _decide(self, command: Command[object], now: int) -> Decision[MetadataRecord, object]:
        pieces = self.decide_in_pieces(command)
        if pieces is not None:
            return finished(pieces)
        plain = _PLAIN.get(type(command))
        if plain is not None:
            return plain(command, View(self.image, self.settings, self._entropy))
        match command:
            case Heartbeat():
                return heartbeat(command, self._cluster(), now)
            case Tick():
                return self._tick(now)
            case DecommissionBroker():
                return decommission_broker(command, self._cluster(), now)
        of_cluster = _OF_CLUSTER.get(type(command))
        if of_cluster is not None:
            return of_cluster(command, self._cluster())
        raise TypeError(f"{command} is nothing that a controller can be asked")

    def _tick(self, now: int) -> Decision[MetadataRecord, Ticked]:
        cluster = self._cluster()
        looks = self._looks_for_preferred
        is_at_rest = cluster.image is self._rested and not self._pace.is_due(cluster.liveness.running_ms)
        decision = tick(cluster, now, self._pace, looks_for_preferred=looks, is_at_rest=is_at_rest)
        if not decision.records:
            self._rested = cluster.image
        return decision

    def _cluster(self) -> Cluster:
        image, settings = self.image, self.settings
        if self._rules is None or not self._rules.are_of(image, settings):
            self._rules = TopicRules(image, settings)
        self._index.follow(image, self._rules)
        return Cluster(image, settings, self._entropy, self._index, self._liveness, self._rules)


def _same(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return one is other or (not one and not other)


def allocate_producer_ids(command: AllocateProducerIds, view: View) -> Decision[MetadataRecord, ProducerIds]:
    """Allocates a block of producer ids to one broker."""
    image = view.image
    broker = image.brokers.get(command.broker_id)
    if broker is None:
        message = f"No broker registration found for broker id {command.broker_id}"
        return answer((), ProducerIds(code=ErrorCode.STALE_BROKER_EPOCH, message=message))
    if broker.epoch != command.broker_epoch:
        message = f"Expected broker epoch {broker.epoch}, but got broker epoch {command.broker_epoch}"
        return answer((), ProducerIds(code=ErrorCode.STALE_BROKER_EPOCH, message=message))
    first = image.next_producer_id
    if first > LONG_MAX - PRODUCER_IDS_PER_BLOCK:
        message = "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit"
        return answer((), ProducerIds(code=ErrorCode.UNKNOWN_SERVER_ERROR, message=message))
    record = ProducerIdsRecord(
        broker_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        next_producer_id=first + PRODUCER_IDS_PER_BLOCK,
    )
    return answer((record,), ProducerIds(first, PRODUCER_IDS_PER_BLOCK))


_PLAIN: Final[dict[type, Callable[[Any, View], Decision[MetadataRecord, Any]]]] = {
    DeleteTopics: delete_topics,
    AlterConfigs: alter_configs,
    IncrementalAlterConfigs: alter_configs,
    AllocateProducerIds: allocate_producer_ids,
    UpdateFeatures: update_features,
    RegisterController: register_controller,
}
"""Commands decided from the image and the settings."""

_IN_PIECES: Final[dict[type, Callable[[Any, View], Pieces[Decision[MetadataRecord, Any]]]]] = {
    CreateTopics: create_topics,
    CreatePartitions: create_partitions,
}
"""The same, decided in pieces: one command may have thousands of records."""

_OF_CLUSTER: Final[dict[type, Callable[[Any, Cluster], Decision[MetadataRecord, Any]]]] = {
    RegisterBroker: register_broker,
    UnregisterBroker: unregister_broker,
    AlterPartition: alter_partition,
    ElectLeaders: elect_leaders,
    AlterReassignments: alter_reassignments,
    AssignReplicas: assign_replicas,
    ListReassignments: list_reassignments,
}
"""Commands that also need the partition index and the liveness of brokers."""
