"""The real world as a node's ports."""

import os
from dataclasses import dataclass

from penstock.host.clock import HostClock
from penstock.host.entropy import HostEntropy
from penstock.host.files import HostDisk
from penstock.host.sockets import HostNetwork
from penstock.host.workers import ThreadWorkers


@dataclass(frozen=True, slots=True)
class HostPorts:
    """This machine, with a node's data below one directory."""

    clock: HostClock
    entropy: HostEntropy
    disk: HostDisk
    network: HostNetwork
    workers: ThreadWorkers

    def close(self) -> None:
        """After the node has stopped."""
        self.disk.close()
        self.workers.close()


def host_ports(data_path: str | os.PathLike[str]) -> HostPorts:
    """The ports of a node whose data is at a path."""
    workers = ThreadWorkers()
    return HostPorts(HostClock(), HostEntropy(), HostDisk(data_path, workers), HostNetwork(workers), workers)
