"""Selects the moving replicas that a broker copies now, and their rate, as a function of the image.

Every broker computes this from the image that all brokers share. The throttle therefore needs no setup or removal: a
replica is throttled exactly while it is being added.
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.metadata.image import NO_LEADER
from penstock.metadata.index import PartitionEntry
from penstock.metadata.settings.layers import BrokerSettings


class Copying(NamedTuple):
    """Partitions that a broker may copy now."""

    partitions: tuple[PartitionEntry, ...]
    bytes_per_second_max: int
    """For all of them together."""


def copying(broker_id: int, own: Iterable[PartitionEntry], settings: BrokerSettings) -> Copying:
    """Selects, from a broker's partitions in order, the added replicas that it may copy now.

    A replica that is in sync is done and takes no slot. A partition without a leader has no source to copy from and
    must not block the others.
    """
    on_the_way = [
        entry
        for entry in own
        if broker_id in entry.partition.adding_replicas
        and broker_id not in entry.partition.isr
        and entry.partition.leader != NO_LEADER
    ]
    return Copying(
        tuple(on_the_way[: settings.number("reassignment.replicas.per.broker.max")]),
        settings.number("reassignment.bytes.per.second.max"),
    )
