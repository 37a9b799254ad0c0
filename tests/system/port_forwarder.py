"""Forwards ports, as a container engine does for the ports that a service publishes.

    python -m tests.system.port_forwarder 127.0.0.1:19092=10.77.1.2:19092 ...

Prints a line once all of them are bound.
"""

import asyncio
import sys
from contextlib import suppress
from functools import partial

PIECE_BYTES = 1 << 16


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(PIECE_BYTES):
            target.write(piece)
            await target.drain()
    target.close()


async def _forward(to: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    host, _, port = to.rpartition(":")
    try:
        there, back = await asyncio.open_connection(host, int(port))
    except OSError:
        writer.close()
        return
    await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def main(*pairs: str) -> None:
    """See the module."""
    for pair in pairs:
        place, _, to = pair.partition("=")
        host, _, port = place.rpartition(":")
        await asyncio.start_server(partial(_forward, to), host, int(port))
    print("bound", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
