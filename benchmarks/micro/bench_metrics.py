"""The cost of metrics: per request, and per scrape.

    python -m benchmarks.micro.bench_metrics [--json] [--partitions 4000]

The counters of one Produce request are timed alone and compared with handling that request, without sockets. Then the
metrics page of a node with many partitions: its total time, and the longest time for which it blocks the loop.
"""

import argparse
import asyncio
import json
import tempfile
from time import perf_counter

from benchmarks.micro.bench_handlers import a_node, producing
from benchmarks.micro.timing import Row, compare, report
from harness.led_topics import add_topic
from penstock.client.bootstrap import Address
from penstock.server.host_ports import host_ports
from penstock.server.loop.timing import Timing
from penstock.server.metrics.page import Page
from penstock.server.node import Node
from penstock.server.partitions.traffic import TopicTraffic
from penstock.server.settings import ListenerSettings, NodeSettings

ROUNDS = 10


async def counting() -> Row:
    """The counting for one Produce request with one batch: two clock reads, one timing, three counters."""
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
    """The best of several rounds: time of the whole page, time of its longest piece, and its size."""
    with tempfile.TemporaryDirectory() as directory:
        ports = host_ports(directory)
        node = Node(
            ports, NodeSettings("bench", listeners=(ListenerSettings(port=0),), metrics=Address("127.0.0.1", 0))
        )
        await node.start()
        await add_topic(node, "bench", bytes(16), partitions)
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
