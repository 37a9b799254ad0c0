"""A cluster node started from its properties file, whose disk may lose unsynced data.

    python -m tests.system.victim_node server.properties [--lossy SEED] [--witness FILE]

SIGUSR1 cuts the power, as in `victim_server`; SIGTERM stops it cleanly.
"""

import argparse
import asyncio
import logging
import os
import signal
from pathlib import Path
from random import Random
from typing import Any

from penstock.cli.serve.run import settings_of
from penstock.cli.settings.settings_file import read_settings
from penstock.cli.settings.startup import Plan, plan_of
from penstock.server.host_ports import host_ports
from penstock.server.node import Node
from tests.system.plants import PLANTS
from tests.system.victim_server import VictimPorts, lossy_disk
from tests.system.witness import watch


async def serve(plan: Plan, seed: int | None) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    lossy: Any = None

    def cut() -> None:
        if lossy is not None:
            lossy.power_cut()
        os._exit(1)

    loop.add_signal_handler(signal.SIGUSR1, cut)
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    plan.data_path.mkdir(parents=True, exist_ok=True)
    host: Any = host_ports(plan.data_path)
    ports = host
    if seed is not None:
        lossy = lossy_disk(host.disk, Random(seed))
        ports = VictimPorts(host.clock, host.entropy, lossy, host.network, host.workers)
    node = Node(ports, settings_of(plan), on_failure=lambda said: logging.critical("FAILED: %s", said))
    await node.start()
    await stopping.wait()
    await node.stop()
    host.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--lossy", type=int, metavar="SEED")
    parser.add_argument("--plant", choices=sorted(PLANTS))
    parser.add_argument("--witness", type=Path, metavar="FILE", help="where the fates of batches are written down")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if options.plant is not None:
        PLANTS[options.plant]()
    if options.witness is not None:
        watch(options.witness)
    plan = plan_of(read_settings(options.file), allows_plaintext=False)
    asyncio.run(serve(plan, options.lossy))


if __name__ == "__main__":
    main()
