"""Possible data loss is reported, and only then: three whole nodes on virtual time, whose power fails."""

import asyncio
from pathlib import Path

import pytest

from penstock.cli.cluster.state import survey
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.metadata import NO_LEADER, TopicPartition
from penstock.log.boot import BOOT
from penstock.log.directory import CLEAN
from penstock.server.host_ports import host_ports
from penstock.server.node import Node
from penstock.server.replicas.data_loss_reports import DataLossReports
from penstock.server.settings import ListenerSettings, NodeSettings
from tests.simulation.three_servers.world import NODES
from tests.unit.server.checkups import complaints
from tests.unit.server.replicated_topic import EVERYWHERE, TOPIC, placed, publish, read_all
from tests.unit.server.town import Town, client_of, cluster_of, tell

PLACE = TopicPartition(TOPIC, 0)


def told(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    lines = [row.getMessage() for row in caplog.records if row.name == "penstock.losses"]
    return [line for line in lines if part in line]


async def make_topic(town: Town, durability: str = "replicated", replicas: tuple[int, ...] = NODES) -> None:
    configs = {**EVERYWHERE, "durability": durability}
    if len(replicas) == 1:
        configs["min.insync.replicas"] = "1"
    await town.admin(1).create_topic(TOPIC, configs=configs, assignments=[replicas])


async def cut_power(town: Town, *victims: int) -> None:
    for each in victims:
        town.world.cut_power(f"node-{each}")
        del town.nodes[each]
    for each in victims:
        town.start(each)
    await town.all_serve()


def test_one_node_without_power_is_a_warning_and_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        values = await publish(cluster, 10)
        for each in NODES:
            await cut_power(town, each)
            await town.until(lambda: sorted(placed(town).isr) == list(NODES))
        assert await read_all(cluster) == values
        await cluster.close()

    tell(story)
    assert len(told(caplog, "does not vouch for 1 partitions")) == len(NODES)
    assert not told(caplog, "may be lost")


def test_all_without_power_at_once_are_an_error_until_an_operator_decides(caplog: pytest.LogCaptureFixture) -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        await publish(cluster, 10)
        await cut_power(town, *NODES)
        await asyncio.sleep(10)
        assert placed(town).leader == NO_LEADER
        assert len(told(caplog, f"Records of {TOPIC}-0 may be lost, and nobody leads it")) == len(NODES)
        async with client_of(town) as client:
            found = complaints(await survey(client))
        assert (
            f"1 partition can be neither written nor read, and may have lost acknowledged records: {TOPIC}[0]"
            in (found["lost"])
        )
        assert "offline" not in found, "one complaint is enough"
        admin = town.admin(1)
        (unled,) = await admin.unled([TOPIC])
        assert unled.partition == PLACE
        assert not unled.has_all
        assert unled.had_all
        assert await admin.elect_leaders([PLACE], is_unclean=True) == {PLACE: None}
        await town.until(lambda: sorted(placed(town).isr) == list(NODES))
        left = await read_all(cluster)
        (said,) = told(caplog, "an unclean election")
        assert f"from offset {len(left)} on" in said
        assert not await admin.unled([TOPIC])
        await admin.cluster.close()
        await cluster.close()

    tell(story)


def test_with_fsync_nothing_is_lost_and_nothing_said(caplog: pytest.LogCaptureFixture) -> None:
    async def story(town: Town) -> None:
        await make_topic(town, "fsync")
        cluster = cluster_of(town)
        values = await publish(cluster, 10)
        await cut_power(town, *NODES)
        assert await read_all(cluster) == values
        await cluster.close()

    tell(story)
    assert not told(caplog, "")


def test_topics_that_wait_for_syncs_are_not_drawn_into_it(caplog: pytest.LogCaptureFixture) -> None:
    async def story(town: Town) -> None:
        await make_topic(town, "fsync")
        await town.admin(1).create_topic("clicks", configs={"durability": "replicated"}, assignments=[NODES])
        cluster = cluster_of(town)
        values = await publish(cluster, 10)
        await cut_power(town, *NODES)
        assert await read_all(cluster) == values
        await town.until(lambda: told(caplog, "Records of clicks-0 may be lost, and nobody leads it"))
        await cluster.close()

    tell(story)
    assert not told(caplog, f"{TOPIC}-0")


def test_killed_processes_lose_nothing_and_lead_again(caplog: pytest.LogCaptureFixture) -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        values = await publish(cluster, 10)
        for _ in range(2):
            for each in NODES:
                town.kill(each)
            for each in NODES:
                town.start(each)
            await town.all_serve()
            await town.until(lambda: sorted(placed(town).isr) == list(NODES))
            assert await read_all(cluster) == values
        await publish(cluster, 10)
        await cluster.close()

    tell(story)
    assert not told(caplog, "")


def test_a_killed_process_whose_sync_had_failed_is_distrusted(caplog: pytest.LogCaptureFixture) -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        values = await publish(cluster, 10)
        log = town.nodes[3].storage.directory.logs[f"{TOPIC}-0"]
        town.world.nodes["node-3"].disk.fail_next("sync", log.path_of(log.active, "log"))
        town.nodes[3].storage.directory.hurry()
        await town.until(lambda: log.offline_reason is not None)
        town.kill(3)
        town.start(3)
        await town.all_serve()
        assert told(caplog, "does not vouch for 1 partitions")
        await town.until(lambda: sorted(placed(town).isr) == list(NODES))
        assert await read_all(cluster) == values
        await cluster.close()

    tell(story)


@pytest.mark.parametrize("ends", ["stopped", "killed"])
def test_an_end_before_anybody_was_told_does_not_make_the_loss_forgotten(
    ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a quorum no broker can register; a broker stopped or killed then must not claim its epoch later."""

    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        await publish(cluster, 10)
        await cluster.close()
        for each in NODES:
            town.world.cut_power(f"node-{each}")
            del town.nodes[each]
        for each in NODES:
            town.start(each)
            await town.until(lambda node_id=each: node_id in town.nodes)  # type: ignore[misc]
            lone = town.nodes[each]
            if ends == "stopped":
                await lone.stop()
            town.kill(each)
        for each in NODES:
            town.start(each)
        await town.all_serve()
        await town.until(lambda: told(caplog, "nobody leads it"))
        assert placed(town).leader == NO_LEADER

    tell(story)


def test_the_only_replica_says_so_too(caplog: pytest.LogCaptureFixture) -> None:
    async def story(town: Town) -> None:
        await make_topic(town, replicas=(3,))
        cluster = cluster_of(town)
        await publish(cluster, 10)
        await cut_power(town, 3)
        await town.until(lambda: told(caplog, "nobody leads it: broker 3, who had all"))
        await cluster.close()

    tell(story)


def live_alone(directory: Path) -> None:
    """Runs a node on real files that creates the topic, if it is missing, and is stopped."""

    async def live() -> None:
        ports = host_ports(directory)
        node = Node(ports, NodeSettings("c", listeners=(ListenerSettings(port=0),)))
        await node.start()
        cluster = Cluster(node.address)
        if TOPIC not in node.member.controller.image.topics:
            await Admin(cluster).create_topic(TOPIC, configs={"durability": "replicated"})
            await publish(cluster, 10)
        await cluster.close()
        await node.stop()
        ports.close()

    asyncio.run(live())


def test_a_node_that_is_alone_goes_on_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    live_alone(tmp_path)
    live_alone(tmp_path)
    assert not told(caplog, "")
    (tmp_path / CLEAN).unlink()
    live_alone(tmp_path)
    assert not told(caplog, ""), "the process was killed, the machine went on"
    (tmp_path / CLEAN).unlink()
    (tmp_path / BOOT).unlink()
    live_alone(tmp_path)
    (said,) = told(caplog, "may be lost")
    assert "leads it again" in said
    assert "from offset 10 on" in said
    caplog.clear()
    live_alone(tmp_path)
    assert not told(caplog, ""), "once is enough"


def test_a_loss_that_is_registered_and_not_yet_logged_is_logged_by_the_next_life(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed between its registration and its election."""
    live_alone(tmp_path)
    (tmp_path / CLEAN).unlink()
    (tmp_path / BOOT).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(DataLossReports, "led", lambda *_: None)
        live_alone(tmp_path)
    assert not told(caplog, "may be lost")
    live_alone(tmp_path)
    (said,) = told(caplog, "may be lost")
    assert "leads it again" in said
