"""Which replicas that are on the way to a broker it copies now, and how fast: a function of the image.

Every broker works this out for itself from the image that all of them have. So the throttle has nothing to be set or
taken away: a replica is throttled while it is among those that are being added, and no longer.
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.metadata.image import NO_LEADER
from penstock.metadata.index import Placed
from penstock.metadata.settings.layers import BrokerSettings


class Copying(NamedTuple):
    """What a broker may copy at this time."""

    partitions: tuple[Placed, ...]
    bytes_per_second_max: int
    """All of them together."""


def copying(broker_id: int, own: Iterable[Placed], settings: BrokerSettings) -> Copying:
    """Of the partitions that a broker has replicas of, in order, those being added that it may copy now.

    Who is in sync already is through and takes no place; who has no leader has nothing to copy from, and must not keep
    the others waiting.
    """
    on_the_way = [
        placed
        for placed in own
        if broker_id in placed.partition.adding_replicas
        and broker_id not in placed.partition.isr
        and placed.partition.leader != NO_LEADER
    ]
    return Copying(
        tuple(on_the_way[: settings.number("reassignment.replicas.per.broker.max")]),
        settings.number("reassignment.bytes.per.second.max"),
    )
