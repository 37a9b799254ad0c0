"""A page in Prometheus' text format (0.0.4): families of samples, each with its help and its type in front.

A metric is declared once, with what it says and what to do about it: docs/metrics.md is made of that.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from penstock.server.timing import Timing

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Kind(Enum):
    """The type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One name."""

    name: str
    kind: Kind
    says: str
    """In one sentence."""
    labels: tuple[str, ...] = ()
    advice: str = ""
    """What to do about it."""


def labels(**values: object) -> str:
    """Labels as they stand behind a name."""
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
        """A sample; `labelled` is made by `labels`."""
        self._lines.append(f"{self._name}{labelled} {value}\n")

    def add_timing(self, timing: Timing, **labelled: object) -> None:
        """The samples of a histogram, in seconds."""
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
    """What is gathered at one moment. A family may be filled by several collectors, and stands on the page once."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def family(self, metric: Metric) -> Family:
        """The family of a metric."""
        found = self._families.get(metric.name)
        if found is None:
            found = self._families[metric.name] = Family(metric)
        return found

    def families(self, metrics: Iterable[Metric]) -> list[Family]:
        """Those of several metrics."""
        return [self.family(metric) for metric in metrics]

    def pieces(self) -> Iterator[bytes]:
        """The page, family by family."""
        return map(bytes, self._families.values())
