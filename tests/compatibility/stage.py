"""Where the stories of the client matrix happen."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.model.errors import ErrorCode
from penstock.records.compression import Codec
from penstock.records.header import BatchView
from penstock.records.rows import Record, rows
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tests.compatibility.raw_client import RawClient, Topic
from tests.compatibility.samples import build

TOPIC_RESOURCE = 2
BATCH_BYTES_MAX = 8 * 1024 * 1024
DONE_WITHIN_S = 10.0


@dataclass
class Stage:
    """Where stories happen: a node, a raw client, and topics that nobody else uses."""

    bootstrap: str
    client: RawClient
    name: str
    notes: dict[str, int] = field(default_factory=dict)
    """Figures for the page."""
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def new_name(self) -> str:
        """A topic that is not there yet."""
        return f"{self.name}-{next(self._numbers)}"

    def new_topic(self, partitions: int = 1, settings: Mapping[str, str] | None = None) -> Topic:
        """A topic that serves."""
        return self.client.create_topic(self.new_name(), partitions, settings)

    def known(self, name: str) -> Topic:
        """A topic that somebody else has made."""
        return Topic(name, self.client.topic(name).topic_id)

    def settings(self, name: str) -> dict[str, str | None]:
        """All settings of a topic."""
        asked = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
        answer = self.client.ask(DescribeConfigsRequest(resources=[asked]), DescribeConfigsResponse)
        (found,) = answer.results
        assert found.error_code is ErrorCode.NONE, found
        return {each.name: each.value for each in found.configs}

    def batches(self, topic: Topic, partition: int = 0) -> list[BatchView]:
        """What lies in a partition."""
        return list(self.client.fetch_batches(topic, partition))

    def records(self, topic: Topic, partition: int = 0) -> list[Record]:
        """The same, record by record."""
        return [record for batch in self.batches(topic, partition) for record in rows(batch, BATCH_BYTES_MAX)]

    def write(self, topic: Topic, records: Sequence[Record], batch_records: int, partition: int = 0) -> None:
        """Puts records into a partition, so many in a batch."""
        for at in range(0, len(records), batch_records):
            self.client.produce(topic, partition, build(records[at : at + batch_records], Codec.NONE))


def eventually(is_so: Callable[[], bool], story: str) -> None:
    """For what may take a moment after the client was told that it is done."""
    deadline = time.monotonic() + DONE_WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {DONE_WITHIN_S} s: {story}"
        time.sleep(0.02)
