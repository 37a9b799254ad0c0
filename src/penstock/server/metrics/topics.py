"""Metrics of topics: traffic in and out on this node."""

from collections.abc import Callable, Iterator

from penstock.server.metrics.collector import PIECE, Collector
from penstock.server.metrics.page import Kind, Metric, Page, labels
from penstock.server.partitions.traffic import TopicTraffic, Traffic

_BOTH = "Without a label, of all topics since the start; with one, of a topic that is here."
_COUNTED = {
    "messages_in": Metric(
        "kafka_server_brokertopicmetrics_messagesin_total",
        Kind.COUNTER,
        f"Records that producers wrote. {_BOTH}",
        ("topic",),
    ),
    "bytes_in": Metric(
        "kafka_server_brokertopicmetrics_bytesin_total",
        Kind.COUNTER,
        f"Bytes that producers wrote, as they are stored. {_BOTH}",
        ("topic",),
    ),
    "bytes_out": Metric(
        "kafka_server_brokertopicmetrics_bytesout_total",
        Kind.COUNTER,
        f"Bytes that consumers were given. {_BOTH}",
        ("topic",),
    ),
    "produces": Metric(
        "kafka_server_brokertopicmetrics_totalproducerequests_total",
        Kind.COUNTER,
        f"Batches of producers, one per partition of a request. {_BOTH}",
        ("topic",),
    ),
    "produce_failures": Metric(
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        Kind.COUNTER,
        f"Batches among them that were not acknowledged, unless they had come to the wrong node. {_BOTH}",
        ("topic",),
        "Producers were told why: too few replicas in sync, a full disk, a batch that is too large or damaged.",
    ),
    "fetches": Metric(
        "kafka_server_brokertopicmetrics_totalfetchrequests_total",
        Kind.COUNTER,
        f"Partitions that a consumer was told something of. {_BOTH}",
        ("topic",),
    ),
    "fetch_failures": Metric(
        "kafka_server_brokertopicmetrics_failedfetchrequests_total",
        Kind.COUNTER,
        f"Partitions among them that could not be read. {_BOTH}",
        ("topic",),
        "Look at the disk: its log says more.",
    ),
}
REPLICATION_OUT = Metric(
    "kafka_server_brokertopicmetrics_replicationbytesout_total", Kind.COUNTER, "Bytes that followers were given."
)


class TopicCollector(Collector):
    """See the module."""

    metrics = (*_COUNTED.values(), REPLICATION_OUT)

    def __init__(self, traffic: Traffic, most: Callable[[], int]) -> None:
        """The first `most` topics by name have series of their own."""
        self._traffic = traffic
        self._most = most

    def collect(self, page: Page) -> Iterator[None]:
        """Reads the sums first; topics that are read later may have counted more."""
        families = {name: page.family(metric) for name, metric in _COUNTED.items()}

        def add(traffic: TopicTraffic, labelled: str) -> None:
            for name, family in families.items():
                family.add(getattr(traffic, name), labelled)

        add(self._traffic.total(), "")
        page.family(REPLICATION_OUT).add(self._traffic.replication_bytes_out)
        for number, (topic, traffic) in enumerate(sorted(self._traffic.by_topic.items())[: self._most()]):
            add(traffic, labels(topic=topic))
            if number % PIECE == PIECE - 1:
                yield
        yield
