"""The world as a client sees it. Whoever hands in no ports gets the host's."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.model.ports import Clock, Entropy, Network


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class ClientPorts:
    """Network, clock and chance; `close` gives back what was made for them."""

    network: Network
    clock: Clock
    entropy: Entropy
    close: Callable[[], None] = _nothing


def host_ports() -> ClientPorts:
    """Sockets, clock and randomness of this machine."""
    from penstock.host.clock import HostClock
    from penstock.host.entropy import HostEntropy
    from penstock.host.sockets import HostNetwork
    from penstock.host.workers import ThreadWorkers

    workers = ThreadWorkers(threads_max=1)  # it looks up names; a thread starts with the first
    return ClientPorts(HostNetwork(workers), HostClock(), HostEntropy(), workers.close)
