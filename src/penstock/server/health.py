"""Whether a node serves its clients, and if not, why."""

from penstock.log.directory import DataDirectory
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.membership.lease import Lease
from penstock.server.supervisor import Supervisor


class Health:
    """See the module."""

    def __init__(
        self,
        controller: ControllerRunner,
        directory: DataDirectory,
        lease: Lease,
        supervisor: Supervisor,
        *,
        is_broker: bool,
    ) -> None:
        self._controller = controller
        self._directory = directory
        self._lease = lease
        self._supervisor = supervisor
        self._is_broker = is_broker
        self.is_serving = False
        """Whether the node has joined its cluster."""

    @property
    def why_not_serving(self) -> str | None:
        """The reason, as a sentence for operators; None if the node serves."""
        if self._controller.offline_reason is not None:
            return f"not serving: {self._controller.offline_reason}"
        if self._directory.offline_reason is not None:
            return f"not serving: the data directory is offline, {self._directory.offline_reason}"
        if self._supervisor.is_stopping:
            return "stopping"
        if not self.is_serving:
            return "not serving yet: it has not joined its cluster"
        if self._is_broker and not self._lease.is_in_touch:
            return "not serving: the controllers have not heard of this broker lately"
        return None
