"""The controller under random commands: a replay yields the same cluster, and decisions never change it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metadata_world import NOW_MS, ControllerWorld
from penstock.metadata.changes import changes_between
from penstock.metadata.commands import (
    AllocateProducerIds,
    AlterConfigs,
    ConfigChanges,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    MorePartitions,
    NewConfigs,
    NewTopic,
    TopicRef,
)
from penstock.metadata.draft import applied
from penstock.metadata.frames import decode_record
from penstock.metadata.image import Image
from penstock.metadata.shelves import SHELVES, Shelves
from penstock.model.shard import Command

names = st.sampled_from(["a", "b", "a.b", "a_b", "a.c", "", "a b", "__cluster_metadata"])
keys = st.sampled_from(["retention.ms", "cleanup.policy", "segment.bytes", "log.retention.ms", "bogus", "node.id"])
texts = st.sampled_from(["5", "-1", "compact", "delete", "delete,compact", "2000000", "x", ""])
kinds = st.sampled_from([2, 4, 32, 3])
brokers = st.lists(st.sampled_from([1, 2, 3, 9]), max_size=3).map(tuple)

new_topics = st.builds(
    NewTopic,
    names,
    st.integers(-2, 4),
    st.integers(-2, 4),
    st.just(()) | st.lists(st.tuples(st.integers(0, 2), brokers), max_size=3).map(tuple),
    st.lists(st.tuples(keys, st.none() | texts), max_size=2).map(tuple),
)


def many(items: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(items, max_size=3).map(tuple)


resources = st.builds(NewConfigs, kinds, names, many(st.tuples(keys, st.none() | texts)))
changes = st.builds(ConfigChanges, kinds, names, many(st.tuples(keys, st.integers(0, 4), st.none() | texts)))
commands: st.SearchStrategy[Command[object]] = st.one_of(
    st.builds(CreateTopics, many(new_topics), st.booleans()),
    st.builds(DeleteTopics, many(st.builds(TopicRef, st.none() | names))),
    st.builds(
        CreatePartitions,
        many(st.builds(MorePartitions, names, st.integers(-1, 6), st.none() | many(brokers))),
        st.booleans(),
    ),
    st.builds(AlterConfigs, many(resources), st.just(1), st.booleans()),
    st.builds(IncrementalAlterConfigs, many(changes), st.just(1), st.booleans()),
    st.builds(AllocateProducerIds, st.integers(1, 4), st.integers(0, 3)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(commands, max_size=12), st.integers(0, 2**32))
def test_a_replay_gives_the_same_cluster(asked: list[Command[object]], seed: int) -> None:
    world = ControllerWorld(brokers=(1, 2, 3), seed=seed)
    for command in asked:
        before = world.controller.image
        first = len(world.log)
        world.controller.decide(command, NOW_MS)
        assert world.controller.image is before, "deciding changed something"
        world.ask(command)
        after = world.controller.image
        holds(after)
        assert applied(before, map(decode_record, world.log[first:])) == after, "one by one, all at once"
        told(before, after)
    replayed = world.replayed()
    assert replayed.image == world.controller.image
    assert list(replayed.image.topics) == list(world.controller.image.topics), "and in the same order"
    for command in asked:  # the next controller decides alike, except for randomness
        ours, theirs = world.controller.decide(command, NOW_MS), replayed.decide(command, NOW_MS)
        assert [type(record) for record in ours.records] == [type(record) for record in theirs.records]


def holds(image: Image) -> None:
    """Invariants of every image."""
    assert image.partition_count == sum(len(topic.partitions) for _, topic in image.topics.items())
    assert len(image.topic_names) == len(image.topics)
    for name, topic in image.topics.items():
        assert topic.name == name
        assert image.topic_by_id(topic.topic_id) is topic
        assert list(topic.partitions) == list(range(len(topic.partitions)))
        assert len({len(partition.replicas) for partition in topic.partitions.values()}) == 1
        for partition in topic.partitions.values():
            assert partition.leader == partition.isr[0]
            assert set(partition.isr) <= set(partition.replicas) <= set(image.brokers)
            assert len(partition.directories) == len(partition.replicas)
    for resource, configs in image.configs.items():
        assert configs
        assert resource.kind != 2 or resource.name in image.topics


def told(before: Image, after: Image) -> None:
    """Checks that applying the reported changes to the old image yields the new one."""
    followed = {topic.topic_id: topic for _, topic in before.topics.items()}
    told = changes_between(before, after)
    for topic in told.topics_deleted:
        del followed[topic.topic_id]
    for topic in told.topics_created:
        assert topic.topic_id not in followed
        followed[topic.topic_id] = topic
    for change in told.topics_changed:
        assert followed[change.old.topic_id] == change.old
        assert dict(change.new.partitions) == {
            **change.old.partitions,
            **{index: new for index, _, new in change.partitions},
        }
        followed[change.new.topic_id] = change.new
    assert followed == {topic.topic_id: topic for _, topic in after.topics.items()}


steps = st.lists(
    st.dictionaries(st.integers(0, 3 * SHELVES).map(str), st.none() | st.integers(), max_size=20), max_size=8
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_shelves_are_a_dict_that_remembers(made: list[dict[str, int | None]]) -> None:
    shelves: Shelves[str, int] = Shelves()
    plain: dict[str, int] = {}
    past: list[tuple[Shelves[str, int], dict[str, int]]] = [(shelves, {})]
    for step in made:
        shelves = shelves.changed(step)
        plain = {key: value for key, value in {**plain, **step}.items() if value is not None}
        past.append((shelves, plain))
    for then, expected in past:
        assert dict(then.items()) == expected
        assert len(then) == len(expected)
        differences = {key: (old, new) for key, old, new in then.differences(shelves)}
        unlike = [key for key in {**expected, **plain} if expected.get(key) != plain.get(key)]
        assert all(key in differences for key in unlike)
        assert all(expected.get(key) == old and plain.get(key) == new for key, (old, new) in differences.items())
