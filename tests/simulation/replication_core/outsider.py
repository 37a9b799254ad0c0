"""An outsider in a world of replicas: it fetches as a follower, with a broker epoch that the image does not have.

Its fetches must not count: neither as progress of the follower, nor as a newer life that excludes the follower.
"""

from random import Random
from typing import Any, Final, NamedTuple

from penstock.replication.leader import Leader
from tests.simulation.kit.invariants import broken
from tests.simulation.replication_core.world import Broker, World

EPOCH_MAX: Final = 2**63 - 1


class Asked(NamedTuple):
    """The outsider's fetch: the log that it claims is the leader's own."""

    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start: int


class Outsider:
    """Fetches as often as the options demand; its own random stream leaves the rest of the world unchanged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random: Random = world.streams.stream("outsider")

    def begin(self) -> None:
        if self._world.options.outsider_every_ms:
            self._wait()

    def _wait(self) -> None:
        self._world.after(self._random.expovariate(1 / self._world.options.outsider_every_ms), self._strike)

    def _strike(self) -> None:
        broker = self._random.choice(list(self._world.brokers.values()))
        if broker.replicas is not None and broker.paused is None:
            led = [each.leader for each in broker.replicas.partitions.values() if each.leader is not None]
            if led:
                self._fetch(broker, self._random.choice(led))
        self._wait()

    def _fetch(self, broker: Broker, leader: Leader) -> None:
        assert broker.replicas is not None
        followers = list(leader.progress)
        if not followers:
            return
        follower_id = self._random.choice(followers)
        known = broker.replicas.image.brokers.get(follower_id)
        epoch = (-1 if known is None else known.epoch) + self._random.choice((1, 1_000, EPOCH_MAX // 2))
        epochs = list(leader._log.epochs)
        asked = Asked(
            leader._log.written_end, leader.epoch, epochs[-1].epoch if epochs else -1, leader._log.start_offset
        )
        before = _state(leader)
        leader.on_fetch(follower_id, epoch, asked, self._world.now)
        self._world.counts["outsider"] += 1
        if _state(leader) != before:
            broken(
                "OutsidersChangeNothing",
                f"a fetch as broker {follower_id} with epoch {epoch} takes the leader at {broker} "
                f"from {before} to {_state(leader)}",
            )


def _state(leader: Leader) -> tuple[Any, ...]:
    progress = tuple(
        (each, found.broker_epoch, found.end_offset, found.start_offset, found.caught_up_ms)
        for each, found in leader.progress.items()
    )
    return progress, leader.isr, leader.maximal_isr, leader.proposal
