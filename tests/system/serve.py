"""Runs one node on loopback until its standard input ends, and prints its address: `… -m tests.system.serve DIR`."""

import asyncio
import logging
import sys
from dataclasses import replace

from penstock.model.limits import DEFAULT_LIMITS
from penstock.server.host_ports import host_ports
from penstock.server.node import Node
from penstock.server.settings import ListenerSettings, NodeSettings


async def main(path: str) -> None:
    ports = host_ports(path)
    limits = replace(DEFAULT_LIMITS, connection_rate_max=100_000)
    node = Node(ports, NodeSettings("system-test", listeners=(ListenerSettings(port=0),), limits=limits))
    await node.start()
    print(node.address, flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()
    await node.stop()
    ports.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    asyncio.run(main(sys.argv[1]))
