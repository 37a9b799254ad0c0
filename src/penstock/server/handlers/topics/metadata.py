"""Metadata: brokers, topics, partitions and their leaders.

Serves    Metadata 0–13: all topics (null; empty in version 0), by name, or by id (from version 12 on; names are then
          ignored). A missing topic is created if the request and auto.create.topics.enable allow it.
Answers   each topic once; INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID if it does not exist.
          Addresses are those of the listener on which the request arrived: of other brokers the registered ones, of
          this node the one at which the client reached it, unless advertised.listeners names another. A broker without
          that listener is left out, and what it leads is LISTENER_NOT_FOUND (before version 6 LEADER_NOT_AVAILABLE).
Departs   from Kafka 4.3: a created topic is in the same response, ready to be written; a creation that fails because of
          the topic's name or replication factor reports that error, where Kafka keeps answering
          UNKNOWN_TOPIC_OR_PARTITION; one request creates at most 1,000 topics. Just after a broker was lost, the
          response waits up to one second for new leaders, and the lost broker stays listed for two seconds
          (`broker_grace`).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.metadata.commands import ZERO_ID, Refusal
from penstock.metadata.names import INTERNAL_TOPICS, check_name
from penstock.model.errors import ErrorCode
from penstock.server.connections.advertised import AdvertisedBrokers
from penstock.server.connections.serving import Answer, Call, serves_overlapping
from penstock.server.controller.controller_channel import ControllerChannel
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.controller.topic_creation import create_missing
from penstock.server.handlers.topics.metadata_answer import (
    TOPIC_OPERATIONS,
    UNTOLD_OPERATIONS,
    TopicPieces,
    encode_topic,
    write_answer,
)
from penstock.server.loop.pieces import PIECE_ELEMENTS, Turns, cut, each_once
from penstock.server.membership.broker_grace import BrokerGrace
from penstock.server.partitions.topic_arrivals import TopicArrivals
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

FIRST_WITH_IDS = 12
CLUSTER_OPERATIONS = 8096
"""All operations on a cluster, as bits."""
MADE_MAX: Final = 1_000
"""Topics that one request creates; clients retry for the others."""
LOOK_UPS_PER_ELEMENT: Final = 10
"""Names that are looked up in the time of an element of `pieces`."""


class MetadataHandler:
    """Describes brokers and topics, and has missing topics created."""

    def __init__(
        self,
        controller: ControllerRunner,
        channel: ControllerChannel,
        arrivals: TopicArrivals,
        broker_grace: BrokerGrace,
        advertised: AdvertisedBrokers,
        topic_pieces: TopicPieces,
        cluster_id: str,
    ) -> None:
        self._controller = controller
        self._channel = channel
        self._arrivals = arrivals
        self._broker_grace = broker_grace
        self._advertised = advertised
        self._topic_pieces = topic_pieces
        self._cluster_id = cluster_id

    @serves_overlapping(MetadataRequest)
    async def metadata(self, request: MetadataRequest, call: Call) -> Answer:
        """Returns buffers, because topics are cached in encoded form."""
        version = call.version
        topics, turns = request.topics, Turns()
        if (
            topics is not None
            and version < FIRST_WITH_IDS
            and any(t.name is None or t.topic_id != ZERO_ID for t in topics)
        ):
            named = await each_once(((topic.name, topic.topic_id) for topic in topics), turns)
            refused = [encode_topic(_refused(*each), version) async for each in turns.through(named)]
            nothing = MetadataResponse(brokers=(), topics=())
            return [write_answer(nothing, refused, len(refused), version, call.correlation_id)]
        await self._broker_grace.settled(self._controller)
        operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else UNTOLD_OPERATIONS
        if topics is None or (version == 0 and not topics):
            image = self._controller.image
            joined = await self._topic_pieces.all(image, call.client.listener, version, operations)
            pieces, count = [joined], len(image.topics)
        else:
            pieces = await self._some(request, call, topics, operations, turns)
            count = len(pieces)
        return [write_answer(self._without_topics(call, request), pieces, count, version, call.correlation_id)]

    def _without_topics(self, call: Call, request: MetadataRequest) -> MetadataResponse:
        controller = self._controller
        found = self._advertised.of(controller.image, call.client.listener, call.local)
        is_asked = request.include_cluster_authorized_operations
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker.broker_id, host=address.host, port=address.port, rack=broker.rack)
                for broker, address in found
                if self._broker_grace.is_listed(broker, controller.image)
            ],
            cluster_id=self._cluster_id,
            controller_id=controller.node_id,
            topics=(),
            cluster_authorized_operations=CLUSTER_OPERATIONS if is_asked else UNTOLD_OPERATIONS,
        )

    async def _some(
        self,
        request: MetadataRequest,
        call: Call,
        topics: Sequence[MetadataRequestTopic],
        operations: int,
        turns: Turns,
    ) -> list[bytes]:
        """The requested topics, encoded, each once."""
        version, listener = call.version, call.client.listener
        ids = await each_once((topic.topic_id for topic in topics if topic.topic_id != ZERO_ID), turns)
        if ids:
            return [await self._by_id(topic_id, call, operations, turns) async for topic_id in turns.through(ids)]
        names = await each_once((topic.name or "" for topic in topics), turns)
        failed: dict[str, ErrorCode] = {}
        controller = self._controller
        if request.allow_auto_topic_creation and controller.settings.is_on("auto.create.topics.enable"):
            missing = await self._missing(names, turns)
            if missing:
                failed = await create_missing(controller, self._channel, self._arrivals, missing)
        image = controller.image
        pieces = []
        async for name in turns.through(names):
            topic = image.topics.get(name)
            if topic is not None and name not in failed:
                pieces.append(await self._topic_pieces.one(topic, image, listener, version, turns, operations))
            else:
                row = _missing(name, failed.get(name) or why_missing(name), operations)
                pieces.append(encode_topic(row, version))
        return pieces

    async def _missing(self, names: Iterable[str], turns: Turns) -> list[str]:
        """The first MADE_MAX of the topics that do not exist."""
        missing: list[str] = []
        for part in cut(list(names), PIECE_ELEMENTS):
            topics = self._controller.image.topics
            missing += [name for name in part if name not in topics]
            if len(missing) >= MADE_MAX:
                return missing[:MADE_MAX]
            await turns.after(len(part) // LOOK_UPS_PER_ELEMENT)
        return missing

    async def _by_id(self, topic_id: bytes, call: Call, operations: int, turns: Turns) -> bytes:
        image, version, listener = self._controller.image, call.version, call.client.listener
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            return await self._topic_pieces.one(topic, image, listener, version, turns, operations)
        unknown = MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=()
        )
        return encode_topic(unknown, version)


def why_missing(name: str) -> ErrorCode:
    """The error code for a topic that does not exist."""
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
