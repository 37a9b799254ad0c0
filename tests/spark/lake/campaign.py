"""A lake on a cluster whose parts are killed, again and again, while records come in.

    python -m tests.spark.lake.campaign --drivers 5 --executors 5 --workers 3 --brokers 2 --zombies 1 --record

A Master and two Workers, speculation on, a broker on ordinary files, a writer that never stops (every hundredth record
cannot be read), and `penstock spark run` as a user starts it. SIGKILL hits a part while batches are being written: the
driver (its Python, its JVM or both), an executor, a Worker, the broker. A zombie is a driver that is paused, is
replaced by a second one, and is then resumed. An executor that is paused for a while makes Spark run its task a second
time beside it. In the end the table must equal the topic, row for row, and every bad record must be a dead letter.
"""

import argparse
import contextlib
import math
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from harness.spark.shared_classes import java_options
from harness.spark.standalone import StandaloneSpark
from penstock.client.blocking import SyncClient
from penstock.client.errors import ClientError
from tests.spark.lake import kill_results
from tests.spark.lake.pipelines import DEADLINE_S, KEPT, Pipeline, is_bad, number_of
from tests.system.victim import Victim

DRIVER, EXECUTOR, WORKER, BROKER, ZOMBIE, PAUSE = "driver", "executor", "worker", "broker", "zombie", "pause"
KINDS = (DRIVER, EXECUTOR, WORKER, BROKER, ZOMBIE, PAUSE)
PARTITIONS = 3
CHUNK = 100
CHUNK_S = 0.1
PAUSE_S = 2.0
RESTARTS_MAX = 5
EXECUTORS_S = 60.0
OVERTAKEN_S_MAX = 60.0
BATCH = "300 KB"
SPARK = """
  master: {master}
  memory: 512m
  conf:
    spark.driver.host: 127.0.0.1
    spark.driver.bindAddress: 127.0.0.1
    spark.driver.extraJavaOptions: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    spark.executor.extraJavaOptions: "{java}"
    spark.sql.shuffle.partitions: 2
    spark.cores.max: 2
    spark.executor.cores: 1
    spark.speculation: true
    spark.speculation.interval: 100ms
    spark.speculation.task.duration.threshold: 1s
    spark.task.maxFailures: 8"""


class Writer(threading.Thread):
    """Fills a topic until it is stopped, whatever happens to the broker."""

    def __init__(self, lake: Pipeline) -> None:
        super().__init__(name="writer", daemon=True)
        self._lake = lake
        self._over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._over.wait(CHUNK_S):
            with contextlib.suppress(ClientError):  # the broker is down; records that it stored are in the topic
                self._lake.fill(range(number, number + CHUNK), PARTITIONS)
            number += CHUNK

    def finish(self) -> None:
        """Stops writing."""
        self._over.set()
        self.join()


class Campaign:
    """One cluster, one broker, one lake, one driver at a time."""

    def __init__(self, cluster: StandaloneSpark, broker: Victim, lake: Pipeline, seed: int) -> None:
        self._cluster = cluster
        self._broker = broker
        self._lake = lake
        self._random = Random(seed)
        self._driver = lake.start()
        self.restarts = 0
        """How often a driver gave up because a part was missing for too long, and was started again."""

    def strike(self, kind: str) -> None:
        """Waits until batches are being written, and a moment; then kills."""
        self.get_further()
        time.sleep(self._random.random() * 0.5)
        getattr(self, f"_strike_{kind}")()

    def get_further(self) -> None:
        """Waits until there are more rows. Restarts a driver that gave up, as its supervisor would."""
        while not self._driver.gets_further():
            self._restart()

    def finish(self, rows: int) -> None:
        """Waits until the table has this number of rows, and ends the driver cleanly."""
        deadline_s = time.monotonic() + DEADLINE_S
        while self._lake.table.count() < rows:
            assert time.monotonic() < deadline_s, self._driver.log
            if self._driver.process.poll() is not None:
                self._restart()
            time.sleep(0.2)
        assert self._driver.end() == 0, self._driver.log

    def _restart(self) -> None:
        assert self.restarts < RESTARTS_MAX, self._driver.log
        self.restarts += 1
        self._driver.wait()
        self._driver = self._lake.start()

    def close(self) -> None:
        """Kills the driver, whatever happened."""
        self._driver.kill()

    def _strike_driver(self) -> None:
        self._driver.kill(self._random.choice(("python", "jvm", "both")))
        self._driver = self._lake.start()

    def _strike_executor(self) -> None:
        os.kill(self._random.choice(self._executors()), signal.SIGKILL)

    def _strike_pause(self) -> None:
        """Spark runs the executor's task again elsewhere; then two tasks have written files."""
        victim = self._random.choice(self._executors())
        os.kill(victim, signal.SIGSTOP)
        time.sleep(PAUSE_S)
        os.kill(victim, signal.SIGCONT)

    def _strike_worker(self) -> None:
        self._cluster.kill_worker(self._random.choice(self._cluster.workers))
        self._cluster.start_worker()

    def _strike_broker(self) -> None:
        self._broker.end(signal.SIGKILL)
        self._broker.start()
        self._broker.wait_ready()

    def _strike_zombie(self) -> None:
        zombie = self._driver
        zombie.pause()
        self._driver = self._lake.start()
        try:
            self.get_further()
            zombie.wake()
            began_s = time.monotonic()
            assert zombie.wait(OVERTAKEN_S_MAX) == 1, f"a driver that was overtaken must end by itself: {zombie.log}"
            print(f"a driver that was overtaken ended after {time.monotonic() - began_s:.1f} s")
        finally:
            zombie.kill()

    def _executors(self) -> list[int]:
        deadline_s = time.monotonic() + EXECUTORS_S
        while not (found := self._cluster.executors()):
            assert time.monotonic() < deadline_s, f"no executor came in {EXECUTORS_S} s: {self._cluster.log_tail()}"
            time.sleep(0.05)
        return found


@dataclass(frozen=True)
class Outcome:
    """The result of a campaign."""

    kills: dict[str, int]
    rows: int
    bad: int
    batches: int
    restarts: int
    orphans: int
    """Files that no commit names: written by tasks that were killed or ran twice."""
    seconds: float


def run_kills(
    directory: Path, kills: "Counter[str]", seed: int, *, is_audited: bool, seconds: float = math.inf
) -> Outcome:
    """Kills this number of each kind, in an order drawn from the seed; after `seconds` no more are killed.

    Raises AssertionError if the table differs from the topic.
    """
    began_s = time.monotonic()
    struck = dict.fromkeys(KINDS, 0)
    order = list(kills.elements())
    Random(seed).shuffle(order)
    with contextlib.ExitStack() as held:
        broker = held.enter_context(Victim(directory / "broker"))
        broker.data.parent.mkdir(parents=True)
        broker.start()
        broker.wait_ready()
        cluster = held.enter_context(StandaloneSpark(directory / "cluster", cores=2, memory="2g", java=java_options()))
        client = held.enter_context(SyncClient(broker.address))
        client.create_topic("orders", PARTITIONS, configs=KEPT)
        (directory / "lake").mkdir()
        lake = Pipeline(directory / "lake", broker.address, "orders", client)
        lake.describe(max_batch=BATCH, spark=SPARK.format(master=cluster.url, java=java_options()))
        writer = Writer(
            Pipeline(lake.directory, broker.address, "orders", held.enter_context(SyncClient(broker.address)))
        )
        writer.start()
        campaign = Campaign(cluster, broker, lake, seed)
        try:
            for kind in order:
                if time.monotonic() - began_s > seconds:
                    break
                campaign.strike(kind)
                struck[kind] += 1
                print(f"{sum(struck.values())} of {len(order)}: {kind}, {time.monotonic() - began_s:.0f} s", flush=True)
            campaign.get_further()
            writer.finish()
            campaign.finish(sum(not is_bad(number_of(each)) for each in client.consume("orders", until_end=True)))
        finally:
            campaign.close()
        rows, bad = lake.assert_table_is_topic()
        if is_audited:
            audited = lake.run("run", "--once")
            assert audited.returncode == 0, audited.stderr
            assert "the table is the topic" in audited.stdout, audited.stdout
        files = len(list((lake.directory / "lake").rglob("*.parquet")))
        batches = sum("txn" in text for text in _commits(lake.directory / "lake"))
        named = sum(text.count('{"add":') for text in _commits(lake.directory / "lake"))
        return Outcome(struck, rows, bad, batches, campaign.restarts, files - named, time.monotonic() - began_s)


def _commits(table: Path) -> list[str]:
    return [path.read_text() for path in sorted((table / "_delta_log").glob("*.json"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in KINDS:
        parser.add_argument(f"--{kind}s", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="nothing is killed after so many")
    parser.add_argument("--seed", type=int, help="else one that no recorded run has taken")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that everything that was started is stopped, too
    runs = kill_results.load()
    seed = 1 + len(runs) if options.seed is None else options.seed
    kills = Counter({kind: getattr(options, f"{kind}s") for kind in KINDS})
    with tempfile.TemporaryDirectory(prefix="penstock-lake-") as directory:
        outcome = run_kills(Path(directory), kills, seed, is_audited=True, seconds=options.seconds)
    print(f"{outcome.rows:,} rows and {outcome.bad:,} bad records, each once, after {outcome.kills}")
    if options.record:
        kill_results.write([*runs, kill_results.run_of(asdict(outcome), seed)])


if __name__ == "__main__":
    main()
