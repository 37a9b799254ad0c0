"""Ports of the client. The default is the host's network, clock and entropy."""

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
    """Network, clock and entropy; `close` releases their resources."""

    network: Network
    clock: Clock
    entropy: Entropy
    close: Callable[[], None] = _nothing


def host_ports(tls: "SSLContext | None" = None) -> ClientPorts:
    """Sockets, clock and randomness of this machine; with a TLS context, connections are encrypted."""
    from penstock.host.clock import HostClock
    from penstock.host.entropy import HostEntropy
    from penstock.host.lookup_threads import LookupThreads
    from penstock.host.sockets import HostNetwork

    network: Network = HostNetwork(LookupThreads())
    if tls is not None:
        from penstock.host.tls import TlsNetwork

        network = TlsNetwork(network, tls)
    return ClientPorts(network, HostClock(), HostEntropy())
