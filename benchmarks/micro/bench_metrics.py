"""What metrics cost: while records pass, and when somebody looks.

    python -m benchmarks.micro.bench_metrics [--json] [--partitions 4000]

What is counted for one Produce request is timed by itself and set beside the handling of that request, without sockets.
Then a page of a node with many partitions: how long it takes, and for how long at a time nobody else gets a turn.
"""

import argparse
import asyncio
import json
import tempfile
from time import perf_counter

from benchmarks.micro.bench_handlers import a_node, producing
from benchmarks.micro.timing import Row, compare, report
from penstock.client.bootstrap import Address
from penstock.server.host_ports import host_ports
from penstock.server.metrics.page import Page
from penstock.server.node import Node
from penstock.server.settings import NodeSettings
from penstock.server.timing import Timing
from penstock.server.traffic import TopicTraffic

ROUNDS = 10


async def counting() -> Row:
    """The additions of one Produce request with one batch: two looks at the clock, a note, what went in."""
    time, timing, traffic, batch = asyncio.get_running_loop().time, Timing(), TopicTraffic(), bytes(16_384)

    def count() -> None:
        began_s = time()
        traffic.produces += 1
        traffic.bytes_in += len(batch)
        traffic.messages_in += 141 + 1 - 0
        timing.note(time() - began_s)

    produce, _ = producing(await a_node())
    return compare("what is counted for one Produce request", count, produce, "the request")


async def looking(partitions: int) -> dict[str, float]:
    """The best of some rounds: the whole page, its longest piece, its size."""
    with tempfile.TemporaryDirectory() as directory:
        ports = host_ports(directory)
        node = Node(ports, NodeSettings("bench", listen_port=0, metrics=Address("127.0.0.1", 0)))
        await node.start()
        await node.add_topic("bench", bytes(16), partitions)
        assert node._gathering is not None
        whole_s = piece_s = float("inf")
        size_bytes = 0
        for _ in range(ROUNDS):
            began = before = perf_counter()
            page, longest = Page(), 0.0
            for collector in node._gathering._collectors:
                for _ in collector.collect(page):
                    now = perf_counter()
                    longest, before = max(longest, now - before), now
            size_bytes = 0
            for piece in page.pieces():
                size_bytes += len(piece)
                now = perf_counter()
                longest, before = max(longest, now - before), now
            whole_s, piece_s = min(whole_s, perf_counter() - began), min(piece_s, longest)
        await node.stop()
        ports.close()
    return {
        "partitions": partitions,
        "page_ms": round(1000 * whole_s, 2),
        "longest_piece_ms": round(1000 * piece_s, 2),
        "page_bytes": size_bytes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=4_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report([asyncio.run(counting())])
    for partitions in sorted({10, arguments.partitions}):
        found = asyncio.run(looking(partitions))
        if arguments.json:
            print(json.dumps(found))
        else:
            size = f"{found['page_bytes'] / 1024:,.0f} KiB, at most {found['longest_piece_ms']:.2f} ms at a time"
            print(f"a page of {partitions:,} partitions: {found['page_ms']:.1f} ms, {size}")


if __name__ == "__main__":
    main()
