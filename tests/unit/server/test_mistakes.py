"""A node with a bug in a vital part ends, and other nodes take over its partitions."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.server.node import Node
from tests.unit.server.replicated_topic import make_topic, placed, publish, read_all
from tests.unit.server.town import Town, cluster_of, tell

Plant = Callable[[Node], None]


class Mistake(Exception):
    """An error that no code expects."""


def raises(*_arguments: object, **_options: object) -> None:
    raise Mistake("planted")


def in_the_callback_of_a_round(node: Node) -> None:
    node.broker.replicas.synced = raises  # type: ignore[method-assign]


def in_a_round(node: Node) -> None:
    commit = node.storage.directory.commit

    async def raises_once() -> None:
        node.storage.directory.commit = commit  # type: ignore[method-assign]
        raise Mistake("planted")

    node.storage.directory.commit = raises_once  # type: ignore[method-assign, assignment]


def in_an_effect_of_replication(node: Node) -> None:
    assert node.broker.replicas._core is not None
    node.broker.replicas._core.step = raises  # type: ignore[method-assign, assignment]


def in_a_task_of_replication(node: Node) -> None:
    async def dies() -> None:
        raise Mistake("planted")

    life = node.broker.replicas._life
    assert life is not None
    life._port.start(dies(), life._ended)


def in_accepting(node: Node) -> None:
    node.listeners.doors["PLAINTEXT"][0]._admit = raises  # type: ignore[method-assign]


def in_the_heartbeats(node: Node) -> None:
    assert node.broker.membership is not None
    node.broker.membership._channel = None  # type: ignore[assignment]


def in_the_quorum(node: Node) -> None:
    node.member.quorum.committed.connect(raises)


def in_who_listens_to_images(node: Node) -> None:
    node.member.controller.subscribe(raises)


async def is_noticed(town: Town, limit_s: float = 20.0) -> str:
    """Returns the reason for which the node ends."""
    for _ in range(int(limit_s * 10)):
        if town.failures:
            return town.failures[0]
        await asyncio.sleep(0.1)
    raise AssertionError("the node goes on, and leads")


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        (in_the_callback_of_a_round, "group commit failed by a mistake of ours"),
        (in_a_round, "group commit failed by a mistake of ours"),
        (in_an_effect_of_replication, "Replication failed by a mistake of ours"),
        (in_a_task_of_replication, "Replication failed by a mistake of ours"),
        (in_accepting, "accepts no connections any more by a mistake of ours"),
        (in_the_heartbeats, "heartbeats failed by a mistake of ours"),
        (in_the_quorum, "a mistake of ours"),
        (in_who_listens_to_images, "a mistake of ours"),
    ],
)
def test_a_mistake_ends_the_node_and_others_lead(plant: Plant, sentence: str) -> None:
    async def story(town: Town) -> None:
        await make_topic(town)
        before = await publish(cluster_of(town), 5, "before")
        leader = placed(town).leader
        node = town.nodes.pop(leader)
        plant(node)
        sending = asyncio.ensure_future(publish(cluster_of(town), 5, "after"))
        assert sentence in await is_noticed(town)
        assert len(town.failures) == 1
        town.failures.clear()
        await node.stop()
        await town.until(lambda: placed(town).leader not in (leader, -1))
        after = await sending
        assert await read_all(cluster_of(town, [each for each in (1, 2, 3) if each != leader])) == before + after

    tell(story)


def test_a_mistake_in_what_the_controller_does_by_itself_does_not_end_it() -> None:
    """The next controller would have the same image, and the same bug."""

    async def story(town: Town) -> None:
        assert town.leader is not None
        controller = town.nodes[town.leader].member.controller
        runtime = controller.runtime
        hear, failed = runtime._hear_myself, 0

        def raises_for_a_while() -> None:
            nonlocal failed
            failed += 1
            if failed > 3:
                runtime._hear_myself = hear  # type: ignore[method-assign]
            raise Mistake("planted")

        runtime._hear_myself = raises_for_a_while  # type: ignore[method-assign]
        victim = next(number for number in town.nodes if number != town.leader)
        town.kill(victim)
        await town.until(lambda: failed > 3 and controller.image.brokers[victim].is_fenced)
        assert controller.is_active

    tell(story)
