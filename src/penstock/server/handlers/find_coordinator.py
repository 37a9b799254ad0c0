"""FindCoordinator: which broker looks after a group, a transactional id or a share partition.

Serves    FindCoordinator 0–6; several keys at once from version 4 on, share partitions from 6 on.
Answers   for a group, who leads its partition of __consumer_offsets, which is made if it is not there. For the others
          COORDINATOR_NOT_AVAILABLE, which makes clients ask again, until there are coordinators for them.
Departs   from Kafka 4.3 until then; the first to ask waits until the topic is there. A kind of key that does not exist
          is INVALID_REQUEST. A key that is named several times is answered once.
"""

from collections.abc import Iterable
from typing import Final

from penstock.coordinator.placement import OFFSETS_TOPIC, partition_of
from penstock.model.errors import ErrorCode
from penstock.server.advertised import brokers_for
from penstock.server.handlers.needs import Needs, node_of
from penstock.server.pieces import Turns, each_once, weight_of
from penstock.server.serving import Call, serves
from penstock.server.topic_creation import create_missing
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
FIRST_BATCHED: Final = 4
FIRST_WITH_SHARE: Final = 6

NO_NODE: Final = -1


@serves(FindCoordinatorRequest)
async def find_coordinator(request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    """One answer per key."""
    is_one = call.version < FIRST_BATCHED
    keys = [request.key] if is_one else request.coordinator_keys
    turns = Turns()
    found = await _look_up(node_of(call), call, request.key_type, await each_once(keys, turns), turns)
    if not is_one:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _look_up(node: Needs, call: Call, key_type: int, keys: Iterable[str], turns: Turns) -> list[Coordinator]:
    if key_type not in (GROUP, TRANSACTION, SHARE) or (key_type == SHARE and call.version < FIRST_WITH_SHARE):
        sentence = f"key type {key_type} does not exist in version {call.version}"
        return [_nobody(key, ErrorCode.INVALID_REQUEST, sentence) async for key in turns.through(keys)]
    if key_type != GROUP:
        sentence = "this node has none of that kind yet"
        return [_nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, sentence) async for key in turns.through(keys)]
    if not node.groups.partition_count:
        await create_missing(node.controller, node.channel, node.adoption, [OFFSETS_TOPIC])
        if not node.groups.partition_count:
            sentence = f"{OFFSETS_TOPIC} could not be made; look at offsets.topic.replication.factor and at the brokers"
            return [_nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, sentence) async for key in turns.through(keys)]
    await node.departures.settled(node.controller)
    controller = node.controller
    brokers = {
        found.broker.broker_id: found.address
        for found in brokers_for(controller.image, controller.settings, controller.node_id, call.local)
        if not found.broker.is_fenced
    }
    partitions = controller.image.topics[OFFSETS_TOPIC].partitions
    count = len(partitions)
    answers = []
    for key in keys:
        await turns.after(weight_of(key))
        index = partition_of(key, count)
        leader = partitions[index].leader
        if leader not in brokers:
            answers.append(
                _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody leads {OFFSETS_TOPIC}-{index} now")
            )
            continue
        host, port = brokers[leader]
        answers.append(
            Coordinator(key=key, node_id=leader, host=host, port=port, error_code=ErrorCode.NONE, error_message="")
        )
    return answers


def _nobody(key: str, code: ErrorCode, sentence: str) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=sentence)
