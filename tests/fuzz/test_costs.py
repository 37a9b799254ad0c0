"""The cases about amplification can fail: each detects a planted fault, from its seeds or from one dense input."""

import random
import re
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.coordinator import heartbeats
from penstock.records.stamps import first_since, latest
from penstock.replication.fetch_sessions import FetchSessions
from penstock.wire.api import Api
from penstock.wire.codec import encode, read_from
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.fuzz import costs, guard
from tests.fuzz.guard import TooLarge, TooSlow
from tests.fuzz.seeds import seeds_for
from tests.fuzz.targets import TARGETS

HEARTBEAT = costs.GROUP_REQUESTS.index(ConsumerGroupHeartbeatRequest)


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(guard, "_PAUSES_S", (0.0,))
    yield
    for target in TARGETS.values():
        target.start_over()


def run_seeds(name: str) -> None:
    for seed in seeds_for(name, random.Random(0)):
        TARGETS[name].measure(seed)


def many_topics(choice: int) -> bytes:
    """A Metadata request full of empty names."""
    body = encode(MetadataRequest(topics=[MetadataRequestTopic(name="")] * 1_900), 1)
    return bytes((Api.METADATA, 1, choice)) + body


def test_a_budget_that_is_not_charged_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    TARGETS["budgets"].measure(many_topics(0b0000))
    monkeypatch.setattr(costs, "read_from", lambda kind, version, body, at, _budget: read_from(kind, version, body, at))
    with pytest.raises(AssertionError, match="more elements"):
        TARGETS["budgets"].measure(many_topics(0b0000))


def test_memory_that_is_not_charged_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_elements(kind: Any, version: int, body: memoryview, at: int, budget: Any) -> Any:
        return read_from(kind, version, body, at, budget._replace(elements=2_000, memory_bytes=1 << 30))

    monkeypatch.setattr(costs, "has_more_elements", lambda _message, _count: False)
    TARGETS["budgets"].measure(many_topics(0b0011))
    monkeypatch.setattr(costs, "read_from", only_elements)
    with pytest.raises(TooLarge):
        TARGETS["budgets"].measure(many_topics(0b0011))


def test_sessions_without_a_limit_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FetchSessions, "_evict", lambda *_arguments, **_options: True)
    seeds = [seed for seed in seeds_for("sessions", random.Random(0)) if seed[0] == 0]
    step = next(seed for seed in seeds if _makes_a_session(seed))
    with pytest.raises(AssertionError, match="more sessions"):
        TARGETS["sessions"](step * 5)


def _makes_a_session(seed: bytes) -> bool:
    """Whether the only step of a seed is a request that begins a session."""
    (length,) = struct.unpack_from(">H", seed, 2)
    held: list[int] = []
    create = FetchSessions.create

    def noted(*arguments: Any, **options: Any) -> int:
        held.append(create(*arguments, **options))
        return held[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FetchSessions, "create", noted)
        TARGETS["sessions"](seed)
    return len(seed) == 4 + length and len(seed) < 500 and any(held)


def joining(pattern: str) -> bytes:
    """A member that subscribes with a regular expression."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_regex=pattern,
        topic_partitions=(),
    )
    body = encode(request, 1)
    return struct.pack(">BBH", HEARTBEAT, 1, len(body)) + body


def test_a_pattern_that_backtracks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Backtracking:
        def __init__(self, pattern: str) -> None:
            self._compiled = re.compile(pattern)

        def found_in(self, names: Any) -> tuple[str, ...]:
            return tuple(name for name in names if self._compiled.fullmatch(name[:18]))

    hostile = joining("(a|aa|a)*c")
    TARGETS["groups"](hostile)
    monkeypatch.setattr(heartbeats, "Regex", Backtracking)
    with pytest.raises(TooSlow):
        TARGETS["groups"](hostile)


def test_a_shard_that_writes_too_much_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assign = heartbeats.assign

    def again_and_again(draft: Any) -> None:
        for _ in range(1_500):
            assign(draft)

    TARGETS["groups"](joining("a"))
    monkeypatch.setattr(heartbeats, "assign", again_and_again)
    with pytest.raises((AssertionError, TooSlow)):
        TARGETS["groups"](joining("a"))


@pytest.mark.parametrize("plant", ["ignores the start", "takes the last"])
def test_a_wrong_record_is_noticed(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_seeds("stamps")

    def wrong(batch: Any, at_ms: int, start: int, limit: int, bytes_max: int) -> Any:
        if plant == "takes the last":
            return latest(batch, start, limit, bytes_max)
        return first_since(batch, at_ms, 0, limit, bytes_max)

    monkeypatch.setattr(costs, "first_since", wrong)
    with pytest.raises(AssertionError):
        run_seeds("stamps")
