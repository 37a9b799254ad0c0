"""The ports that a node needs."""

from typing import Protocol

from penstock.model.ports import Clock, Disk, Entropy, Network, Workers


class Ports(Protocol):
    """A node's interfaces to the outside world."""

    @property
    def clock(self) -> Clock:
        """Time."""

    @property
    def entropy(self) -> Entropy:
        """Randomness."""

    @property
    def disk(self) -> Disk:
        """Storage of the node's data."""

    @property
    def network(self) -> Network:
        """Listeners and connections."""

    @property
    def workers(self) -> Workers:
        """Executes blocking calls."""
