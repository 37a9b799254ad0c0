"""A cluster balances itself, bounded and throttled, with brokers that copy as fast as they may."""

import pytest

from penstock.metadata.copying import copying
from penstock.metadata.settings.layers import BrokerSettings
from tests.simulation.controller_core import balance
from tests.simulation.controller_core.balance import Balance

MEBIBYTE = 1 << 20
SETTINGS = {"reassignment.replicas.per.broker.max": "4", "reassignment.bytes.per.second.max": str(8 * MEBIBYTE)}


def test_a_fourth_broker_gets_its_share_and_a_leaving_one_is_emptied() -> None:
    cluster = Balance(300, MEBIBYTE, SETTINGS)
    joined = cluster.join(4)
    assert joined.unevenness <= 0.1, joined.held
    assert max(joined.led.values()) - min(joined.led.values()) <= 15, joined.led
    assert joined.arriving_most <= 4
    assert joined.bytes_per_s_most <= 8 * MEBIBYTE
    assert joined.virtual_s >= joined.moved * MEBIBYTE / (8 * MEBIBYTE) * 0.9, "faster than it may be"

    left = cluster.decommission(2)
    assert left.held[2] == 0
    assert left.unevenness <= 0.1, left.held
    assert left.arriving_most <= 4
    assert left.bytes_per_s_most <= 8 * MEBIBYTE


def test_a_broker_that_does_not_mind_the_throttle_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_a_hurry(broker_id: int, own: object, settings: BrokerSettings) -> object:
        return copying(broker_id, own, settings)._replace(bytes_per_second_max=1 << 40)  # type: ignore[arg-type]

    monkeypatch.setattr(balance, "copying", in_a_hurry)
    assert Balance(60, MEBIBYTE, SETTINGS).join(4).bytes_per_s_most > 8 * MEBIBYTE
