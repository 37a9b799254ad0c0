"""Settings of nodes whose disks run full while no broker leaves the ISR for lag."""

from dataclasses import replace

from penstock.metadata.settings.layers import BrokerSettings
from penstock.server.settings import NodeSettings
from tests.simulation.three_servers.world import settings_for

RESERVE_BYTES = 100_000


def settings_of(node_id: int) -> NodeSettings:
    """Returns settings whose replica lag limit exceeds the duration of the tests."""
    settings = settings_for(node_id)
    given = {
        **settings.broker.static,
        "leader.imbalance.check.interval.seconds": "2",
        "replica.lag.time.max.ms": "60000",
    }
    return replace(settings, reserve_bytes=RESERVE_BYTES, broker=BrokerSettings(given))
