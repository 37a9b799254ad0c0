"""Scenarios of groups: members join, share, commit, restart and leave; operators describe, reset and delete groups.

The members' results are compared with what a raw client sees of the group on the wire and in its log.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest

from harness.raw_client import Topic
from penstock.records.rows import Record
from tests.compatibility.node_under_test import NodeUnderTest, eventually
from tests.compatibility.raw_groups import RawGroups
from tests.compatibility.rows.row import GroupShown, Joining, Member, Operation, Place, Protocol, Row
from tests.compatibility.samples import NOW_MS

PARTITIONS = 4
EACH = 10
"""Records in every partition at first."""
WAIT_S = 60.0
"""Much longer than any step takes."""
EVERYTHING = frozenset(range(PARTITIONS))
QUIET_POLLS = 5

Scenario = Callable[[Row, NodeUnderTest], None]


class Scene:
    """A topic with records, and a group of one client's members that reads it."""

    def __init__(self, row: Row, node: NodeUnderTest, protocol: Protocol) -> None:
        self.node = node
        self.protocol: Protocol = protocol
        self.topic: Topic = node.new_topic(PARTITIONS)
        self.group = f"group-of-{self.topic.name}"
        self.raw = RawGroups(node.client)
        self.raw.find(self.group)
        self.ends = [0] * PARTITIONS
        self._row = row
        self._present: list[Member] = []
        self.write(EACH)

    def __enter__(self) -> "Scene":
        return self

    def __exit__(self, *_: object) -> None:
        for member in list(self._present):
            self.part(member)

    def write(self, count: int) -> set[Place]:
        """Appends `count` records to every partition."""
        written = set()
        for index in range(PARTITIONS):
            begin = self.ends[index]
            records = [Record(number, NOW_MS, b"key", b"value-%d" % (begin + number)) for number in range(count)]
            self.node.write(self.topic, records, count, index)
            self.ends[index] = begin + count
            written |= {(index, begin + number) for number in range(count)}
        return written

    def enter(self, instance_id: str | None = None, *, is_auto: bool = False) -> Member:
        """Adds a member; it joins the group while it is polled."""
        how = Joining(self.node.bootstrap, self.group, self.topic.name, self.protocol, instance_id, is_auto)
        member = self._row.join(how)
        self._present.append(member)
        return member

    def part(self, member: Member) -> None:
        """A member leaves."""
        self._present.remove(member)
        member.leave()

    def poll_until(self, is_so: Callable[[], bool], what: str, *seen: list[Place]) -> None:
        """Polls all members, the first into the first list, and so on, until the condition holds."""
        end_s = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < end_s, f"{what}: never so; {self.look()}, {[len(each) for each in seen]} records"
            for at, member in enumerate(self._present):
                found = member.poll()
                if seen:
                    seen[min(at, len(seen) - 1)].extend(found)

    def look(self) -> object:
        return self.raw.look(self.group, self.protocol)

    def settle(self, count: int, *seen: list[Place]) -> None:
        """Polls until `count` members share all partitions."""

        def is_settled() -> bool:
            assembly = self.raw.look(self.group, self.protocol)
            shares = assembly.shares()
            return (
                assembly.state == "Stable"
                and len(shares) == count
                and all(shares)
                and sum(map(len, shares)) == PARTITIONS
                and frozenset().union(*shares) == EVERYTHING
            )

        self.poll_until(is_settled, f"{count} share the topic", *seen)

    def read_everything(self, seen: list[Place]) -> None:
        """Polls until everything in the topic was read."""
        wanted = {(index, offset) for index, end in enumerate(self.ends) for offset in range(end)}
        self.poll_until(lambda: set(seen) >= wanted, "all was read", seen)


def share(protocol: Protocol, row: Row, node: NodeUnderTest) -> None:
    """One member reads all; of two, each reads its assignment; the other takes over when one leaves."""
    with Scene(row, node, protocol) as scene:
        first_seen: list[Place] = []
        second_seen: list[Place] = []
        first = scene.enter(is_auto=True)
        scene.read_everything(first_seen)
        scene.settle(1, first_seen)
        scene.enter(is_auto=True)
        scene.settle(2, first_seen, second_seen)
        written = scene.write(EACH)
        first_seen.clear()
        second_seen.clear()
        scene.poll_until(
            lambda: {*first_seen, *second_seen} >= written, "what was written is read", first_seen, second_seen
        )
        shares = [{index for index, _ in written.intersection(seen)} for seen in (first_seen, second_seen)]
        assert set(map(frozenset, shares)) == set(scene.raw.look(scene.group, protocol).shares())
        assert not shares[0] & shares[1], "nothing that came after the rebalance is read by both"
        scene.part(first)
        scene.settle(1)
        written = scene.write(EACH)
        rest: list[Place] = []
        scene.poll_until(lambda: set(rest) >= written, "the one who stayed reads all", rest)
    # A member that leaves is gone at once, without waiting for its session to expire.
    eventually(lambda: scene.raw.look(scene.group, protocol).state in ("Empty", "Dead"), "nobody is in the group")


def restart_static(protocol: Protocol, row: Row, node: NodeUnderTest) -> None:
    """The epoch stays, both members keep their partitions, and the returning member is a new process."""
    with Scene(row, node, protocol) as scene:
        seen: list[Place] = []
        scene.enter("instance-a", is_auto=True)
        goes = scene.enter("instance-b", is_auto=True)
        scene.settle(2, seen)
        scene.read_everything(seen)
        before = scene.raw.look(scene.group, protocol)
        generations = scene.raw.generations(scene.group)
        scene.part(goes)
        scene.enter("instance-b", is_auto=True)
        written = scene.write(EACH)
        seen.clear()
        scene.poll_until(lambda: set(seen) >= written, "what was written meanwhile is read", seen)
        scene.settle(2, seen)
        after = scene.raw.look(scene.group, protocol)
        assert after.epoch == before.epoch, "somebody had to rebalance"
        assert set(scene.raw.generations(scene.group)) <= {*generations, before.epoch}
        assert after.of_instance("instance-a") == before.of_instance("instance-a")
        ours = [each.of_instance("instance-b") for each in (before, after)]
        assert ours[0].partitions == ours[1].partitions
        assert ours[0].member_id != ours[1].member_id, "it is the same process"


def commit(how: str, protocol: Protocol, row: Row, node: NodeUnderTest) -> None:
    """Read offsets are committed while the member is there; the next member continues after them."""
    with Scene(row, node, protocol) as scene:
        seen: list[Place] = []
        member = scene.enter(is_auto=how == "auto")
        scene.read_everything(seen)
        wanted = dict.fromkeys(range(PARTITIONS), EACH)
        if how == "sync":
            assert scene.raw.committed(scene.group) != wanted
            member.commit()
            assert scene.raw.committed(scene.group) == wanted
        elif how == "async":
            assert scene.raw.committed(scene.group) != wanted
            member.commit_async()
        scene.poll_until(lambda: scene.raw.committed(scene.group) == wanted, "all is committed")
        scene.part(member)
        written = scene.write(1)
        seen.clear()
        scene.enter()
        scene.poll_until(lambda: set(seen) >= written, "the next one goes on", seen)
        assert set(seen) == written, "what was committed is read again"


def seek(protocol: Protocol, row: Row, node: NodeUnderTest) -> None:
    """Seeks back in one partition, and forward in another."""
    with Scene(row, node, protocol) as scene:
        seen: list[Place] = []
        member = scene.enter()
        scene.read_everything(seen)
        seen.clear()
        member.seek(1, 3)
        scene.poll_until(lambda: (1, EACH - 1) in seen, "it is read again", seen)
        assert seen == [(1, offset) for offset in range(3, EACH)]
        scene.write(EACH)
        seen.clear()
        member.seek(2, EACH + 5)
        scene.poll_until(lambda: len(seen) == PARTITIONS * EACH - 5, "the rest is read", seen)
        assert [place for place in seen if place[0] == 2] == [(2, EACH + number) for number in range(5, EACH)]


def pause(protocol: Protocol, row: Row, node: NodeUnderTest) -> None:
    """A paused partition stays assigned, and returns no records until it is resumed."""
    with Scene(row, node, protocol) as scene:
        seen: list[Place] = []
        member = scene.enter()
        scene.read_everything(seen)
        member.pause(2)
        written = scene.write(EACH)
        others = {place for place in written if place[0] != 2}
        seen.clear()
        scene.poll_until(lambda: set(seen) >= others, "the others are read", seen)
        for _ in range(QUIET_POLLS):
            seen += member.poll()
        assert set(seen) == others
        (share,) = scene.raw.look(scene.group, protocol).shares()
        assert share == EVERYTHING
        member.resume(2)
        scene.poll_until(lambda: set(seen) >= written, "it goes on", seen)
        assert sorted(seen) == sorted(written)


# --- operators --------------------------------------------------------------------------------------------------------


def describe_group(row: Row, node: NodeUnderTest) -> None:
    topic, raw = node.new_topic(PARTITIONS), RawGroups(node.client)
    group = f"group-of-{topic.name}"
    raw.commit(group, topic.name, {0: 7, 3: 9})
    seen = row.describe_group(node.bootstrap, group, topic.name)
    assert _plain(seen) == GroupShown(True, "empty", 0, {0: 7, 3: 9})
    member_id = raw.join(group, topic.name, PARTITIONS)
    seen = row.describe_group(node.bootstrap, group, topic.name)
    raw.leave(group, member_id)
    assert _plain(seen) == GroupShown(True, "stable", 1, {0: 7, 3: 9})


def _plain(seen: GroupShown) -> GroupShown:
    return seen._replace(state=seen.state.lower(), committed=dict(seen.committed))


def reset_group(row: Row, node: NodeUnderTest) -> None:
    topic, raw = node.new_topic(PARTITIONS), RawGroups(node.client)
    node.write(topic, [Record(number, NOW_MS, b"key", b"value") for number in range(10)], 10, 1)
    group = f"group-of-{topic.name}"
    raw.commit(group, topic.name, {0: 0, 1: 10})
    row.reset_group(node.bootstrap, group, topic.name, 1, 4)
    assert raw.committed(group) == {0: 0, 1: 4}


def delete_group_offsets(row: Row, node: NodeUnderTest) -> None:
    topic, raw = node.new_topic(PARTITIONS), RawGroups(node.client)
    group = f"group-of-{topic.name}"
    raw.commit(group, topic.name, {0: 7, 3: 9})
    row.delete_group_offsets(node.bootstrap, group, topic.name, 3)
    assert raw.committed(group) == {0: 7}


def delete_group(row: Row, node: NodeUnderTest) -> None:
    topic, raw = node.new_topic(PARTITIONS), RawGroups(node.client)
    group = f"group-of-{topic.name}"
    raw.commit(group, topic.name, {0: 7})
    member_id = raw.join(group, topic.name, PARTITIONS)
    with pytest.raises(Exception, match=r"(?i)non.?empty|not empty"):
        row.delete_group(node.bootstrap, group)
    assert group in raw.names()
    raw.leave(group, member_id)
    row.delete_group(node.bootstrap, group)
    assert group not in raw.names()
    assert raw.committed(group) == {}


MEMBERS: Mapping[str, Callable[[Protocol, Row, NodeUnderTest], None]] = {
    "SHARE": share,
    "STATIC": restart_static,
    "COMMIT_SYNC": partial(commit, "sync"),
    "COMMIT_ASYNC": partial(commit, "async"),
    "COMMIT_AUTO": partial(commit, "auto"),
    "SEEK": seek,
    "PAUSE": pause,
}
"""Operations of members, in both protocols."""
PROTOCOLS: Sequence[Protocol] = ("classic", "consumer")

SCENARIOS: Mapping[Operation, Scenario] = {
    **{
        Operation[f"{protocol.upper()}_{what}"]: partial(scenario, protocol)
        for protocol in PROTOCOLS
        for what, scenario in MEMBERS.items()
    },
    Operation.DESCRIBE_GROUP: describe_group,
    Operation.RESET_GROUP: reset_group,
    Operation.DELETE_GROUP_OFFSETS: delete_group_offsets,
    Operation.DELETE_GROUP: delete_group,
}
