"""Effects of the replicas of a broker.

The driver carries out effects in the order in which steps returned them. `OpenLog`, `SyncLog`, `CutLog`, `RestartLog`
and `TrimLog` are started in that order and report their end as an event; the others are done at once.
"""

from typing import NamedTuple, TypeAlias

from penstock.metadata.cluster_commands import AlterPartition
from penstock.model.report import Report
from penstock.replication.ports import Key
from penstock.wire.messages.fetch import FetchRequest


class OpenLog(NamedTuple):
    """Opens the log of a replica of this broker, or creates it if there is none, then `LogOpened`."""

    key: Key
    topic: str


class DropLog(NamedTuple):
    """This broker no longer has the replica; operations in progress on its log end and are not reported."""

    key: Key


class Led(NamedTuple):
    """This broker leads the epoch, which begins at `start_offset` in its log. No request was answered in it before."""

    key: Key
    epoch: int
    start_offset: int


class Followed(NamedTuple):
    """Another broker leads, or none (-1): requests that wait for this broker as the leader are refused."""

    key: Key
    leader_id: int
    epoch: int


class Committed(NamedTuple):
    """The log's high watermark has advanced: its waiters are notified."""

    key: Key


class SyncLog(NamedTuple):
    """Makes the present content of the log durable, then `LogsSynced`. No fetch is sent to its source before that."""

    key: Key


class CutLog(NamedTuple):
    """Truncates the log durably, then `LogCut`. Until then the replica neither fetches nor leads.

    `lost` is the number of truncated offsets below this replica's high watermark: the result of an unclean election or
    of more failures than are tolerated, to be reported to the operator.
    """

    key: Key
    end_offset: int
    lost: int


class RestartLog(NamedTuple):
    """Discards the log and restarts at an offset, durably, then `LogCut`: the leader's log begins after this one."""

    key: Key
    offset: int


class TrimLog(NamedTuple):
    """Moves the log start to that of the leader, durably, then `LogTrimmed`. The replica keeps fetching meanwhile."""

    key: Key
    start_offset: int


class StartReached(NamedTuple):
    """Reports the low watermark of a partition that is led here, for which `Replicas.await_start` was called.

    Deletions of records before it may be acknowledged.
    """

    key: Key
    low_watermark: int


class SendFetch(NamedTuple):
    """Sends a fetch; its `FetchAnswered` or `FetchLost` carries the same number."""

    source: int
    number: int
    request: FetchRequest


class SendChange(NamedTuple):
    """Sends an AlterPartition to the controller; its `ChangeAnswered` or `ChangeLost` carries the same number."""

    number: int
    command: AlterPartition


Effect: TypeAlias = (
    OpenLog
    | DropLog
    | Led
    | Followed
    | Committed
    | SyncLog
    | CutLog
    | RestartLog
    | TrimLog
    | StartReached
    | SendFetch
    | SendChange
    | Report
)
