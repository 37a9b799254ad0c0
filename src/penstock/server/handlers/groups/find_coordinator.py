"""FindCoordinator: the broker that coordinates a group, a transactional id or a share partition.

Serves    FindCoordinator 0–6; several keys at once from version 4 on, share partitions from version 6 on.
Answers   for a group, the leader of its partition of `__consumer_offsets`; the topic is created if it does not exist.
          The address is that of the listener on which the request arrived; COORDINATOR_NOT_AVAILABLE if the leader
          lacks it.
          For transactional ids and share partitions COORDINATOR_NOT_AVAILABLE, after which clients retry, until there
          are coordinators for them.
Departs   from Kafka 4.3: transactional ids and share partitions have no coordinator yet; the first request for a group
          waits until `__consumer_offsets` is created. An unknown key type is INVALID_REQUEST. A key that is named
          several times is answered once.
"""

from collections.abc import Iterable
from typing import Final

from penstock.coordinator.placement import OFFSETS_TOPIC, partition_of
from penstock.model.errors import ErrorCode
from penstock.server.connections.advertised import AdvertisedBrokers
from penstock.server.connections.serving import Call, serves
from penstock.server.controller.controller_channel import ControllerChannel
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.controller.topic_creation import create_missing
from penstock.server.groups.group_coordinator import GroupCoordinator
from penstock.server.loop.pieces import Turns, each_once, weight_of
from penstock.server.membership.broker_grace import BrokerGrace
from penstock.server.partitions.topic_arrivals import TopicArrivals
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
FIRST_BATCHED: Final = 4
FIRST_WITH_SHARE: Final = 6

NO_NODE: Final = -1


class FindCoordinatorHandler:
    """Finds the coordinators of groups."""

    def __init__(
        self,
        controller: ControllerRunner,
        channel: ControllerChannel,
        arrivals: TopicArrivals,
        groups: GroupCoordinator,
        broker_grace: BrokerGrace,
        advertised: AdvertisedBrokers,
    ) -> None:
        self._controller = controller
        self._channel = channel
        self._arrivals = arrivals
        self._groups = groups
        self._broker_grace = broker_grace
        self._advertised = advertised

    @serves(FindCoordinatorRequest)
    async def find_coordinator(self, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
        """Returns one coordinator per key."""
        is_one = call.version < FIRST_BATCHED
        keys = [request.key] if is_one else request.coordinator_keys
        turns = Turns()
        found = await self._look_up(call, request.key_type, await each_once(keys, turns), turns)
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

    async def _look_up(self, call: Call, key_type: int, keys: Iterable[str], turns: Turns) -> list[Coordinator]:
        if key_type not in (GROUP, TRANSACTION, SHARE) or (key_type == SHARE and call.version < FIRST_WITH_SHARE):
            sentence = f"key type {key_type} does not exist in version {call.version}"
            return [_nobody(key, ErrorCode.INVALID_REQUEST, sentence) async for key in turns.through(keys)]
        if key_type != GROUP:
            sentence = "this node has none of that kind yet"
            return [_nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, sentence) async for key in turns.through(keys)]
        if not self._groups.partition_count:
            await create_missing(self._controller, self._channel, self._arrivals, [OFFSETS_TOPIC])
            if not self._groups.partition_count:
                sentence = (
                    f"{OFFSETS_TOPIC} could not be made; look at offsets.topic.replication.factor and at the brokers"
                )
                return [
                    _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, sentence) async for key in turns.through(keys)
                ]
        await self._broker_grace.settled(self._controller)
        image, listener = self._controller.image, call.client.listener
        brokers = {
            found.broker.broker_id: found.address
            for found in self._advertised.of(image, listener, call.local)
            if not found.broker.is_fenced
        }
        partitions = image.topics[OFFSETS_TOPIC].partitions
        count = len(partitions)
        answers = []
        for key in keys:
            await turns.after(weight_of(key))
            index = partition_of(key, count)
            leader = partitions[index].leader
            if leader not in brokers:
                sentence = f"nobody leads {OFFSETS_TOPIC}-{index} now"
                if leader in image.brokers and not image.brokers[leader].is_fenced:
                    sentence = f"broker {leader}, which leads {OFFSETS_TOPIC}-{index}, has no listener {listener}"
                answers.append(_nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, sentence))
                continue
            host, port = brokers[leader]
            answers.append(
                Coordinator(key=key, node_id=leader, host=host, port=port, error_code=ErrorCode.NONE, error_message="")
            )
        return answers


def _nobody(key: str, code: ErrorCode, sentence: str) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=sentence)
