"""10,000 records of 100 bytes from a program without an event loop to a node on loopback, until all are acknowledged.

The blocking producer is measured against the asyncio one in the same process: `send` of every record, then `flush`. The
node runs in a process of its own. Median of the rounds, which take turns; a few seconds.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from harness.penstock_node import PenstockNode
from penstock.client import Client, SyncClient

RECORDS = 10_000
VALUE = b"x" * 100
ROUNDS = 7
TOPIC = "bench"


def blocking(client: SyncClient) -> float:
    """Seconds with the blocking producer."""
    began_s = time.perf_counter()
    with client.producer() as producer:
        for number in range(RECORDS):
            producer.publish(TOPIC, VALUE, str(number))
    return time.perf_counter() - began_s


async def with_a_loop(bootstrap: str) -> float:
    """Seconds with the asyncio producer."""
    async with Client(bootstrap) as client:
        await client.topics()
        began_s = time.perf_counter()
        producer = client.producer()
        for number in range(RECORDS):
            await producer.send(TOPIC, VALUE, b"%d" % number)
        await producer.flush()
        return time.perf_counter() - began_s


def main() -> None:
    """Prints both figures and their ratio."""
    with (
        tempfile.TemporaryDirectory() as directory,
        PenstockNode(Path(directory)) as node,
        Client.blocking(node.bootstrap) as client,
    ):
        client.create_topic(TOPIC, 3)
        rounds = [(blocking(client), asyncio.run(with_a_loop(node.bootstrap))) for _ in range(ROUNDS)]
    ours, other = (statistics.median(each) for each in zip(*rounds, strict=True))
    worst = max(each for each, _ in rounds)
    print(f"blocking producer, {RECORDS:,} records: {ours:.3f} s, at most {worst:.3f} s")
    print(f"asyncio producer,  {RECORDS:,} records: {other:.3f} s, ratio {ours / other:.2f}")


if __name__ == "__main__":
    main()
