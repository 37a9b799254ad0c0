"""Three real nodes under load, one of them on a file system of 64 MB that fills up: the others lead meanwhile.

The producers (librdkafka, idempotent, acks=all) go on without a failure; once there is space, the node catches up and
leads again.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from harness.load import Load, create_topics
from penstock.client.errors import ClientError
from penstock.client.metadata import Partition
from tests.system.cluster_faults import JAVA_TOPIC, TOPICS, Town
from tests.system.mortal_node import Broken
from tests.system.small_disk import CannotMount, a_small_disk

pytestmark = pytest.mark.xdist_group("cluster")

FULL: Final = 2
"""The node with the small disk."""
SETTINGS: Final = {"leader.imbalance.check.interval.seconds": "1"}
RATE: Final = 400.0
LEFT_BYTES: Final = 3_000_000
"""Space that the load itself has to fill."""
RETREAT_S: Final = 30.0
"""Much less than the time for which all partitions, one after the other, would wait for a merely slow broker."""
GOES_ON: Final = 1_500
"""Records that must be acknowledged while the disk is full."""
RETURN_S: Final = 90.0
SILENCE_S_MAX: Final = 25.0
"""Two or three seconds, longer on a slow machine; the wait for a merely slow follower would be 30 s."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    try:
        with a_small_disk(tmp_path) as disk:
            (tmp_path / f"node-{FULL}").symlink_to(disk)
            yield disk
    except CannotMount as error:
        pytest.skip(str(error))


@contextmanager
def a_town(directory: Path, plant: str | None = None) -> Iterator[tuple[Town, Load]]:
    """A cluster under load whose node with the small disk leads its share."""
    with Town(directory, settings=SETTINGS, plant=plant) as town:
        town.until_all_serve()
        create_topics(town.bootstrap, [*TOPICS, JAVA_TOPIC], replication_factor=3, min_insync_replicas="2")
        until(lambda: any(each.leader == FULL for each in partitions(town)), RETURN_S, "it leads nothing")
        with Load(town.bootstrap, TOPICS, rate=RATE, seed=7) as load:
            until(lambda: load.acked > RATE, RETURN_S, "nothing is acknowledged")
            yield town, load


def partitions(town: Town) -> list[Partition]:
    """Partitions as clients see them; empty while no broker responds."""
    try:
        return [each for topic in town.topics() for each in topic.partitions]
    except ClientError:
        return []


def until(condition: Callable[[], object], limit_s: float, complaint: str) -> float:
    """Waits until a condition holds; returns how long it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit_s:
            raise Broken(f"{complaint} after {limit_s:.0f} s")
        time.sleep(0.1)
    return time.monotonic() - began


def fill(disk: Path) -> None:
    """Fills the disk except for LEFT_BYTES."""
    room = os.statvfs(disk)
    (disk / "ballast").write_bytes(bytes(room.f_bavail * room.f_frsize - LEFT_BYTES))


def is_out(town: Town) -> bool:
    """Whether the full node leads nothing and is in no ISR."""
    found = partitions(town)
    return bool(found) and all(each.leader != FULL and FULL not in each.isr for each in found)


def longest_silence_s(load: Load) -> float:
    """The longest time in which a partition had nothing acknowledged, while all writers wrote to all partitions."""
    acks: dict[str, list[int]] = {}
    for writer in load.writers:
        for event in writer.diary.events:
            if event.type == "ok" and event.value:
                acks.setdefault(event.value[0][0], []).append(event.time_ns)
    gaps = [after - before for times in acks.values() for before, after in pairwise(sorted(times))]
    return max(gaps) / 1e9


def test_others_lead_while_a_disk_is_full(tmp_path: Path, disk: Path) -> None:
    with a_town(tmp_path) as (town, load):
        fill(disk)
        retreat_s = until(lambda: is_out(town), RETREAT_S, "it leads or is in sync")
        acked = load.acked
        took_s = until(lambda: load.acked > acked + GOES_ON, RETURN_S, "producers do not go on")
        assert is_out(town), "it must not come back before there is room"
        assert "The disk is full: until there is room, others lead" in town.nodes[FULL].log
        town.until_all_serve()
        (disk / "ballast").unlink()
        return_s = until(
            lambda: any(each.leader == FULL for each in partitions(town)), RETURN_S, "it does not lead again"
        )
        town.until_whole()
        report = load.finish()
        assert load.problems == []
        assert longest_silence_s(load) < SILENCE_S_MAX
        assert report.is_clean, report.text()
        town.check_words()
        for node in town.nodes.values():
            node.stop()
        town.compare(report)
        assert report.is_clean, report.text()
        print(f"retreat {retreat_s:.1f} s, {GOES_ON} records in {took_s:.1f} s, return {return_s:.1f} s,")
        print(f"no partition silent for more than {longest_silence_s(load):.1f} s")


def test_a_node_that_tells_nobody_is_found(tmp_path: Path, disk: Path) -> None:
    """Its followers could go on; it keeps leading, and rejects writes."""
    with a_town(tmp_path, plant="lead-on-full-disk") as (town, _):
        fill(disk)
        with pytest.raises(Broken, match="it leads or is in sync"):
            until(lambda: is_out(town), RETREAT_S, "it leads or is in sync")
