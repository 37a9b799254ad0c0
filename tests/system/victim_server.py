"""One node on loopback whose disk may lose unsynced data, and which may have a planted bug.

    python -m tests.system.victim_server DIRECTORY PORT [--lossy SEED] [--plant NAME] [--set name=value]

On a lossy disk the directory holds at every moment what a power cut would leave. SIGUSR1 cuts the power: between two
steps of the node a part of the unsynced data is kept or torn as the seed determines, and the process exits.
"""

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from penstock.host.faults import Faults
from penstock.host.lossy import LossyDisk
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.ports import Clock, Disk, Entropy, Network, Workers
from penstock.server.host_ports import host_ports
from penstock.server.node import Node
from penstock.server.settings import ListenerSettings, NodeSettings, UpkeepSettings
from tests.system.plants import PLANTS

TORN_CHANCE = 0.7
SYNC_S_MAX = 0.004


@dataclass(frozen=True)
class VictimPorts:
    """The host's ports with a different disk."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    network: Network
    workers: Workers


async def serve(directory: str, port: int, seed: int | None, settings: Mapping[str, str]) -> None:
    lossy: LossyDisk | None = None

    def cut() -> None:
        if lossy is not None:
            lossy.power_cut()
        os._exit(1)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, cut)
    ports: Any = host_ports(directory)
    if seed is not None:
        lossy = lossy_disk(ports.disk, Random(seed))
        ports = VictimPorts(ports.clock, ports.entropy, lossy, ports.network, ports.workers)
    broker = BrokerSettings(dict(settings))
    upkeep = UpkeepSettings(retention_ms=broker.number("log.retention.check.interval.ms"))
    node = Node(
        ports,
        NodeSettings("penstock", node_id=1, listeners=(ListenerSettings(port=port),), broker=broker, upkeep=upkeep),
    )
    await node.start()
    await asyncio.Event().wait()


def lossy_disk(inner: Disk, random: Random) -> LossyDisk:
    async def delay(_operation: str, _path: str) -> None:
        await asyncio.sleep(random.random() * SYNC_S_MAX)  # so that the power can fail meanwhile

    return LossyDisk(inner, random, Faults(is_torn=random.random() < TORN_CHANCE), delay=delay)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("port", type=int)
    parser.add_argument("--lossy", type=int, metavar="SEED")
    parser.add_argument("--plant", choices=sorted(PLANTS))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if options.plant is not None:
        PLANTS[options.plant]()
    settings = dict(each.split("=", 1) for each in options.set)
    asyncio.run(serve(options.directory, options.port, options.lossy, settings))


if __name__ == "__main__":
    main()
