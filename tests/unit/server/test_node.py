"""A node starts, keeps its data, and stops so that the next start scans nothing."""

import asyncio
from pathlib import Path

import pytest

from harness.led_topics import add_topic
from penstock.records.builder import BatchBuilder
from penstock.records.check import DEFAULT_RULES
from penstock.server.host_ports import host_ports
from penstock.server.node import Node
from penstock.server.partitions.partition import Partition
from penstock.server.settings import CannotStart, ListenerSettings, NodeSettings, check_listeners
from penstock.simulator.node import Ports
from penstock.simulator.world import World
from tests.unit.server.conftest import Drive
from tests.unit.server.shell import Place

TOPIC_ID = bytes(range(16))

QUIET = NodeSettings("c", listeners=(ListenerSettings(port=0),))


def append(partition: Partition) -> int:
    """Appends one record, and returns the next offset."""
    builder = BatchBuilder()
    builder.append(b"key", b"value", timestamp_ms=1_000)
    return partition.append(builder.build(), now_ms=1_000, rules=DEFAULT_RULES).last_offset + 1


@pytest.mark.parametrize("host", ["", "0.0.0.0", "10.1.2.3", "::", "broker.example"])
def test_plaintext_that_others_can_reach_must_be_asked_for(host: str) -> None:
    with pytest.raises(CannotStart, match=r"set allow\.plaintext\.beyond\.loopback=true"):
        check_listeners(NodeSettings("c", listeners=(ListenerSettings(host=host),)))
    check_listeners(NodeSettings("c", listeners=(ListenerSettings(host=host),), allow_plaintext_beyond_loopback=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_plaintext_at_home_needs_no_permission(host: str) -> None:
    check_listeners(NodeSettings("c", listeners=(ListenerSettings(host=host),)))


def test_nothing_is_touched_before_the_listener_is_allowed(tmp_path: Path) -> None:
    async def main() -> None:
        ports = host_ports(tmp_path)
        with pytest.raises(CannotStart):
            await Node(ports, NodeSettings("c", listeners=(ListenerSettings(host="0.0.0.0"),))).start()
        ports.close()

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


def test_a_data_directory_belongs_to_one_node(tmp_path: Path) -> None:
    first = host_ports(tmp_path)
    with pytest.raises(CannotStart, match=f"another broker uses {tmp_path}: stop it, or choose another directory"):
        host_ports(tmp_path)
    first.close()
    host_ports(tmp_path).close()


def test_a_port_that_is_taken_is_told_and_the_data_is_closed_cleanly(tmp_path: Path) -> None:
    async def main() -> None:
        ports = host_ports(tmp_path)
        taken = await ports.network.listen("127.0.0.1", 0)
        port = int(taken.address.rpartition(":")[2])
        node = Node(ports, NodeSettings("c", listeners=(ListenerSettings(port=port),)))
        with pytest.raises(CannotStart, match=f"Cannot listen on 127.0.0.1:{port}.*choose another port"):
            await node.start()
        taken.close()
        again = Node(ports, NodeSettings("c", listeners=(ListenerSettings(port=port),)))
        await again.start()
        await again.stop()
        ports.close()

    asyncio.run(main())


def test_a_round_wakes_those_whose_log_it_covered(drive: Drive) -> None:
    async def story(place: Place) -> None:
        node = place.node
        one, other = await add_topic(node, "orders", TOPIC_ID, 2)
        advanced: list[int] = []
        node.storage.rounds.covered.connect(lambda logs: advanced.extend(log.identity.partition for log in logs))
        for n in range(3):
            end = append(one)
            assert one.log.high_watermark < end
            await one.committed.wait_for(end)
            assert one.log.high_watermark == end == n + 1
        assert advanced == [0, 0, 0]
        assert other.log.high_watermark == 0

    drive(story)


def test_what_was_appended_is_there_again_and_nothing_is_scanned(tmp_path: Path) -> None:
    async def main() -> None:
        ports = host_ports(tmp_path)
        node = Node(ports, QUIET)
        await node.start()
        (partition,) = await add_topic(node, "orders", TOPIC_ID, 1)
        append(partition)  # not awaited until durable
        await node.stop()
        again = Node(ports, QUIET)
        await again.start()
        assert again.storage.directory.findings.scanned_bytes == 0
        (partition,) = await add_topic(again, "orders", TOPIC_ID, 1, epoch=1)
        assert (partition.log.high_watermark, partition.leader_epoch) == (1, 1)
        assert (
            again.broker.partitions.named("orders", 0) is again.broker.partitions.identified(TOPIC_ID, 0) is partition
        )
        await again.stop()
        ports.close()

    asyncio.run(main())


def test_what_was_promised_survives_a_power_cut_in_the_middle_of_a_busy_life() -> None:
    promised: list[int] = []
    found: list[int] = []

    async def main(ports: Ports) -> None:
        node = Node(ports, QUIET)
        await node.start()
        (partition,) = await add_topic(node, "orders", TOPIC_ID, 1, epoch=len(found))
        found.append(partition.log.written_end)
        while True:
            end = append(partition)
            await partition.committed.wait_for(end)
            promised.append(end)

    with World(3) as world:
        world.add("a", main)
        for _ in range(5):
            last = promised[-1] if promised else 0
            world.start("a")
            world.run(0.2)
            world.cut_power("a")
            assert found[-1] >= last
    assert len(promised) > 100


def test_a_failure_in_the_background_is_told(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        async def fail() -> None:
            raise RuntimeError("a planted mistake")

        place.node.supervisor.watch(fail(), "planted task")
        await place.settle()

    drive(story)
    assert "The planted task failed by a mistake of ours: RuntimeError('a planted mistake')." in caplog.messages
