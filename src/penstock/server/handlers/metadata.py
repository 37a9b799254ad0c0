"""Metadata: brokers, topics, partitions and their leaders; what every client asks first.

Serves    Metadata 0–13: all topics (null; empty in version 0), by name, by id (from 12 on; names do not count then). A
          missing topic is made if the request and auto.create.topics.enable allow it.
Answers   per topic, each once, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID. This node's
          address is the one that the client reached, unless advertised.listeners says another.
Departs   from Kafka 4.3: a topic that was made is in the answer already, ready to be written; why one could not be made
          is told, where Kafka says UNKNOWN_TOPIC_OR_PARTITION for ever; one request makes at most 1,000 topics.
          While a broker has just been lost, the answer waits a moment for who leads then, and the lost one stays among
          the brokers a moment longer (`departures`).
"""

from collections.abc import Sequence
from typing import Final

from penstock.metadata.commands import ZERO_ID, Refusal
from penstock.metadata.names import INTERNAL_TOPICS, check_name
from penstock.model.errors import ErrorCode
from penstock.server.advertised import brokers_for
from penstock.server.handlers.needs import Needs, node_of
from penstock.server.metadata_answer import TOPIC_OPERATIONS, UNTOLD_OPERATIONS, encode_topic, write_answer
from penstock.server.pieces import Turns, each_once
from penstock.server.serving import Answer, Call, serves_overlapping
from penstock.server.topic_creation import create_missing
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

FIRST_WITH_IDS = 12
CLUSTER_OPERATIONS = 8096
"""Everything that can be done to a cluster, as bits."""
MADE_MAX: Final = 1_000
"""Topics that one request makes; clients ask again for the others."""


@serves_overlapping(MetadataRequest)
async def metadata(request: MetadataRequest, call: Call) -> Answer:
    """Returns buffers, because what it sends is kept encoded."""
    version = call.version
    node = node_of(call)
    topics, turns = request.topics, Turns()
    if topics is not None and version < FIRST_WITH_IDS and any(t.name is None or t.topic_id != ZERO_ID for t in topics):
        named = await each_once(((topic.name, topic.topic_id) for topic in topics), turns)
        refused = [encode_topic(_refused(*each), version) async for each in turns.through(named)]
        return [
            write_answer(MetadataResponse(brokers=(), topics=()), refused, len(refused), version, call.correlation_id)
        ]
    await node.departures.settled(node.controller)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else UNTOLD_OPERATIONS
    if topics is None or (version == 0 and not topics):
        image = node.controller.image
        pieces, count = [await node.topic_pieces.all(image, version, operations)], len(image.topics)
    else:
        pieces = await _some(node, request, topics, version, operations, turns)
        count = len(pieces)
    return [write_answer(_without_topics(node, call, request), pieces, count, version, call.correlation_id)]


def _without_topics(node: Needs, call: Call, request: MetadataRequest) -> MetadataResponse:
    controller = node.controller
    found = brokers_for(controller.image, controller.settings, controller.node_id, call.local)
    is_asked = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.broker_id, host=address.host, port=address.port, rack=broker.rack)
            for broker, address in found
            if node.departures.is_listed(broker, controller.image)
        ],
        cluster_id=node.directory.identity["cluster_id"],
        controller_id=controller.node_id,
        topics=(),
        cluster_authorized_operations=CLUSTER_OPERATIONS if is_asked else UNTOLD_OPERATIONS,
    )


async def _some(
    node: Needs,
    request: MetadataRequest,
    topics: Sequence[MetadataRequestTopic],
    version: int,
    operations: int,
    turns: Turns,
) -> list[bytes]:
    """The topics that are asked for, encoded, each once."""
    ids = await each_once((topic.topic_id for topic in topics if topic.topic_id != ZERO_ID), turns)
    if ids:
        return [await _by_id(node, topic_id, version, operations, turns) async for topic_id in turns.through(ids)]
    names = await each_once((topic.name or "" for topic in topics), turns)
    failed: dict[str, ErrorCode] = {}
    missing = [name for name in names if name not in node.controller.image.topics][:MADE_MAX]
    if missing and request.allow_auto_topic_creation and node.controller.settings.is_on("auto.create.topics.enable"):
        failed = await create_missing(node.controller, node.channel, node.adoption, missing)
    image = node.controller.image
    pieces = []
    async for name in turns.through(names):
        topic = image.topics.get(name)
        if topic is not None and name not in failed:
            pieces.append(await node.topic_pieces.one(topic, image, version, turns, operations))
        else:
            row = _missing(name, failed.get(name) or why_missing(name), operations)
            pieces.append(encode_topic(row, version))
    return pieces


async def _by_id(node: Needs, topic_id: bytes, version: int, operations: int, turns: Turns) -> bytes:
    image = node.controller.image
    topic = image.topic_by_id(topic_id)
    if topic is not None:
        return await node.topic_pieces.one(topic, image, version, turns, operations)
    unknown = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=())
    return encode_topic(unknown, version)


def why_missing(name: str) -> ErrorCode:
    """What to say of a topic that is not there."""
    try:
        check_name(name)
    except Refusal as refusal:
        return refusal.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _missing(name: str, code: ErrorCode, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=operations,
    )


def _refused(name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.INVALID_REQUEST, name=name or "", topic_id=topic_id, partitions=()
    )
