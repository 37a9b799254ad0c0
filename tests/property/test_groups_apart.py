"""Two groups of one coordinator: the history of one is the same whether or not the other exists."""

from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordinator.consumer import ConsumerGroup
from penstock.coordinator.offsets import Offsets
from penstock.coordinator.settings import GroupSettings
from penstock.model.errors import ErrorCode
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.stored.consumer_offsets import OffsetCommitKey
from tests.unit.coordinator.shard_driver import ShardDriver, alive, beat, commit, fetch, fetched, join, sync
from tests.unit.coordinator.shard_driver import given as assigned_in

GROUPS: Final = ("g", "h")
MEMBERS: Final = ("m", "n")
SETTINGS: Final = GroupSettings(
    initial_delay_ms=0, retention_ms=60_000, retention_check_ms=5_000, load_grace_ms=0, consumer_members_max=3
)


class Deed(NamedTuple):
    """An operation on a group; on all, if none is named."""

    what: str
    group: str = ""
    member: str = "m"
    number: int = 0
    """A partition; for "time", milliseconds."""
    offset: int = 0


OF_ONE: Final = ("commit", "member commits", "alive", "goes", "joins", "syncs", "beats", "offset deleted", "deleted")
DEEDS = st.one_of(
    st.builds(
        Deed,
        st.sampled_from(OF_ONE),
        st.sampled_from(GROUPS),
        st.sampled_from(MEMBERS),
        st.integers(0, 3),
        st.integers(0, 99),
    ),
    st.builds(Deed, st.just("time"), number=st.sampled_from((0, 900, 5_000, 50_000, 70_000))),
    st.just(Deed("elected")),
)


class Troupe:
    """Performs deeds on groups, and records the results."""

    def __init__(self) -> None:
        self.driver = ShardDriver(SETTINGS)
        self.told: list[tuple[Deed, Any]] = []
        self._epochs: dict[tuple[str, str], int] = {}
        self._owned: dict[tuple[str, str], dict[str, list[int]]] = {}
        self._joined: dict[tuple[str, str], tuple[str, int]] = {}
        self._joining: dict[int, tuple[str, str]] = {}

    def do(self, deed: Deed) -> None:
        match deed.what:
            case "time":
                self.driver.pass_time(deed.number)
            case "elected":
                self.driver.elect()
            case _:
                self.told.append((deed, self._done(deed)))
        for ticket, who in list(self._joining.items()):
            if (answer := self.driver.answers.pop(ticket, None)) is not None:
                del self._joining[ticket]
                if answer.error_code is ErrorCode.NONE:
                    self._joined[who] = (answer.member_id, answer.generation_id)

    def _done(self, deed: Deed) -> Any:
        driver, who = self.driver, (deed.group, deed.member)
        match deed.what:
            case "commit":
                return self._committed(commit({deed.number: deed.offset}, group_id=deed.group))
            case "member commits":
                epoch = self._epochs.get(who, 1)
                return self._committed(
                    commit({deed.number: deed.offset}, group_id=deed.group, member_id=deed.member, epoch=epoch)
                )
            case "alive":
                epoch = self._epochs.get(who, 0)
                owned = self._owned.get(who) if epoch else None
                answer = driver.ask(alive(deed.member, epoch, group_id=deed.group, owned=owned), version=1)
                self._epochs[who] = answer.member_epoch
                if answer.assignment is not None:
                    self._owned[who] = assigned_in(answer)
                return answer.error_code, answer.member_epoch, self._owned.get(who)
            case "goes":
                self._owned.pop(who, None)
                self._epochs.pop(who, None)
                return driver.ask(alive(deed.member, -1, group_id=deed.group), version=1).error_code
            case "joins":
                ticket = driver.send(join(group_id=deed.group, instance=f"i{deed.member}"))
                self._joining[ticket] = who
            case "syncs":
                member_id, generation = self._joined.get(who, ("", 1))
                told = {member_id: b"all"} if deed.number else {}
                driver.send(sync(member_id, generation, told, group_id=deed.group, instance=f"i{deed.member}"))
            case "beats":
                member_id, generation = self._joined.get(who, ("", 1))
                request = beat(member_id, generation, group_id=deed.group, instance=f"i{deed.member}")
                return driver.ask(request).error_code
            case "offset deleted":
                place = OffsetDeleteRequestTopic(
                    name="a", partitions=[OffsetDeleteRequestPartition(partition_index=deed.number)]
                )
                return driver.ask(OffsetDeleteRequest(group_id=deed.group, topics=[place]), version=0).error_code
            case "deleted":
                return driver.ask(DeleteGroupsRequest(groups_names=[deed.group]), version=2).results[0].error_code
        return None

    def _committed(self, request: Any) -> ErrorCode:
        code: ErrorCode = self.driver.ask(request).topics[0].partitions[0].error_code
        return code

    def of(self, group_id: str) -> tuple[Any, ...]:
        """All observable state of a group, except the member ids that its coordinator assigned."""
        group = self.driver.group(group_id)
        kind = type(group).__name__
        state = None if group is None else group.state
        epoch = None if group is None else group.epoch if isinstance(group, ConsumerGroup) else group.generation
        count = 0 if group is None else len(group.members)
        told = [(deed, answer) for deed, answer in self.told if deed.group == group_id]
        return told, kind, state, epoch, count, fetched(self.driver.ask(fetch(group_id=group_id)))


def seen(deeds: list[Deed], group_id: str, others: tuple[str, ...]) -> tuple[Any, ...]:
    """The observable state of a group if only these groups exist."""
    troupe = Troupe()
    for deed in deeds:
        if deed.group in ("", group_id, *others):
            troupe.do(deed)
    return troupe.of(group_id)


@given(st.lists(DEEDS, max_size=40))
@settings(max_examples=300)
def test_groups_do_not_see_each_other(deeds: list[Deed]) -> None:
    for group_id in GROUPS:
        assert seen(deeds, group_id, GROUPS) == seen(deeds, group_id, ())


def test_it_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Offsets.apply

    def confused(self: Offsets, key: OffsetCommitKey, value: Any) -> None:
        apply(self, OffsetCommitKey(group="g", topic=key.topic, partition=key.partition), value)

    monkeypatch.setattr(Offsets, "apply", confused)
    deeds = [Deed("commit", "h", number=2)]
    assert seen(deeds, "g", GROUPS) != seen(deeds, "g", ())
