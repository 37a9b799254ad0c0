"""The shop of examples/shop on a cluster, an executor and the broker killed midway.

python -m tests.spark.shop --picture docs/pictures/shop.svg
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from deltalake import DeltaTable

from examples.shop import generate
from examples.shop.picture import Sample, Story, picture
from harness.spark.shared_classes import java_options
from harness.spark.standalone import StandaloneSpark
from penstock import Client
from penstock.client.blocking import SyncClient
from tests.spark.lake.campaign import SPARK
from tests.spark.lake.pipelines import Driver, Pipeline, environment
from tests.system.victim import Victim

SHOP = Path(__file__).parents[2] / "examples" / "shop"
TABLES = ("clicks", "orders", "payments")
LAKES = tuple(f"{name}_lake" for name in TABLES)
RATE = 500.0
SLICE = 500
"""Number of events written before the generator checks whether to stop."""
SAMPLE_S = 0.25
DEADLINE_S = 300.0


class Generator(threading.Thread):
    """Writes the events of the shop until it is stopped."""

    def __init__(self, address: str) -> None:
        super().__init__(name="shop", daemon=True)
        self.shop = generate.Shop()
        self._address = address
        self._failure: BaseException | None = None
        self._over = threading.Event()

    def write_some(self) -> None:
        """Writes one slice."""
        asyncio.run(generate.generate(self._address, self.shop, SLICE, RATE))

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self.write_some()
        except BaseException as error:
            self._failure = error

    def finish(self) -> generate.Ledger:
        """Stops, and returns what was written."""
        self._over.set()
        self.join(DEADLINE_S)
        assert not self.is_alive(), "the generator waits for a broker"
        assert self._failure is None, self._failure
        return self.shop.ledger


class Observer(threading.Thread):
    """Samples the state several times a second."""

    def __init__(self, generator: Generator, driver: Driver) -> None:
        super().__init__(name="observer", daemon=True)
        self.samples: list[Sample] = []
        self._began_s = time.monotonic()
        self._generator = generator
        self._driver = driver
        self._over = threading.Event()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began_s

    def run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._over.wait(SAMPLE_S)
            rows = {name.removesuffix("_lake"): count for name, count in self._driver.rows_by_name().items()}
            written = sum(self._generator.shop.ledger.records.values())
            self.samples.append(Sample(round(self.now_s, 2), written, rows))

    def finish(self) -> None:
        self._over.set()
        self.join()


def run_shop(directory: Path) -> Story:
    """A run from the first record to the audits. Raises AssertionError if anything differs from what was written."""
    with contextlib.ExitStack() as held:
        broker = held.enter_context(Victim(directory / "broker"))
        broker.data.parent.mkdir(parents=True)
        broker.start()
        broker.wait_ready()
        cluster = held.enter_context(StandaloneSpark(directory / "cluster", cores=2, memory="2g", java=java_options()))
        place = directory / "shop"
        place.mkdir()
        (place / "penstock.yml").write_text(_described(cluster.url, broker.address))
        asyncio.run(_with_topics(broker.address))
        generator = Generator(broker.address)
        driver = Driver(place)
        held.callback(driver.kill)
        generator.write_some()
        driver.wait_for_each(LAKES)
        observer = Observer(generator, driver)
        generator.start()
        observer.start()
        struck = _strike(driver, observer, cluster, broker)
        ledger = generator.finish()
        driver.wait_for(sum(ledger.records.values()) - sum(ledger.poison.values()))
        observer.finish()
        assert driver.end() == 0, driver.log
        client = held.enter_context(SyncClient(broker.address))
        audits = _audited(Pipeline(place, broker.address, "", client))
        letters = _dead_letters(client)
        assert len(letters) == sum(ledger.poison.values())
        for name in TABLES:
            assert DeltaTable(place / "lake" / name).count() == ledger.records[name] - ledger.poison[name]
        assert _revenue(place) == dict(ledger.revenue_cents)
        return Story(observer.samples, struck, len(letters), audits)


def _described(master: str, bootstrap: str) -> str:
    """The shop's file, for this cluster and this broker."""
    text = (SHOP / "penstock.yml").read_text()
    local = "\n  master: local[*]\n  checkpoints: .penstock/checkpoints\n  memory: 1g"
    assert local in text
    return f"cluster: {{bootstrap: [{bootstrap}]}}\n" + text.replace(
        local, SPARK.format(master=master, java=java_options())
    )


async def _with_topics(bootstrap: str) -> None:
    async with Client(bootstrap) as client:
        await generate.create_topics(client)


def _strike(driver: Driver, observer: Observer, cluster: StandaloneSpark, broker: Victim) -> list[tuple[float, str]]:
    """Kills an executor and the broker, both while batches are being written."""
    struck = []
    for _ in range(2):
        driver.wait_for_each(LAKES)
    os.kill(Random(1).choice(cluster.executors()), signal.SIGKILL)
    struck.append((round(observer.now_s, 2), "an executor is killed"))
    for _ in range(2):
        driver.wait_for_each(LAKES)
    broker.end(signal.SIGKILL)
    struck.append((round(observer.now_s, 2), "the broker is killed"))
    broker.start()
    broker.wait_ready()
    driver.wait_for_each(LAKES)
    return struck


def _audited(shop: Pipeline) -> list[str]:
    done = shop.run("run", "--once")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.endswith("the table is the topic")]
    assert len(lines) == len(TABLES), done.stdout
    return lines


def _dead_letters(client: SyncClient) -> set[tuple[str, int, int]]:
    """The places that dead letters come from; some may occur twice."""
    found = set()
    for each in client.consume("shop.dlq", until_end=True):
        about = {name: (value or b"").decode() for name, value in each.headers}
        found.add(
            (
                about["__dlq.errors.topic"],
                int(about["__dlq.errors.partition"]),
                int(about["__dlq.errors.offset"]),
            )
        )
    return found


def _revenue(place: Path) -> dict[str, int]:
    command = [sys.executable, str(SHOP / "revenue.py"), "lake"]
    subprocess.run(command, cwd=place, env=environment(), check=True, timeout=DEADLINE_S, capture_output=True)
    rows: list[dict[str, Any]] = DeltaTable(place / "lake" / "daily_revenue").to_pyarrow_table().to_pylist()
    return {row["day"].isoformat(): row["revenue_cents"] for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that everything that was started is stopped, too
    with tempfile.TemporaryDirectory(prefix="penstock-shop-") as directory:
        story = run_shop(Path(directory))
    print("\n".join([*story.audits, json.dumps(asdict(story)["struck"])]))
    options.picture.write_text(picture(story))


if __name__ == "__main__":
    main()
