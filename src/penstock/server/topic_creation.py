"""Topics that are made because somebody needs them: on a client's first use, and the coordinators' own."""

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.metadata.commands import CreateTopics, NewTopic, Refusal
from penstock.metadata.names import check_name
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.adoption import Adoption
from penstock.server.controller_runner import ControllerRunner

CREATION_MS: Final = 5_000
"""How long a client waits for a topic that is made for it; then it asks again."""

TOLD: Final = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR)
"""What a client can do something about; anything else is UNKNOWN_TOPIC_OR_PARTITION, and clients try again."""

SHARE_STATE_SEGMENT_BYTES: Final = "104857600"

_COMPACTED = ("cleanup.policy", "compact")
_AS_SENT = ("compression.type", "producer")


def needed_topic(name: str, settings: BrokerSettings) -> NewTopic:
    """A topic as it is made when nobody says how."""
    match name:
        case "__consumer_offsets":
            segment = ("segment.bytes", str(settings.number("offsets.topic.segment.bytes")))
            return _internal(name, settings, "offsets.topic", (_COMPACTED, _AS_SENT, segment))
        case "__transaction_state":
            configs = (
                _COMPACTED,
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(settings.number("transaction.state.log.min.isr"))),
                ("segment.bytes", str(settings.number("transaction.state.log.segment.bytes"))),
                ("unclean.leader.election.enable", "false"),
            )
            return _internal(name, settings, "transaction.state.log", configs)
        case "__share_group_state":
            configs = (
                ("cleanup.policy", "delete"),
                _AS_SENT,
                ("min.insync.replicas", str(settings.number("share.coordinator.state.topic.min.isr"))),
                ("retention.ms", "-1"),
                ("segment.bytes", SHARE_STATE_SEGMENT_BYTES),
            )
            return _internal(name, settings, "share.coordinator.state.topic", configs)
    return NewTopic(name)


def _internal(name: str, settings: BrokerSettings, prefix: str, configs: tuple[tuple[str, str], ...]) -> NewTopic:
    partitions = settings.number(f"{prefix}.num.partitions")
    return NewTopic(name, partitions, settings.number(f"{prefix}.replication.factor"), configs=configs)


async def create_missing(
    controller: ControllerRunner, adoption: Adoption, names: Sequence[str]
) -> dict[str, ErrorCode]:
    """Makes topics, and returns when they can be written; for each, why it is not there."""
    failed: dict[str, ErrorCode] = {}
    wanted = []
    for name in names:
        try:
            check_name(name)
            wanted.append(needed_topic(name, controller.settings))
        except Refusal as refusal:
            failed[name] = refusal.code
    if not wanted:
        return failed
    try:
        async with asyncio.timeout(CREATION_MS / 1000):
            for result in await controller.ask(CreateTopics(tuple(wanted))):
                if result.code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    is_told = result.code in TOLD
                    failed[result.name] = result.code if is_told else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await adoption.settled([topic.name for topic in wanted])
    except (ProtocolError, TimeoutError):
        failed |= {topic.name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in wanted}
    return failed
