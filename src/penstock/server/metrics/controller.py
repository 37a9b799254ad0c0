"""Metrics of the cluster from its active controller; on all other nodes the gauges are zero or absent.

So a sum over all nodes counts everything once. While one controller takes over from another, none or both may report
for a moment.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from penstock.metadata.changes import Changes
from penstock.metadata.image import Image
from penstock.metadata.partition_change import RECOVERING
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.metrics.collector import PIECE, Collector
from penstock.server.metrics.page import Kind, Metric, Page, labels
from penstock.server.metrics.replicas import TOLD_PLACED
from penstock.server.partitions.partitions import Partitions

ACTIVE = Metric(
    "kafka_controller_kafkacontroller_activecontrollercount",
    Kind.GAUGE,
    "1 on the node that decides for the cluster.",
    advice="The sum must be 1. If it is 0 for more than seconds, a majority of controllers is down or cut off.",
)
OFFLINE = Metric(
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    Kind.GAUGE,
    "Partitions that nobody leads: they can be neither written nor read.",
    advice="Bring back the brokers that have their replicas: docs/operating/broker-down.md.",
)
TOPICS = Metric("kafka_controller_kafkacontroller_globaltopiccount", Kind.GAUGE, "Topics of the cluster.")
PARTITIONS = Metric("kafka_controller_kafkacontroller_globalpartitioncount", Kind.GAUGE, "Partitions of the cluster.")
BROKERS_ACTIVE = Metric("kafka_controller_kafkacontroller_activebrokercount", Kind.GAUGE, "Brokers that are let in.")
BROKERS_FENCED = Metric(
    "kafka_controller_kafkacontroller_fencedbrokercount",
    Kind.GAUGE,
    "Brokers that are known and not let in.",
    advice="One that is down, or was removed for good and not unregistered.",
)
UNCLEAN = Metric(
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    Kind.COUNTER,
    "Leaders that were elected without having all committed records, while this node decided.",
    advice="Records are lost. Only `unclean.leader.election.enable`, or somebody who asks for it, allows that.",
)
BROKERS = Metric("kafka_brokers", Kind.GAUGE, "Brokers that are let in, as kafka_exporter names it.")
TOPIC_PARTITIONS = Metric("kafka_topic_partitions", Kind.GAUGE, "Partitions of a topic.", ("topic",))


class ElectionNews:
    """Counts unclean elections while this node is the active controller."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller
        self.unclean = 0

    def learn(self, changes: Changes, _image: Image) -> None:
        """Called with each new image."""
        if not self._controller.is_active:
            return
        for change in changes.topics_changed:
            for _, before, after in change.partitions:
                is_new = before is None or before.leader_epoch != after.leader_epoch
                self.unclean += is_new and after.leader_recovery_state == RECOVERING


class ControllerCollector(Collector):
    """See the module."""

    metrics = (
        ACTIVE,
        OFFLINE,
        TOPICS,
        PARTITIONS,
        BROKERS_ACTIVE,
        BROKERS_FENCED,
        UNCLEAN,
        BROKERS,
        TOPIC_PARTITIONS,
        *TOLD_PLACED,
    )

    def __init__(
        self, controller: ControllerRunner, partitions: Partitions, news: ElectionNews, most: Callable[[], int]
    ) -> None:
        """At most `most` topics and `most` leaderless partitions have series of their own."""
        self._controller = controller
        self._partitions = partitions
        self._news = news
        self._most = most

    def collect(self, page: Page) -> Iterator[None]:
        """Reads one image, however long it takes."""
        controller, image = self._controller, self._controller.image
        is_active = controller.is_active
        index = controller.index if is_active else None
        fenced = sum(each.is_fenced for each in image.brokers.values())
        known = len(image.brokers)
        for metric, value in (
            (ACTIVE, 1),
            (OFFLINE, 0 if index is None else index.leaderless_count),
            (TOPICS, len(image.topics)),
            (PARTITIONS, image.partition_count),
            (BROKERS_ACTIVE, known - fenced),
            (BROKERS_FENCED, fenced),
        ):
            page.family(metric).add(value if is_active else 0)
        page.family(UNCLEAN).add(self._news.unclean)
        if index is None:
            return
        page.family(BROKERS).add(known - fenced)
        families = page.families(TOLD_PLACED)
        for topic, number, placed in list(islice(index.leaderless, self._most())):
            if self._partitions.named(topic.name, number) is None:
                labelled = labels(topic=topic.name, partition=number)
                for family, value in zip(families, (-1, len(placed.replicas), len(placed.isr), 1), strict=True):
                    family.add(value, labelled)
        yield
        add = page.family(TOPIC_PARTITIONS).add
        for number, name in enumerate(sorted(image.topics)[: self._most()]):
            add(len(image.topics[name].partitions), labels(topic=name))
            if number % PIECE == PIECE - 1:
                yield
