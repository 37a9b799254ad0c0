"""The topics of the cluster as groups use them, rebuilt only after a change that affects assignments.

Changes of leaders and of the ISR are frequent and affect no assignment.
"""

from penstock.coordinator.topics import NO_TOPICS, Topics, topics_of
from penstock.metadata.changes import Changes, TopicChange
from penstock.metadata.image import Broker, Image
from penstock.server.controller.controller_runner import ControllerRunner


class GroupTopics:
    """See the module. Call `learn` on every change, and `now` to get the topics."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller
        self._known = NO_TOPICS
        self._is_stale = True

    def now(self) -> Topics:
        """The topics of the current image."""
        if self._is_stale:
            self._is_stale = False
            self._known = topics_of(self._controller.image, self._known.version + 1)
        return self._known

    def learn(self, changes: Changes, image: Image) -> None:
        """Marks the topics as stale if the changes affect assignments."""
        if self._is_stale:
            return
        has_racks = any(broker.rack for broker in image.brokers.values())
        self._is_stale = (
            bool(changes.topics_created or changes.topics_deleted)
            or any(_rack(old) != _rack(new) for _, old, new in changes.brokers)
            or any(_is_other(change, has_racks=has_racks) for change in changes.topics_changed)
        )


def _rack(broker: Broker | None) -> str | None:
    return None if broker is None else broker.rack


def _is_other(change: TopicChange, *, has_racks: bool) -> bool:
    if len(change.old.partitions) != len(change.new.partitions):
        return True
    return has_racks and any(old is None or old.replicas != new.replicas for _, old, new in change.partitions)
