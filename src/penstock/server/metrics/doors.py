"""Metrics of listeners: connections, requests, and how long they take."""

from collections.abc import Iterator, Mapping

from penstock.server.connections.input_pool import InputPool
from penstock.server.connections.listeners import Door
from penstock.server.metrics.collector import Collector
from penstock.server.metrics.page import Kind, Metric, Page, labels

CONNECTIONS = Metric(
    "kafka_server_socket_server_metrics_connection_count",
    Kind.GAUGE,
    "Open connections of a listener. Its `kind` is `clients` (brokers' fetches are among them) or `controllers`.",
    ("listener", "kind"),
)
REFUSED = Metric(
    "penstock_connections_refused_total",
    Kind.COUNTER,
    "Connections that were closed because of a limit.",
    ("listener", "kind"),
    "The log says which limit, and who came.",
)
POOL = Metric(
    "penstock_input_pool_bytes",
    Kind.GAUGE,
    "Memory for requests that arrive or are under way.",
    advice="Near its limit, sockets are read more slowly: producers send faster than the disk writes.",
)
POOL_MAX = Metric("penstock_input_pool_bytes_max", Kind.GAUGE, "The most that it may be.")
REQUESTS = Metric(
    "kafka_network_requestmetrics_requests_total",
    Kind.COUNTER,
    "Requests that were answered, by API.",
    ("listener", "kind", "request"),
)
SECONDS = Metric(
    "penstock_request_seconds",
    Kind.HISTOGRAM,
    "From the moment a request was read to the moment its answer was there: with acks=all when replicas have it, of "
    "a Fetch with the time that it waited for records.",
    ("listener", "kind", "request", "le"),
    "Produce above a second: look at disks (`penstock_commit_seconds`), then at followers, then at the loop.",
)


class DoorCollector(Collector):
    """See the module."""

    metrics = (CONNECTIONS, REFUSED, POOL, POOL_MAX, REQUESTS, SECONDS)

    def __init__(self, doors: Mapping[str, Door], *pools: InputPool) -> None:
        """`doors` are the listeners by name."""
        self._doors = doors
        self._pools = pools

    def collect(self, page: Page) -> Iterator[None]:
        """Leaves out APIs that have had no requests."""
        page.family(POOL).add(sum(pool.used_bytes for pool in self._pools))
        page.family(POOL_MAX).add(sum(pool.bytes_max for pool in self._pools))
        for name, (listener, dispatch, kind) in self._doors.items():
            labelled = labels(listener=name, kind=kind)
            page.family(CONNECTIONS).add(len(listener), labelled)
            page.family(REFUSED).add(listener.refused, labelled)
            for route in dispatch.routes.values():
                if count := route.timing.count:
                    title = route.api.title
                    page.family(REQUESTS).add(count, labels(listener=name, kind=kind, request=title))
                    page.family(SECONDS).add_timing(route.timing, listener=name, kind=kind, request=title)
            yield
