"""Three whole nodes on virtual time, one with a damaged log: it is fetched again, and a last copy is kept."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.cli.cluster.state import survey
from penstock.client.metadata import NO_LEADER, TopicPartition
from penstock.log.directory import ASIDE, LOGS
from penstock.model.errors import CorruptBatch
from penstock.replication.leader import NOTHING_FETCHED
from penstock.server.node import Node
from penstock.server.replicas.failed_logs import FailedLogs
from tests.simulation.three_servers.world import NODES
from tests.unit.server.checkups import complaints
from tests.unit.server.full_disks import settings_of
from tests.unit.server.replicated_topic import TOPIC, bytes_of, make_topic, placed, publish, read_all
from tests.unit.server.town import Town, client_of, cluster_of, tell

ALL = list(NODES)
NAME = f"{TOPIC}-0"


def flip(town: Town, node_id: int, position: int = 300) -> None:
    """Flips a bit in the node's first segment on disk."""
    disk = town.world.nodes[f"node-{node_id}"].disk
    path = next(each for each in disk.list(f"{LOGS}/{NAME}") if each.endswith(".log"))
    disk.flip_bit(f"{LOGS}/{NAME}/{path}", position, 2)


def aside(town: Town, node_id: int) -> list[str]:
    return [each for each in town.world.nodes[f"node-{node_id}"].disk.list(LOGS) if each.endswith(ASIDE)]


async def rot(town: Town, *victims: int) -> None:
    """Kills nodes, flips a bit on each, and starts them again."""
    for each in victims:
        town.kill(each)
    for each in victims:
        flip(town, each)
    for each in victims:
        town.start(each)
    await town.until(lambda: all(each in town.nodes and town.nodes[each].health.is_serving for each in victims))


def is_whole(town: Town) -> Callable[[], bool]:
    return lambda: sorted(placed(town).isr) == ALL and not placed(town).damaged


async def check_whole(town: Town, values: list[bytes], victim: int) -> None:
    await town.until(is_whole(town))
    await town.until(lambda: not aside(town, victim), limit_s=5)
    assert bytes_of(town.nodes[1]) == bytes_of(town.nodes[2]) == bytes_of(town.nodes[3])
    cluster = cluster_of(town)
    assert await read_all(cluster) == values
    await cluster.close()


@pytest.mark.parametrize("victim", NODES)
def test_a_damaged_replica_is_fetched_anew(victim: int, caplog: pytest.LogCaptureFixture) -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        values = await publish(cluster, 50)
        await rot(town, victim)
        values += await publish(cluster, 10, "after")
        await cluster.close()
        await check_whole(town, values, victim)

    tell(story, settings_of)
    assert "is fetched anew from its leader" in caplog.text


@pytest.mark.parametrize("replicas", [(2, 3, 1), (2,)])
def test_damage_that_a_reader_meets_is_a_matter_for_other_replicas(replicas: tuple[int, ...]) -> None:
    """Without other replicas, the rest of the log is still written and read."""

    async def story(town: Town) -> None:
        configs = {"min.insync.replicas": str(min(2, len(replicas)))}
        await town.admin(1).create_topic(TOPIC, assignments=[replicas], configs=configs)
        cluster = cluster_of(town)
        values = await publish(cluster, 50)
        log = town.nodes[2].storage.directory.logs[NAME]
        file = town.world.nodes["node-2"].disk.open(log.path_of(log.active, "log"))
        file.write(16, b"\x07")  # the magic byte of the first batch
        file.close()
        with pytest.raises(CorruptBatch):
            log.read(0, 1_000, limit=log.written_end)
        await asyncio.sleep(5)
        values += await publish(cluster, 10, "after")
        await cluster.close()
        if len(replicas) > 1:
            await check_whole(town, values, 2)
        else:
            assert town.nodes[2].storage.directory.logs[NAME].offline_reason is None
            assert placed(town).leader == 2

    tell(story, settings_of)


@pytest.mark.parametrize("position", [16, 90])
def test_a_leader_whose_followers_find_damage_hands_over(position: int) -> None:
    """Old records are not read until a follower needs them."""

    async def story(town: Town) -> None:
        await make_topic(town, (2, 3, 1))
        cluster = cluster_of(town)
        values = await publish(cluster, 50)
        flip(town, 2, position)
        await rot(town, 3)
        await town.until(lambda: placed(town).leader == 1)
        values += await publish(cluster, 10, "after")
        await cluster.close()
        await check_whole(town, values, 3)
        await town.until(lambda: not aside(town, 2))

    tell(story, settings_of)


def test_a_damaged_leader_hands_over_while_it_runs() -> None:

    async def story(town: Town) -> None:
        await make_topic(town, (2, 3, 1))
        cluster = cluster_of(town)
        values = await publish(cluster, 50)
        log = town.nodes[2].storage.directory.logs[NAME]
        before = placed(town)
        assert before.leader == 2
        log.damage("a bit was flipped")
        await town.until(lambda: placed(town).leader not in (2, NO_LEADER), limit_s=3)
        assert placed(town).leader_epoch > before.leader_epoch
        values += await publish(cluster, 50, "after")
        await cluster.close()
        await check_whole(town, values, 2)
        assert town.nodes[2].storage.directory.logs[NAME] is not log

    tell(story, settings_of)


def test_a_damaged_follower_that_runs_is_not_taken_for_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader never lowers a follower's offset within a broker epoch: a new leader epoch is needed."""
    may_go = FailedLogs._may_go
    monkeypatch.setattr(FailedLogs, "_may_go", lambda *_: False)

    async def story(town: Town) -> None:
        await make_topic(town, (1, 2, 3))
        cluster = cluster_of(town)
        values = await publish(cluster, 50)
        key = (town.nodes[1].member.controller.image.topics[TOPIC].topic_id, 0)
        before = town.nodes[1].broker.replicas.leader(key)
        assert before is not None
        await town.until(lambda: before.progress[2].end_offset == 50)
        town.nodes[2].storage.directory.logs[NAME].damage("a bit was flipped")
        image_of_leader = town.nodes[1].member.controller
        await town.until(lambda: 2 in image_of_leader.image.topics[TOPIC].partitions[0].damaged)
        leader = town.nodes[1].broker.replicas.leader(key)
        assert leader is not None
        assert leader is not before
        assert leader.progress[2].end_offset == NOTHING_FETCHED
        monkeypatch.setattr(FailedLogs, "_may_go", may_go)
        await cluster.close()
        await check_whole(town, values, 2)

    tell(story, settings_of)


def test_the_only_replica_is_kept_and_leads_again_when_it_is_repaired(caplog: pytest.LogCaptureFixture) -> None:
    async def story(town: Town) -> None:
        await town.admin(1).create_topic(TOPIC, assignments=[(3,)], configs={"min.insync.replicas": "1"})
        cluster = cluster_of(town)
        values = await publish(cluster, 50)
        await rot(town, 3)
        await asyncio.sleep(5)
        assert (placed(town).leader, placed(town).eligible_leader_replicas) == (NO_LEADER, (3,))
        assert town.nodes[3].storage.directory.logs[NAME].is_damaged
        assert not aside(town, 3)
        async with client_of(town) as client:
            found = complaints(await survey(client))
        assert "is on broker 3, is damaged, and is kept" in found["damaged"]
        await rot(town, 3)  # the same bit, so the damage is undone
        await town.until(lambda: placed(town).leader == 3)
        assert await read_all(cluster) == values
        assert not placed(town).damaged
        await cluster.close()

    tell(story, settings_of)
    assert "is offline and kept" in caplog.text


def test_a_last_copy_that_an_operator_moves_away_is_not_replaced_by_an_empty_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(town: Town) -> None:
        await town.admin(1).create_topic(TOPIC, assignments=[(3,)], configs={"min.insync.replicas": "1"})
        cluster = cluster_of(town)
        values = await publish(cluster, 50)
        await rot(town, 3)
        await town.until(lambda: placed(town).damaged == (3,))
        town.kill(3)
        disk = town.world.nodes["node-3"].disk
        disk.make_dir("elsewhere")
        disk.rename(f"{LOGS}/{NAME}", f"elsewhere/{NAME}")
        for _ in range(2):
            town.start(3)
            await town.all_serve()
            await asyncio.sleep(5)
            assert (placed(town).leader, placed(town).damaged) == (NO_LEADER, (3,)), "an empty log is no copy"
            town.kill(3)
        for each in disk.list(f"{LOGS}/{NAME}"):
            disk.unlink(f"{LOGS}/{NAME}/{each}")
        disk.remove_dir(f"{LOGS}/{NAME}")
        disk.rename(f"elsewhere/{NAME}", f"{LOGS}/{NAME}")
        flip(town, 3)  # the same bit
        town.start(3)
        await town.until(lambda: placed(town).leader == 3)
        assert await read_all(cluster) == values
        await cluster.close()

    tell(story, settings_of)
    assert "was the last copy: put that back" in caplog.text


def test_the_last_copy_is_kept_until_an_operator_decides() -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        await publish(cluster, 50)
        await rot(town, *ALL)
        await asyncio.sleep(5)
        assert placed(town).leader == NO_LEADER
        (last,) = placed(town).eligible_leader_replicas
        assert sorted(placed(town).damaged) == ALL
        for each in ALL:
            assert town.nodes[each].storage.directory.logs[NAME].is_damaged or aside(town, each), "all of them are kept"
        assert town.nodes[last].storage.directory.logs[NAME].is_damaged
        await cluster.close()

    tell(story, settings_of)


def test_a_copy_that_is_set_aside_stays_until_the_new_one_is_whole() -> None:
    async def story(town: Town) -> None:
        await make_topic(town, (1, 2, 3))
        cluster = cluster_of(town)
        values = await publish(cluster, 50)
        await rot(town, 3)
        await town.until(lambda: (aside(town, 3) and not placed(town).damaged) or sorted(placed(town).isr) == ALL)
        town.kill(3)
        if aside(town, 3):
            town.start(3)
            await town.all_serve()
            await town.until(lambda: town.nodes[3].storage.directory.kept_aside or sorted(placed(town).isr) == ALL)
        else:
            town.start(3)
        await cluster.close()
        await check_whole(town, values, 3)

    tell(story, settings_of)


def test_an_unclean_election_goes_on_without_the_last_copy() -> None:
    async def story(town: Town) -> None:
        await town.admin(1).create_topic(TOPIC, assignments=[(2, 3)], configs={"min.insync.replicas": "1"})
        cluster = cluster_of(town)
        values = await publish(cluster, 20)
        town.kill(3)
        await town.until(lambda: placed(town).isr == (2,))
        await publish(cluster, 20, "only on 2")
        town.kill(2)
        flip(town, 2)
        for each in (2, 3):
            town.start(each)
        await town.all_serve()
        await town.until(lambda: placed(town).leader == NO_LEADER and placed(town).eligible_leader_replicas == (2,))
        await asyncio.sleep(3)
        assert town.nodes[2].storage.directory.logs[NAME].is_damaged, "nobody else has what was acknowledged"
        place = TopicPartition(TOPIC, 0)
        admin = town.admin(1)
        assert await admin.elect_leaders([place], is_unclean=True) == {place: None}
        await admin.cluster.close()
        await town.until(lambda: sorted(placed(town).isr) == [2, 3] and not placed(town).damaged)
        assert await read_all(cluster) == values
        await cluster.close()

    tell(story, settings_of)


@pytest.mark.parametrize("ends", ["kill", "power cut"])
@pytest.mark.parametrize("step_ms", range(0, 1600, 100))
def test_a_crash_at_any_step_goes_on_where_it_was(ends: str, step_ms: int) -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        values = await publish(cluster, 50)
        town.kill(3)
        flip(town, 3)
        town.start(3)
        await asyncio.sleep(step_ms / 1000)
        if ends == "kill":
            town.world.kill("node-3")
        else:
            town.world.cut_power("node-3")
        town.nodes.pop(3, None)
        town.start(3)
        values += await publish(cluster, 10, "after")
        await cluster.close()
        await town.all_serve()
        await check_whole(town, values, 3)

    tell(story, settings_of)


def test_topics_that_are_deleted_take_what_was_set_aside_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_self: FailedLogs) -> None:
        return None

    async def story(town: Town) -> None:
        await make_topic(town)
        cluster = cluster_of(town)
        await publish(cluster, 50)
        await cluster.close()
        remove = FailedLogs._remove_replaced
        monkeypatch.setattr(FailedLogs, "_remove_replaced", never)
        await rot(town, 3)
        await town.until(is_whole(town))
        assert aside(town, 3)
        monkeypatch.setattr(FailedLogs, "_remove_replaced", remove)
        await town.admin(1).delete_topic(TOPIC)
        await town.until(lambda: not aside(town, 3))

    tell(story, settings_of)


def test_without_the_rule_a_last_copy_would_be_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows that the checks of these tests can fail."""
    monkeypatch.setattr(FailedLogs, "_may_go", lambda _self, log: log.is_damaged)

    def is_there(node: Node) -> bool:
        log = node.storage.directory.logs.get(NAME)
        return log is not None and log.is_damaged

    async def story(town: Town) -> None:
        await town.admin(1).create_topic(TOPIC, assignments=[(3,)], configs={"min.insync.replicas": "1"})
        cluster = cluster_of(town)
        await publish(cluster, 50)
        await rot(town, 3)
        await town.until(lambda: not is_there(town.nodes[3]))
        await cluster.close()

    tell(story, settings_of)
