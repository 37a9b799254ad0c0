"""What the replicas of a broker want done.

The driver carries effects out in the order in which steps gave them. `OpenLog`, `SyncLog`, `CutLog` and `RestartLog`
are begun in their place and report their end as an event, and so is `TrimLog`; the others are done at once.
"""

from typing import NamedTuple, TypeAlias

from penstock.metadata.cluster_commands import AlterPartition
from penstock.replication.ports import Key
from penstock.wire.messages.fetch import FetchRequest


class OpenLog(NamedTuple):
    """This broker has a replica: the log is opened, or made where there is none, then `LogOpened`."""

    key: Key
    topic: str


class DropLog(NamedTuple):
    """This broker has the replica no longer; whatever is under way on its log ends, and is not reported."""

    key: Key


class Led(NamedTuple):
    """This broker leads the epoch, which begins at `start_offset` in its log. Nothing was answered in it before."""

    key: Key
    epoch: int
    start_offset: int


class Followed(NamedTuple):
    """Somebody else leads, or nobody (-1): whoever waits for this broker as a leader is told to look elsewhere."""

    key: Key
    leader_id: int
    epoch: int


class Committed(NamedTuple):
    """The log's high watermark has moved: whoever waits for it is told."""

    key: Key


class SyncLog(NamedTuple):
    """Makes what the log holds by now durable, then `LogsSynced`. No fetch leaves for its source before that."""

    key: Key


class CutLog(NamedTuple):
    """Cuts the log's end off, durably, then `LogCut`. Until then the replica neither fetches nor leads.

    `lost` is how much of it was committed as far as this replica knew: an unclean election or a loss beyond what is
    promised, and to be told to whoever operates the broker.
    """

    key: Key
    end_offset: int
    lost: int


class RestartLog(NamedTuple):
    """Forgets everything and goes on at an offset, durably, then `LogCut`: the leader's log begins behind this one."""

    key: Key
    offset: int


class TrimLog(NamedTuple):
    """Moves the log start to that of the leader, durably, then `LogTrimmed`. The replica goes on fetching meanwhile."""

    key: Key
    start_offset: int


class StartReached(NamedTuple):
    """The low watermark of a partition that is led here, for which `Replicas.await_start` was called.

    Deletions of records before it may be acknowledged.
    """

    key: Key
    low_watermark: int


class SendFetch(NamedTuple):
    """A fetch; what its `FetchAnswered` or `FetchLost` is to say is the number."""

    source: int
    number: int
    request: FetchRequest


class SendChange(NamedTuple):
    """An AlterPartition to the controller; what its `ChangeAnswered` or `ChangeLost` is to say is the number."""

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
)
