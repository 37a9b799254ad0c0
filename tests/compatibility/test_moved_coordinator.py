"""Group members that fetch the committed offsets just when the coordinator has moved."""

import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from harness.load import CALM, create_topics
from penstock.model.errors import ErrorCode
from penstock.server.handlers.groups.offset_fetch import OffsetFetchHandler
from penstock.testing.node import NodeThread
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from tests.system.group_members import CONSUMER, COOPERATIVE, options_of

pytestmark = pytest.mark.peers

TOPIC = "moved"
READ_S = 30.0


@pytest.fixture
def node() -> Iterator[NodeThread]:
    node = NodeThread()
    node.start()
    yield node
    node.stop()


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
@pytest.mark.parametrize("flavour", [COOPERATIVE, CONSUMER])
def test_librdkafka_asks_again_and_reads(
    node: NodeThread, monkeypatch: pytest.MonkeyPatch, flavour: str, code: ErrorCode
) -> None:
    fetch, asked = OffsetFetchHandler._fetch, []

    async def elsewhere_at_first(
        handler: Any, call: Any, group: OffsetFetchRequestGroup, *rest: Any
    ) -> OffsetFetchResponseGroup:
        asked.append(group.group_id)
        if len(asked) <= 3:
            return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=code)
        return await fetch(handler, call, group, *rest)

    monkeypatch.setattr(OffsetFetchHandler, "_fetch", elsewhere_at_first)
    create_topics(node.bootstrap, [(TOPIC, 1)], replication_factor=1)
    producer: Any = confluent_kafka.Producer({**CALM, "bootstrap.servers": node.bootstrap})
    producer.produce(TOPIC, b"here")
    assert producer.flush(READ_S) == 0
    settings = {"bootstrap.servers": node.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer: Any = confluent_kafka.Consumer({**CALM, **settings, **options_of(flavour)})
    consumer.subscribe([TOPIC])
    seen: list[Any] = []
    try:
        end_s = time.monotonic() + READ_S
        while not any(each.error() is None for each in seen):
            assert time.monotonic() < end_s, f"nothing was read; it asked {len(asked)} times and was told {seen}"
            seen += consumer.consume(10, 0.2)
    finally:
        consumer.close()
    assert seen[-1].value() == b"here"
    assert len(asked) > 3
