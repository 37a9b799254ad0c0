"""A node: the composition root that puts ports, logs, partitions and listeners together."""

from penstock.log.directory import DataDirectory
from penstock.model.ports import Clock, Disk, Entropy, Network, Workers
from penstock.server.partitions import Partitions


class Node:
    """One broker in one process."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    network: Network
    workers: Workers
    directory: DataDirectory
    partitions: Partitions
