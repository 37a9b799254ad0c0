"""The queries of deploy/grafana/penstock.json, and traffic that gives each of them something to show."""

import json
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from penstock import SyncClient
from tests.system.containerfile import DEPLOY
from tests.system.prometheus import Questions

FOUND_S: Final = 240.0
TOPICS: Final = (("orders", 2, 3), ("strict", 3, 3), ("alone", 1, 1))
"""Names, min.insync.replicas and replicas."""
MOVING: Final = ("Records in", "Bytes in", "Bytes out")


def queries(rate_interval: str = "10s") -> dict[str, str]:
    """Every query of the dashboard, as Grafana would send it."""
    variables = {"$__rate_interval": rate_interval, "$job": "penstock", "$instance": ".+", "$topic": ".+"}
    dashboard = json.loads((DEPLOY / "grafana" / "penstock.json").read_text())
    found = {}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in variables.items():
                expression = expression.replace(name, value)
            assert "$" not in expression
            found[f"{panel['title']} {target['refId']}"] = expression
    return found


def metrics_in(text: str) -> set[str]:
    """The names of the metrics in queries."""
    names = re.findall(r"\b(?:kafka|penstock|process)_[a-z_]+", re.sub(r"\{[^}]*\}", "", text))
    return {name.removesuffix("_bucket") for name in names}


@contextmanager
def traffic(bootstrap: str) -> Iterator[list[int]]:
    """A client that writes and reads; the list holds the number of acknowledged records."""
    stop, counts = threading.Event(), [0]

    def go_on() -> None:
        with SyncClient(bootstrap) as client:
            client.commit_offset("orders", "billing", 0, 0)
            for partition in range(6):
                client.commit_offset("alone", "billing", partition, 0)
            while not stop.is_set():
                for number in range(20):
                    client.publish("orders", b"v" * 100, str(number).encode())
                    counts[0] += 1
                deque(islice(client.consume("orders", "earliest"), 20), maxlen=0)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield counts
    finally:
        stop.set()
        thread.join(300)


def watch(prometheus: Questions, wanted: dict[str, str]) -> None:
    """Checks that every dashboard query returns data, and that rates are positive under traffic."""
    missing = dict(wanted)

    def all_found() -> bool:
        for title in [title for title, query in missing.items() if prometheus.query(query)]:
            del missing[title]
        return not missing

    try:
        prometheus.until(all_found, FOUND_S)
    except AssertionError as error:
        raise AssertionError(f"these find nothing: {missing}\n{error}") from None
    moving = [query for title, query in wanted.items() if title.startswith(MOVING)]
    assert len(moving) == 4
    prometheus.until(lambda: all(sum(value for _, value in prometheus.query(query)) > 0 for query in moving), FOUND_S)
