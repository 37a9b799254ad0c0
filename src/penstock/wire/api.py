"""The table of APIs: keys, names, and which listener serves them.

Request and response classes are imported on first use, so that a process pays only for the APIs that it uses.
"""

from enum import IntEnum
from functools import cache
from importlib import import_module

from penstock.model.errors import UnsupportedVersion
from penstock.wire.declare import Request, Response


class Api(IntEnum):
    """An API by its key. Keys 4 to 7 are retired."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    @property
    def title(self) -> str:
        """The name that Kafka's documentation uses, such as FetchSnapshot."""
        return "".join(word.capitalize() for word in self.name.split("_"))


CONTROLLER_ONLY = frozenset(
    {
        Api.VOTE,
        Api.BEGIN_QUORUM_EPOCH,
        Api.END_QUORUM_EPOCH,
        Api.ALTER_PARTITION,
        Api.ENVELOPE,
        Api.FETCH_SNAPSHOT,
        Api.BROKER_REGISTRATION,
        Api.BROKER_HEARTBEAT,
        Api.ALLOCATE_PRODUCER_IDS,
        Api.CONTROLLER_REGISTRATION,
        Api.ASSIGN_REPLICAS_TO_DIRS,
        Api.UPDATE_RAFT_VOTER,
    }
)
"""Served only on a controller's listener, to other nodes; never to clients of a broker."""

ALSO_ON_CONTROLLERS = frozenset(
    {
        Api.FETCH,
        Api.SASL_HANDSHAKE,
        Api.API_VERSIONS,
        Api.CREATE_TOPICS,
        Api.DELETE_TOPICS,
        Api.DESCRIBE_ACLS,
        Api.CREATE_ACLS,
        Api.DELETE_ACLS,
        Api.DESCRIBE_CONFIGS,
        Api.ALTER_CONFIGS,
        Api.SASL_AUTHENTICATE,
        Api.CREATE_PARTITIONS,
        Api.CREATE_DELEGATION_TOKEN,
        Api.RENEW_DELEGATION_TOKEN,
        Api.EXPIRE_DELEGATION_TOKEN,
        Api.DESCRIBE_DELEGATION_TOKEN,
        Api.ELECT_LEADERS,
        Api.INCREMENTAL_ALTER_CONFIGS,
        Api.ALTER_PARTITION_REASSIGNMENTS,
        Api.LIST_PARTITION_REASSIGNMENTS,
        Api.ALTER_CLIENT_QUOTAS,
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS,
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        Api.DESCRIBE_QUORUM,
        Api.UPDATE_FEATURES,
        Api.DESCRIBE_CLUSTER,
        Api.UNREGISTER_BROKER,
        Api.ADD_RAFT_VOTER,
        Api.REMOVE_RAFT_VOTER,
    }
)
"""Served on a broker's listener and on a controller's."""


def api_for(key: int) -> Api:
    """The API with this key; raises UnsupportedVersion for an unknown key."""
    try:
        return Api(key)
    except ValueError:
        raise UnsupportedVersion(f"there is no API with key {key}") from None


@cache
def request_class(api: Api) -> type[Request]:
    """The declaration of the API's request."""
    found: type[Request] = getattr(import_module(f"penstock.wire.messages.{api.name.lower()}"), f"{api.title}Request")
    return found


@cache
def response_class(api: Api) -> type[Response]:
    """The declaration of the API's response."""
    found: type[Response] = getattr(import_module(f"penstock.wire.messages.{api.name.lower()}"), f"{api.title}Response")
    return found
