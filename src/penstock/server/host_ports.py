"""The ports of a node on a real machine."""

import os
from dataclasses import dataclass

from penstock.host.clock import HostClock
from penstock.host.entropy import HostEntropy
from penstock.host.files import HostDisk
from penstock.host.sockets import HostNetwork
from penstock.host.workers import ThreadWorkers
from penstock.server.settings import CannotStart


@dataclass(frozen=True, slots=True)
class HostPorts:
    """Ports of this machine; the node's data is below one directory."""

    clock: HostClock
    entropy: HostEntropy
    disk: HostDisk
    network: HostNetwork
    workers: ThreadWorkers

    def close(self) -> None:
        """Closes the disk and the workers, after the node has stopped."""
        self.disk.close()
        self.workers.close()


def host_ports(data_path: str | os.PathLike[str]) -> HostPorts:
    """Opens the ports for a data path; CannotStart if another node uses it, since two would destroy the data."""
    workers = ThreadWorkers()
    disk = HostDisk(data_path, workers)
    ports = HostPorts(HostClock(), HostEntropy(), disk, HostNetwork(workers), workers)
    if not disk.claim():
        ports.close()
        raise CannotStart(f"another broker uses {os.fspath(data_path)}: stop it, or choose another directory")
    return ports
