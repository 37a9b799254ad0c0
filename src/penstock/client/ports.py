"""The world as a client sees it. Whoever hands in no ports gets the host's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.ports import Clock, Entropy, Network

if TYPE_CHECKING:
    from ssl import SSLContext


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class ClientPorts:
    """Network, clock and chance; `close` gives back what was made for them."""

    network: Network
    clock: Clock
    entropy: Entropy
    close: Callable[[], None] = _nothing


def host_ports(tls: "SSLContext | None" = None) -> ClientPorts:
    """Sockets, clock and randomness of this machine; with a context, everything is encrypted."""
    from penstock.host.clock import HostClock
    from penstock.host.entropy import HostEntropy
    from penstock.host.sockets import HostNetwork
    from penstock.host.workers import ThreadWorkers

    workers = ThreadWorkers(threads_max=1)  # it looks up names; a thread starts with the first
    network: Network = HostNetwork(workers)
    if tls is not None:
        from penstock.host.tls import TlsNetwork

        network = TlsNetwork(network, tls)
    return ClientPorts(network, HostClock(), HostEntropy(), workers.close)
