"""What can happen to the replicas of a broker. The driver tells it, one event after the other."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from penstock.metadata.cluster_commands import AlteredPartitions
from penstock.metadata.image import Image
from penstock.replication.ports import Key, ReplicaLog
from penstock.wire.messages.fetch import FetchResponse


class TimePassed(NamedTuple):
    """It is `wake_at` or later."""


class ImageLearned(NamedTuple):
    """The cluster as of a later offset of the metadata log, all of which is committed."""

    image: Image


class LogOpened(NamedTuple):
    """The `OpenLog` is done: the log is there, with whatever it held before."""

    key: Key
    log: ReplicaLog


class LogFailed(NamedTuple):
    """The log is offline, and stays so."""

    key: Key


class LogsSynced(NamedTuple):
    """A round of group commit is done; the logs' `durable_end` says how far each is."""

    keys: Sequence[Key]


class LogCut(NamedTuple):
    """The `CutLog` or `RestartLog` is done: the log ends there, durably."""

    key: Key


class LogTrimmed(NamedTuple):
    """The log start has moved, durably: a `TrimLog` is done or was not possible, or records were deleted otherwise."""

    key: Key


class FetchAnswered(NamedTuple):
    """A source answers the fetch with this number."""

    source: int
    number: int
    response: FetchResponse
    wall_ms: int
    """When it came, by the clock that logs count the idleness of producers on; steps count on another one."""


class FetchLost(NamedTuple):
    """The connection on which that fetch went out is lost, or never came about."""

    source: int
    number: int


class ChangeAnswered(NamedTuple):
    """The controller answers the AlterPartition with this number.

    The driver never turns to an older controller after a newer one: what an older one refuses, the newer may have done.
    """

    number: int
    reply: AlteredPartitions


class ChangeLost(NamedTuple):
    """That request had no answer: it may have been carried out or not."""

    number: int


Event: TypeAlias = (
    TimePassed
    | ImageLearned
    | LogOpened
    | LogFailed
    | LogsSynced
    | LogCut
    | LogTrimmed
    | FetchAnswered
    | FetchLost
    | ChangeAnswered
    | ChangeLost
)
