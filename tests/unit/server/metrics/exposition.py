"""A strict parser of Prometheus' text format (0.0.4): whatever a scraper would reject is an AssertionError."""

import re
from collections import defaultdict
from typing import NamedTuple

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
SUFFIXES = ("_bucket", "_sum", "_count")


class Told(NamedTuple):
    """A parsed page: types by family, values by name and labels."""

    kinds: dict[str, str]
    values: dict[str, dict[tuple[tuple[str, str], ...], float]]

    def value(self, name: str, **labels: str) -> float:
        return self.values[name][tuple(sorted(labels.items()))]

    def sum(self, name: str) -> float:
        return sum(self.values[name].values())

    def labels(self, name: str, label: str) -> list[str]:
        return [dict(each).get(label, "") for each in self.values[name]]


def read(text: str) -> Told:
    kinds: dict[str, str] = {}
    values: defaultdict[str, dict[tuple[tuple[str, str], ...], float]] = defaultdict(dict)
    family = ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            assert re.fullmatch(r"# HELP \S+ \S.*\S", line), line
            continue
        if line.startswith("# TYPE "):
            family, kind = line.removeprefix("# TYPE ").split(" ")
            assert family not in kinds, f"{family} stands there twice"
            assert kind in ("counter", "gauge", "histogram")
            kinds[family] = kind
            continue
        found = _SAMPLE.fullmatch(line)
        assert found, line
        name, inside, value = found.groups()
        bare = next(
            (name.removesuffix(each) for each in SUFFIXES if kinds[family] == "histogram" and name.endswith(each)), name
        )
        assert bare == family, f"{line} does not belong to {family}"
        labels = [(label, _unescape(text)) for label, text in _LABEL.findall(inside or "")]
        assert _LABEL.sub("", inside or "") == "", line
        key = tuple(sorted(labels))
        assert len(dict(key)) == len(key), line
        assert key not in values[name], f"{line} stands there twice"
        values[name][key] = float(value)
    told = Told(kinds, dict(values))
    for name in (each for each, kind in kinds.items() if kind == "histogram"):
        _check_histogram(told, name)
    return told


def _unescape(text: str) -> str:
    return re.sub(r'\\["\\n]', lambda found: _UNESCAPED[found[0]], text)


def _check_histogram(told: Told, name: str) -> None:
    """Checks that buckets grow, and end with the count."""
    buckets: defaultdict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = defaultdict(list)
    for key, count in told.values.get(f"{name}_bucket", {}).items():
        rest = tuple(each for each in key if each[0] != "le")
        buckets[rest].append((float(dict(key)["le"]), count))
    for key, found in buckets.items():
        counts = [count for _, count in sorted(found)]
        assert counts == sorted(counts), (name, key)
        assert max(found)[0] == float("inf")
        assert counts[-1] == told.values[f"{name}_count"][key]
