"""Leaders of the partitions that this node does not lead, so that clients can be redirected (KIP-951)."""

from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.partitions.partitions import Leader


class Leaders:
    """The leaders in this node's image."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller

    def elsewhere(self, topic: str | bytes, index: int) -> Leader | None:
        """The leader of a partition, by topic name or id; None if it is unknown, or is this node."""
        image = self._controller.image
        found = image.topics.get(topic) if isinstance(topic, str) else image.topic_by_id(topic)
        placed = None if found is None else found.partitions.get(index)
        broker = None if placed is None else image.brokers.get(placed.leader)
        if placed is None or broker is None or broker.broker_id == self._controller.node_id:
            return None
        return Leader(broker.broker_id, placed.leader_epoch, broker.listeners, broker.rack)
