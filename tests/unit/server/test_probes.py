"""A broker whose connection has ended is probed; only a refused connection counts as its death."""

import asyncio
from typing import Any, cast

import pytest

from penstock.metadata.image import Broker, Image
from penstock.metadata.records import BrokerEndpoint
from penstock.model.signal import Signal
from penstock.server.controller.probes import PAUSES_S, Probes
from tests.unit.server.handlers.cluster import on_virtual_time

BROKER, EPOCH = 2, 7
LISTENERS = (BrokerEndpoint(name="PLAINTEXT", host="h", port=9, security_protocol=0),)


class Scene:
    """A controller, and a network whose successive connection attempts have given outcomes."""

    def __init__(self, *outcomes: type[OSError] | None) -> None:
        self.image = Image(brokers={BROKER: Broker(BROKER, EPOCH, bytes(16), LISTENERS)})
        self.is_active = True
        self.activated: Signal[[]] = Signal()
        self.lost: list[tuple[int, int]] = []
        self.looks = 0
        self._outcomes = list(outcomes)
        self.probes = Probes(cast("Any", self), cast("Any", self))

    def lose(self, broker_id: int, broker_epoch: int) -> None:
        self.lost.append((broker_id, broker_epoch))

    async def connect(self, _host: str, _port: int) -> "Scene":
        outcome = self._outcomes[min(self.looks, len(self._outcomes) - 1)]
        self.looks += 1
        if outcome is not None:
            raise outcome
        return self

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("outcomes", "looks", "is_lost"),
    [
        ((ConnectionRefusedError,), 1, True),
        ((None, ConnectionRefusedError), 2, True),
        ((None, None, ConnectionResetError, ConnectionRefusedError), 4, True),
        ((None,), len(PAUSES_S), False),
        ((TimeoutError,), len(PAUSES_S), False),
    ],
    ids=["refused", "closed its doors one after the other", "the same, slowly", "there", "silent"],
)
def test_who_is_refused_at_any_look_is_lost(
    outcomes: tuple[type[OSError] | None, ...], looks: int, is_lost: bool
) -> None:
    async def story() -> None:
        scene = Scene(*outcomes)
        scene.probes.begin(BROKER, EPOCH)
        scene.probes.begin(BROKER, EPOCH)
        await asyncio.sleep(10)
        assert (scene.looks, scene.lost) == (looks, [(BROKER, EPOCH)] if is_lost else [])

    on_virtual_time(story)


def test_nobody_looks_on_who_is_no_longer_the_controller() -> None:
    async def story() -> None:
        scene = Scene(None, ConnectionRefusedError)
        scene.probes.begin(BROKER, EPOCH)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        scene.is_active = False
        await asyncio.sleep(10)
        assert not scene.lost

    on_virtual_time(story)
