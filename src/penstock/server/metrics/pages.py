"""The pages that a node serves over HTTP.

/metrics   metrics for Prometheus
/health    200 while the node serves its clients, 503 and the reason when it does not
"""

from collections.abc import Mapping

from penstock.server.connections.http_listener import Answer, Answering
from penstock.server.health import Health
from penstock.server.metrics.gathering import Gathering
from penstock.server.metrics.page import CONTENT_TYPE


def pages_of(health: Health, gathering: Gathering) -> Mapping[str, Answering]:
    """The pages, by path."""

    async def metrics() -> Answer:
        return Answer(200, await gathering.page(), CONTENT_TYPE)

    async def show_health() -> Answer:
        trouble = health.why_not_serving
        return Answer(200, [b"serving\n"]) if trouble is None else Answer(503, [f"{trouble}\n".encode()])

    return {"/metrics": metrics, "/health": show_health}
