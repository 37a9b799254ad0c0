"""The pages that a node shows over HTTP.

/metrics   what it tells Prometheus
/health    200 while it serves its clients, 503 and a sentence when it does not
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.server.http_listener import Answer, Answering
from penstock.server.metrics.gathering import Gathering
from penstock.server.metrics.page import CONTENT_TYPE

if TYPE_CHECKING:
    from penstock.server.node import Node


def pages_of(node: "Node", gathering: Gathering) -> Mapping[str, Answering]:
    """By path."""

    async def metrics() -> Answer:
        return Answer(200, await gathering.page(), CONTENT_TYPE)

    async def health() -> Answer:
        trouble = why_not_serving(node)
        return Answer(200, [b"serving\n"]) if trouble is None else Answer(503, [f"{trouble}\n".encode()])

    return {"/metrics": metrics, "/health": health}


def why_not_serving(node: "Node") -> str | None:
    """What keeps a node from serving its clients; None if nothing does."""
    if node.controller.offline_reason is not None:
        return f"not serving: {node.controller.offline_reason}"
    if node.directory.offline_reason is not None:
        return f"not serving: the data directory is offline, {node.directory.offline_reason}"
    if node.is_stopping:
        return "stopping"
    if not node.is_serving:
        return "not serving yet: it has not joined its cluster"
    if node.settings.membership.is_broker and not node.is_in_touch:
        return "not serving: the controllers have not heard of this broker lately"
    return None
