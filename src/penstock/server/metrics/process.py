"""Metrics of the process: resources that it uses, and stalls of its event loop."""

from collections.abc import Callable, Iterator

from penstock.model.ports import Clock, Footprint
from penstock.server.loop.stall import StallMeter
from penstock.server.metrics.collector import Collector
from penstock.server.metrics.page import Kind, Metric, Page, labels
from penstock.server.metrics.window import Window
from penstock.version import __version__

INFO = Metric(
    "penstock_info",
    Kind.GAUGE,
    "Always 1; its labels say which node of which cluster this is, and its version.",
    ("cluster", "node", "version"),
    "More than one version for long: an upgrade was not finished.",
)
CPU = Metric("process_cpu_seconds_total", Kind.COUNTER, "CPU time that the process has used, all threads together.")
MEMORY = Metric(
    "process_resident_memory_bytes",
    Kind.GAUGE,
    "Memory that the process holds.",
    advice="It grows with connections, partitions and the input pool; if it grows by itself for days, report it.",
)
FILES = Metric("process_open_fds", Kind.GAUGE, "File descriptors in use.")
FILES_MAX = Metric(
    "process_max_fds",
    Kind.GAUGE,
    "File descriptors that the process may use.",
    advice="Raise the limit (ulimit -n, LimitNOFILE) before open ones come near it.",
)
BEGAN = Metric("process_start_time_seconds", Kind.GAUGE, "When the process began, in seconds since 1970.")
NETWORK_IDLE = Metric(
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    Kind.GAUGE,
    "The share of one core, 0 to 1, that the process left unused in about the last half minute: one event loop does "
    "what Kafka's network threads do.",
    advice="Below 0.3 for long: add brokers, or move leaders away.",
)
HANDLERS_IDLE = Metric(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    Kind.GAUGE,
    "The same number: the same loop does what Kafka's request handlers do.",
    advice="Below 0.3 for long: add brokers, or move leaders away.",
)
LATE = Metric(
    "penstock_loop_late_seconds_max",
    Kind.GAUGE,
    "The longest that the event loop stood still in the last minute; every client waited so long.",
    advice="Above 0.2: more CPU, a faster disk, smaller requests.",
)
STALLS = Metric(
    "penstock_loop_stalls_total", Kind.COUNTER, "How often the event loop stood still for more than 200 ms."
)


class ProcessCollector(Collector):
    """See the module."""

    metrics = (INFO, CPU, MEMORY, FILES, FILES_MAX, BEGAN, NETWORK_IDLE, HANDLERS_IDLE, LATE, STALLS)

    def __init__(
        self,
        cluster_id: str,
        node_id: int,
        stalls: StallMeter,
        clock: Clock,
        footprint: Callable[[], Footprint] | None,
    ) -> None:
        """`footprint` measures the process; None where there is none, as in a simulation."""
        self._info = labels(cluster=cluster_id, node=node_id, version=__version__)
        self._stalls = stalls
        self._clock = clock
        self._footprint = footprint
        self._cpu = Window(footprint().cpu_s if footprint is not None else 0.0, clock.monotonic_ms())

    def collect(self, page: Page) -> Iterator[None]:
        """Fills the page in one piece."""
        page.family(INFO).add(1, self._info)
        page.family(LATE).add(round(self._stalls.max_ms / 1000, 6))
        page.family(STALLS).add(self._stalls.stalls)
        if self._footprint is not None:
            found = self._footprint()
            page.family(CPU).add(found.cpu_s)
            page.family(MEMORY).add(found.resident_bytes)
            page.family(FILES).add(found.open_files)
            page.family(FILES_MAX).add(found.open_files_max)
            page.family(BEGAN).add(found.began_s)
            idle = max(0.0, 1.0 - self._cpu.per_second(found.cpu_s, self._clock.monotonic_ms()))
            page.family(NETWORK_IDLE).add(round(idle, 4))
            page.family(HANDLERS_IDLE).add(round(idle, 4))
        yield
