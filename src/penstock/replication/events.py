"""Events of the replicas of a broker. The driver delivers them one after the other."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from penstock.metadata.cluster_commands import AlteredPartitions
from penstock.metadata.image import Image
from penstock.replication.ports import Key, ReplicaLog
from penstock.wire.messages.fetch import FetchResponse


class TimePassed(NamedTuple):
    """The time is `wake_at` or later."""


class ImageLearned(NamedTuple):
    """The image of the cluster at a later committed offset of the metadata log."""

    image: Image


class LogOpened(NamedTuple):
    """The `OpenLog` is done: the log is open, with its earlier content."""

    key: Key
    log: ReplicaLog


class LogFailed(NamedTuple):
    """The log is offline, and stays offline."""

    key: Key


class LogsSynced(NamedTuple):
    """A round of group commit is done; each log's `durable_end` is up to date."""

    keys: Sequence[Key]


class LogCut(NamedTuple):
    """The `CutLog` or `RestartLog` is done: the log durably has its new end."""

    key: Key


class LogTrimmed(NamedTuple):
    """A `TrimLog` is done or was not possible, or the log start has moved durably by another deletion."""

    key: Key


class FetchAnswered(NamedTuple):
    """The response of a source to the fetch with this number."""

    source: int
    number: int
    response: FetchResponse
    wall_ms: int
    """Arrival time by the clock on which logs measure the idleness of producers; steps use a different clock."""


class FetchLost(NamedTuple):
    """The connection of that fetch is lost, or was never established."""

    source: int
    number: int


class ChangeAnswered(NamedTuple):
    """The controller's response to the AlterPartition with this number.

    The driver never uses an older controller after a newer one: the newer may have made a change that an older refuses.
    """

    number: int
    reply: AlteredPartitions


class ChangeLost(NamedTuple):
    """That request got no response: it may have been carried out or not."""

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
