"""Errors of the client. Each message states what happened and, where possible, what to do about it."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from penstock.client.metadata import TopicPartition
from penstock.model.errors import ErrorCode

_SHOWN_CHARACTERS = 60


class ClientError(Exception):
    """Base class of all errors that the client raises."""

    retries: ClassVar[bool] = False

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later, or at another broker."""
        return self.retries


class Unreachable(ClientError):
    """No connection to a broker: refused, unknown host name, no response."""

    retries = True


class ConnectionLost(ClientError):
    """The connection ended before the response arrived; whether the request was carried out is unknown."""

    retries = True


class TimedOut(ClientError):
    """No response in time; whether the request was carried out is unknown."""

    retries = True


class NotABroker(ClientError):
    """The server does not speak Kafka's protocol, or only one side uses TLS."""


class NotTrusted(ClientError):
    """TLS failed: a certificate is missing, untrusted, or issued for another name."""


class LoginFailed(ClientError):
    """The broker does not accept the credentials, or cannot prove its own identity."""


class Unsupported(ClientError):
    """The broker serves no version of a request that this client supports."""


class Closed(ClientError):
    """The object was used after it was closed."""


class DeliveryTimedOut(ClientError):
    """A record could not be delivered in time. Unless `is_unsent`, it may be in the log nevertheless."""

    def __init__(self, message: str, *, is_unsent: bool) -> None:
        super().__init__(message)
        self.is_unsent = is_unsent


class BufferFull(ClientError):
    """The producer's buffer is full, and too few bytes were delivered in time."""


class Unpublished(NamedTuple):
    """A record that was not delivered, and why."""

    topic: str
    key: bytes | None
    value: bytes | None
    error: Exception


class PublishFailed(ClientError):
    """Records of a blocking producer were not delivered; `failures` has each of them, with its error."""

    def __init__(self, failures: Sequence[Unpublished]) -> None:
        topic, key, value, error = failures[0]
        name = f"with the key {_shown(key)}" if key is not None else f"with the value {_shown(value)}"
        others = f"; nor were {len(failures) - 1} more" if len(failures) > 1 else ""
        super().__init__(f"the record for {topic} {name} was not published: {error}{others}")
        self.failures = tuple(failures)


class Refused(ClientError):
    """The broker answered with an error code."""

    def __init__(self, code: ErrorCode, message: str | None = None, subject: str | None = None) -> None:
        text = f"{code.name}: {message}" if message else code.name
        super().__init__(f"{subject}: {text}" if subject else text)
        self.code = code
        self.message = message
        self.subject = subject

    @property
    def is_retriable(self) -> bool:
        """Whether the error code is retriable."""
        return self.code.is_retriable


class OutOfRange(Refused):
    """The offset is not in the log, which begins at `log_start` and ends before `log_end`."""

    def __init__(self, partition: TopicPartition, offset: int, log_start: int, log_end: int, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message, f"{partition} at offset {offset}")
        self.partition = partition
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end


class CommitFailed(Refused):
    """The group rejects the committer; the partition's current owner will read the uncommitted records again."""

    def __init__(self, code: ErrorCode, group_id: str, partition: TopicPartition, *, is_member: bool) -> None:
        if not is_member:
            text = "the group has members, and only they may commit: stop them first, or name a group that nobody is in"
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            text = "another process has the same instance_id by now: give every process its own"
        else:
            text = (
                "the partition is in other hands by now, and its records will be read again there: "
                "take smaller batches (max_batch) or allow more time for one (rebalance_timeout_ms)"
            )
        super().__init__(code, text, f"group {group_id}, {partition}")
        self.partition = partition


def _shown(data: bytes | None) -> str:
    if data is None:
        return "None"
    text = repr(data.decode(errors="replace"))
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def check(code: ErrorCode, message: str | None = None, subject: str | None = None) -> None:
    """Raises Refused unless the code is NONE."""
    if code is not ErrorCode.NONE:
        raise Refused(code, message or _ADVICE.get(code), subject)


def advice(code: ErrorCode) -> str | None:
    """Returns advice about an error code, if this client has any."""
    return _ADVICE.get(code)


_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the broker knows no such topic or partition",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader: are enough brokers up?",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this login may not use the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this login may not use the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this login may not do that to the cluster",
    ErrorCode.MESSAGE_TOO_LARGE: "the topic takes no batch as large: raise max.message.bytes or lower batch_bytes",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not know this compression",
    ErrorCode.INVALID_RECORD: "the broker refuses a record: a compacted topic needs keys",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group reads this topic: stop its members first",
    ErrorCode.INVALID_GROUP_ID: "a group needs a name",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the group's members share out partitions in another way than "
    "cooperative-sticky: set partition.assignment.strategy of all of them to it, or join another group",
    ErrorCode.FENCED_INSTANCE_ID: "another process has joined with the same instance_id: give every process its own",
    ErrorCode.UNRELEASED_INSTANCE_ID: "a process with the same instance_id is in the group: stop it first, or wait "
    "until its session is over",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the broker allows: see group.max.size",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the broker allows no such session_timeout_ms: see "
    "group.min.session.timeout.ms and group.max.session.timeout.ms",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the broker takes no metadata as long: see offset.metadata.max.bytes",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log does not reach to this offset (any more)",
}
"""Messages for error codes that a broker sends without a helpful message."""
