"""Metadata in microseconds per request, without sockets: from the request's frame to the response's bytes.

    python -m benchmarks.micro.bench_answers [--json]

Each response is compared with the same response encoded from scratch.
"""

from collections.abc import Coroutine
from typing import Any, cast

from benchmarks.micro.timing import Row, compare, report
from penstock.host.clock import HostClock
from penstock.metadata.image import Broker, Image, Partition, Topic
from penstock.metadata.records import BrokerEndpoint
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.shelves import Shelves
from penstock.server.connections.advertised import AdvertisedBrokers
from penstock.server.connections.serving import Answer, Call, Client
from penstock.server.handlers.topics.metadata import MetadataHandler
from penstock.server.handlers.topics.metadata_answer import UNTOLD_OPERATIONS, TopicPieces, describe_topic
from penstock.server.membership.broker_grace import BrokerGrace
from penstock.server.settings import ListenerSettings
from penstock.wire.api import Api
from penstock.wire.codec import decode_request, encode
from penstock.wire.headers import response_frame
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)

VERSION = 12
LIMIT_US = 2_000
SIZES = ((1, 1_000), (1_000, 1), (100, 10), (10_000, 1))
"""Number of topics, and partitions per topic."""


class BenchController:
    """The attributes of a controller that the handler needs."""

    def __init__(self, topics: int, partitions: int) -> None:
        self.node_id = 1
        self.settings = BrokerSettings()
        endpoint = BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)
        made = [
            Topic(
                f"topic-{n}", n.to_bytes(16), {i: Partition((1, 2, 3), (1, 2, 3), 1, 0, 0) for i in range(partitions)}
            )
            for n in range(topics)
        ]
        brokers = {n: Broker(n, 0, bytes(16), (endpoint,)) for n in (1, 2, 3)}
        self.image = Image(topics=Shelves[str, Topic]().changed({topic.name: topic for topic in made}), brokers=brokers)


def run_now(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Runs a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as ended:
        return cast("Answer", ended.value)
    raise AssertionError("it waits")


def rows(topics: int, partitions: int) -> list[Row]:
    controller, missing = cast("Any", BenchController(topics, partitions)), cast("Any", None)
    handler = MetadataHandler(
        controller,
        missing,
        missing,
        BrokerGrace(HostClock()),
        AdvertisedBrokers(1, (ListenerSettings(),)),
        TopicPieces(),
        "bench",
    )
    image: Image = controller.image
    call = Call(Api.METADATA, VERSION, 7, "bench", "peer:1", "127.0.0.1:9092", Client(listener="PLAINTEXT"))
    names = sorted(image.topics)
    requests = {
        "all": MetadataRequest(topics=None),
        "by name": MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]),
        "one": MetadataRequest(topics=[MetadataRequestTopic(name=names[0])]),
    }
    found = []
    for what, request in requests.items():
        frame = memoryview(encode(request, VERSION))
        asked = names[:1] if what == "one" else names

        def from_scratch(asked: list[str] = asked) -> object:
            described = [
                describe_topic(image.topics[name], image.brokers, UNTOLD_OPERATIONS, VERSION) for name in asked
            ]
            brokers = [MetadataResponseBroker(node_id=n, host="localhost", port=9092) for n in (1, 2, 3)]
            response = MetadataResponse(brokers=brokers, cluster_id="bench", controller_id=1, topics=described)
            return response_frame(response, VERSION, 7)

        def ours(frame: memoryview = frame) -> object:
            return run_now(handler.metadata(decode_request(MetadataRequest, VERSION, frame), call))

        limit = LIMIT_US if len(asked) * partitions <= 1_000 else None
        found.append(compare(f"{topics:,} × {partitions:,}, {what}", ours, from_scratch, "from scratch", limit))
    return found


if __name__ == "__main__":
    report([row for size in SIZES for row in rows(*size)])
