"""A page in Prometheus' text format (0.0.4): families of samples, each preceded by its help and its type.

A metric is declared once, with its meaning and advice; docs/metrics.md is generated from the declarations.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from penstock.server.loop.timing import Timing

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Kind(Enum):
    """The type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """Declaration of one metric."""

    name: str
    kind: Kind
    says: str
    """Its meaning in one sentence."""
    labels: tuple[str, ...] = ()
    advice: str = ""
    """What an operator should do about it."""


def labels(**values: object) -> str:
    """Labels as they follow a metric's name."""
    inside = ",".join(f'{name}="{str(value).translate(_ESCAPED)}"' for name, value in values.items())
    return f"{{{inside}}}"


class Family:
    """The samples of one metric on one page."""

    __slots__ = ("_lines", "_name", "metric")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._name = metric.name
        self._lines: list[str] = []

    def add(self, value: float, labelled: str = "") -> None:
        """Adds a sample; `labelled` is made by `labels`."""
        self._lines.append(f"{self._name}{labelled} {value}\n")

    def add_timing(self, timing: Timing, **labelled: object) -> None:
        """Adds the samples of a histogram, in seconds."""
        name = self._name
        for bound, count in timing.cumulated():
            self._lines.append(f"{name}_bucket{labels(**labelled, le=bound)} {count}\n")
        self._lines.append(f"{name}_bucket{labels(**labelled, le='+Inf')} {timing.count}\n")
        shown = labels(**labelled) if labelled else ""
        self._lines.append(f"{name}_sum{shown} {timing.sum_s}\n{name}_count{shown} {timing.count}\n")

    def __bytes__(self) -> bytes:
        metric = self.metric
        head = f"# HELP {metric.name} {metric.says}\n# TYPE {metric.name} {metric.kind.value}\n"
        return (head + "".join(self._lines)).encode()


class Page:
    """The metrics of one scrape. Several collectors may fill a family, which appears on the page once."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def family(self, metric: Metric) -> Family:
        """The family of a metric."""
        found = self._families.get(metric.name)
        if found is None:
            found = self._families[metric.name] = Family(metric)
        return found

    def families(self, metrics: Iterable[Metric]) -> list[Family]:
        """The families of several metrics."""
        return [self.family(metric) for metric in metrics]

    def pieces(self) -> Iterator[bytes]:
        """The page, family by family."""
        return map(bytes, self._families.values())
