"""Metrics of led partitions and of replicas: counts, ISR, log start offset, high watermark.

kafka_exporter reports these for a whole cluster. Here each node reports the partitions that it leads, and the active
controller the leaderless ones; so sums over all nodes equal those of one kafka_exporter.
"""

from collections.abc import Callable, Iterator, Sequence

from penstock.log.directory import DataDirectory
from penstock.metadata.changes import Changes
from penstock.metadata.image import Image
from penstock.metadata.image import Partition as Placed
from penstock.metadata.names import METADATA_TOPIC
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.metrics.collector import PIECE, Collector
from penstock.server.metrics.page import Kind, Metric, Page, labels
from penstock.server.partitions.partition import Partition
from penstock.server.partitions.partitions import Partitions

_BEHIND = "A node is down, restarting, or does not keep up: docs/operating/follower-lags.md."
_TOO_FEW = "Producers with acks=all are refused: bring brokers back, see docs/operating/broker-down.md."

LEADERS = Metric("kafka_server_replicamanager_leadercount", Kind.GAUGE, "Partitions that are led here.")
REPLICAS = Metric("kafka_server_replicamanager_partitioncount", Kind.GAUGE, "Partitions with a replica here.")
UNDER_REPLICATED = Metric(
    "kafka_server_replicamanager_underreplicatedpartitions",
    Kind.GAUGE,
    "Partitions that are led here and have replicas that are not in sync.",
    advice=_BEHIND,
)
UNDER_MIN = Metric(
    "kafka_server_replicamanager_underminisrpartitioncount",
    Kind.GAUGE,
    "Partitions that are led here and have fewer in sync than `min.insync.replicas`.",
    advice=_TOO_FEW,
)
AT_MIN = Metric(
    "kafka_server_replicamanager_atminisrpartitioncount",
    Kind.GAUGE,
    "Partitions that are led here and have just as many in sync as `min.insync.replicas`.",
    advice="One more failure, and acks=all is refused. Normal where it equals the number of replicas.",
)
MOVING = Metric(
    "kafka_server_replicamanager_reassigningpartitions", Kind.GAUGE, "Partitions that are led here and being moved."
)
OFFLINE_REPLICAS = Metric(
    "kafka_server_replicamanager_offlinereplicacount",
    Kind.GAUGE,
    "Replicas whose log is offline: a write or sync failed, or it is damaged.",
    advice="See to the disk, then restart the node: docs/operating/disk-full.md#a-disk-fails.",
)
SHRINKS = Metric(
    "kafka_server_replicamanager_isrshrinks_total",
    Kind.COUNTER,
    "How often a replica fell out of sync with a leader here.",
    advice=_BEHIND,
)
EXPANDS = Metric(
    "kafka_server_replicamanager_isrexpands_total", Kind.COUNTER, "How often one came back in sync with a leader here."
)

_OF = ("topic", "partition")
OF_REPLICAS = Metric("kafka_cluster_partition_replicascount", Kind.GAUGE, "Replicas of a partition led here.", _OF)
OF_IN_SYNC = Metric(
    "kafka_cluster_partition_insyncreplicascount", Kind.GAUGE, "Those among them that are in sync.", _OF
)
OF_UNDER_REPLICATED = Metric("kafka_cluster_partition_underreplicated", Kind.GAUGE, "1 if not all are.", _OF, _BEHIND)
OF_UNDER_MIN = Metric(
    "kafka_cluster_partition_underminisr", Kind.GAUGE, "1 if fewer are than `min.insync.replicas`.", _OF, _TOO_FEW
)
OF_AT_MIN = Metric(
    "kafka_cluster_partition_atminisr", Kind.GAUGE, "1 if just as many are as `min.insync.replicas`.", _OF
)

TOLD_CURRENT = Metric(
    "kafka_topic_partition_current_offset",
    Kind.GAUGE,
    "The high watermark of a partition led here: the offset of the next record that consumers will see.",
    _OF,
)
TOLD_OLDEST = Metric(
    "kafka_topic_partition_oldest_offset", Kind.GAUGE, "The offset of the oldest record that is kept.", _OF
)
TOLD_LEADER = Metric(
    "kafka_topic_partition_leader", Kind.GAUGE, "The broker that leads a partition; -1 if nobody does.", _OF
)
TOLD_PREFERRED = Metric(
    "kafka_topic_partition_leader_is_preferred",
    Kind.GAUGE,
    "1 if that is the first of its replicas.",
    _OF,
    "Leaders go back by themselves within five minutes.",
)
TOLD_REPLICAS = Metric("kafka_topic_partition_replicas", Kind.GAUGE, "Replicas of a partition.", _OF)
TOLD_IN_SYNC = Metric("kafka_topic_partition_in_sync_replica", Kind.GAUGE, "Those among them that are in sync.", _OF)
TOLD_UNDER_REPLICATED = Metric(
    "kafka_topic_partition_under_replicated_partition", Kind.GAUGE, "1 if not all are.", _OF, _BEHIND
)
LEFT_OUT = Metric(
    "penstock_metrics_partitions_left_out",
    Kind.GAUGE,
    "Partitions led here that have no series of their own, because there are more than `metrics.partitions.max`.",
    advice="What counts partitions still counts them. Raise the setting if Prometheus can take it.",
)

TOLD_PLACED = (TOLD_LEADER, TOLD_REPLICAS, TOLD_IN_SYNC, TOLD_UNDER_REPLICATED)
_PER_PARTITION = (
    OF_REPLICAS,
    OF_IN_SYNC,
    OF_UNDER_REPLICATED,
    OF_UNDER_MIN,
    OF_AT_MIN,
    *TOLD_PLACED,
    TOLD_PREFERRED,
    TOLD_CURRENT,
    TOLD_OLDEST,
)
_ALONE = Placed((0,), (0,), 0, 0, 0)
"""Placeholder for a partition that the image does not hold."""


class InSyncNews:
    """Counts ISR shrinks and expands of partitions that this node leads."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.shrinks = 0
        self.expands = 0

    def learn(self, changes: Changes, _image: Image) -> None:
        """Called with each new image."""
        for change in changes.topics_changed:
            for _, before, after in change.partitions:
                if before is None or self._node_id not in (before.leader, after.leader):
                    continue
                self.shrinks += len(after.isr) < len(before.isr)
                self.expands += len(after.isr) > len(before.isr)


class ReplicaCollector(Collector):
    """See the module."""

    metrics = (
        LEADERS,
        REPLICAS,
        UNDER_REPLICATED,
        UNDER_MIN,
        AT_MIN,
        MOVING,
        OFFLINE_REPLICAS,
        SHRINKS,
        EXPANDS,
        *_PER_PARTITION,
        LEFT_OUT,
    )

    def __init__(
        self,
        partitions: Partitions,
        directory: DataDirectory,
        controller: ControllerRunner,
        news: InSyncNews,
        most: Callable[[], int],
    ) -> None:
        """The first `most` partitions by name have series of their own."""
        self._partitions = partitions
        self._directory = directory
        self._controller = controller
        self._news = news
        self._most = most

    def collect(self, page: Page) -> Iterator[None]:
        """Counts all led partitions, and adds series for the first ones."""
        logs = [log for log in self._directory.logs.values() if log.identity.topic != METADATA_TOPIC]
        page.family(REPLICAS).add(len(logs))
        page.family(OFFLINE_REPLICAS).add(sum(log.offline_reason is not None for log in logs))
        page.family(SHRINKS).add(self._news.shrinks)
        page.family(EXPANDS).add(self._news.expands)
        yield
        led, most = list(self._partitions), self._most()
        if len(led) > most:  # else the order does not matter
            led.sort(key=lambda each: (each.topic, each.index))
        under_replicated = under_min = at_min = moving = 0
        families = [page.family(metric).add for metric in _PER_PARTITION]
        for number, partition in enumerate(led):
            placed = self._placed(partition)
            is_behind, lacks, is_at_min = _judge(partition, placed)
            under_replicated += is_behind
            under_min += lacks
            at_min += is_at_min
            moving += bool(placed.adding_replicas or placed.removing_replicas)
            if number < most:
                labelled = labels(topic=partition.topic, partition=partition.index)
                for add, value in zip(families, self._values(partition, placed), strict=True):
                    add(value, labelled)
            if number % PIECE == PIECE - 1:
                yield
        page.family(LEADERS).add(len(led))
        page.family(UNDER_REPLICATED).add(under_replicated)
        page.family(UNDER_MIN).add(under_min)
        page.family(AT_MIN).add(at_min)
        page.family(MOVING).add(moving)
        page.family(LEFT_OUT).add(max(0, len(led) - most))

    def _placed(self, partition: Partition) -> Placed:
        topic = self._controller.image.topics.get(partition.topic)
        placed = None if topic is None else topic.partitions.get(partition.index)
        return _ALONE if placed is None else placed

    def _values(self, partition: Partition, placed: Placed) -> Sequence[int]:
        """Values in the order of _PER_PARTITION."""
        replicas, in_sync = len(placed.replicas), partition.in_sync_count
        is_behind, lacks, is_at_min = _judge(partition, placed)
        node_id = self._controller.node_id
        return (
            replicas,
            in_sync,
            is_behind,
            lacks,
            is_at_min,
            node_id,
            replicas,
            in_sync,
            is_behind,
            int(placed.replicas[0] == node_id),
            partition.log.high_watermark,
            partition.log.start_offset,
        )


def _judge(partition: Partition, placed: Placed) -> tuple[int, int, int]:
    """Whether replicas are out of sync, below min.insync.replicas, and exactly at it."""
    in_sync, least = partition.in_sync_count, partition.in_sync_min
    return int(in_sync < len(placed.replicas)), int(in_sync < least), int(in_sync == least)
