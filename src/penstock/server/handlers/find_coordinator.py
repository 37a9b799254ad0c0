"""FindCoordinator: which broker looks after a group, a transactional id or a share partition.

Serves    FindCoordinator 0–6; several keys at once from version 4 on, share partitions from 6 on.
Answers   COORDINATOR_NOT_AVAILABLE, which makes clients ask again, until there are coordinators.
Departs   from Kafka 4.3 until then. A kind of key that does not exist is INVALID_REQUEST.
"""

from penstock.model.errors import ErrorCode
from penstock.server.serving import Call, serves
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1
SHARE = 2
FIRST_BATCHED = 4
FIRST_WITH_SHARE = 6

NO_NODE = -1


@serves(FindCoordinatorRequest)
async def find_coordinator(request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    """One answer per key."""
    code, sentence = _look_up(call.version, request.key_type)
    if call.version < FIRST_BATCHED:
        return FindCoordinatorResponse(error_code=code, error_message=sentence, node_id=NO_NODE, host="", port=NO_NODE)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=sentence)
            for key in request.coordinator_keys
        ]
    )


def _look_up(version: int, key_type: int) -> tuple[ErrorCode, str]:
    if key_type not in (GROUP, TRANSACTION, SHARE) or (key_type == SHARE and version < FIRST_WITH_SHARE):
        return ErrorCode.INVALID_REQUEST, f"key type {key_type} does not exist in version {version}"
    return ErrorCode.COORDINATOR_NOT_AVAILABLE, "this node has no coordinators yet"
