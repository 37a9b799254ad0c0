"""The node that a scenario of the client matrix runs against, as a raw client sees it."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.raw_client import RawClient, Topic
from penstock.model.errors import ErrorCode
from penstock.records.compression import Codec
from penstock.records.header import BatchView
from penstock.records.rows import Record, rows
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tests.compatibility.samples import build

TOPIC_RESOURCE = 2
BATCH_BYTES_MAX = 8 * 1024 * 1024
DONE_WITHIN_S = 10.0


@dataclass
class NodeUnderTest:
    """A node, a raw client, and topics that only one scenario uses."""

    bootstrap: str
    client: RawClient
    name: str
    notes: dict[str, int] = field(default_factory=dict)
    """Numbers for the page."""
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def new_name(self) -> str:
        """The name of a topic that does not exist yet."""
        return f"{self.name}-{next(self._numbers)}"

    def new_topic(self, partitions: int = 1, settings: Mapping[str, str] | None = None) -> Topic:
        """A new topic, ready to use."""
        return self.client.create_topic(self.new_name(), partitions, settings)

    def known(self, name: str) -> Topic:
        """A topic that another client created."""
        return Topic(name, self.client.topic(name).topic_id)

    def settings(self, name: str) -> dict[str, str | None]:
        """All settings of a topic."""
        asked = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
        answer = self.client.ask(DescribeConfigsRequest(resources=[asked]), DescribeConfigsResponse)
        (found,) = answer.results
        assert found.error_code is ErrorCode.NONE, found
        return {each.name: each.value for each in found.configs}

    def batches(self, topic: Topic, partition: int = 0) -> list[BatchView]:
        """The batches of a partition."""
        return list(self.client.fetch_batches(topic, partition))

    def records(self, topic: Topic, partition: int = 0) -> list[Record]:
        """The records of a partition."""
        return [record for batch in self.batches(topic, partition) for record in rows(batch, BATCH_BYTES_MAX)]

    def write(self, topic: Topic, records: Sequence[Record], batch_records: int, partition: int = 0) -> None:
        """Writes records to a partition, `batch_records` in a batch."""
        for at in range(0, len(records), batch_records):
            self.client.produce(topic, partition, build(records[at : at + batch_records], Codec.NONE))


def eventually(is_so: Callable[[], bool], what: str) -> None:
    """Waits for an effect that may appear shortly after the client's call returned."""
    deadline = time.monotonic() + DONE_WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {DONE_WITHIN_S} s: {what}"
        time.sleep(0.02)
