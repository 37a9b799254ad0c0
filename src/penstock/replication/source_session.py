"""The follower's side of an incremental fetch session (KIP-227): names only changed partitions to a source.

Invariants: everything that the source stores about a partition is compared, the leader epoch included (R28,
KAFKA-9338); a session continues only with the response to its last request: if that is lost, the source's session epoch
is unknown, and the next request names everything again (KAFKA-8052). The source has not recorded a partition that it
refused: the partition is named again even if unchanged. A request names at most NAMED_MAX partitions, so that it is
small for the source; the remaining ones come first in the next.
"""

from itertools import islice
from typing import Final, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.replication.fetch_sessions import FIRST_EPOCH, NO_SESSION
from penstock.replication.ports import Key
from penstock.wire.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

NAMED_MAX: Final = 1_000
"""Partitions in one request; they take less than 64 KiB, which a source decodes and examines in one piece."""
LOOKED_AT_MAX: Final = 4_000
"""Marked partitions that are examined for one request."""
_EPOCH_MAX: Final = 2**31 - 1


class FetchRequestData(NamedTuple):
    """The session's part of the next request."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    has_more: bool = False
    """Whether more partitions remain to be named: the source need not wait for records before it responds."""


class SourceSession:
    """One session with one source. `mark` notes possibly changed partitions; `ask` checks whether they have changed."""

    __slots__ = ("_id", "_marked", "_refused", "epoch", "told")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self.epoch = FIRST_EPOCH
        self.told: dict[Key, FetchPartition] = {}
        """The last request sent for each partition."""
        self._marked: dict[Key, None] = {}
        self._refused: set[Key] = set()

    @property
    def is_incremental(self) -> bool:
        """Whether the next request names changes only."""
        return self.epoch != FIRST_EPOCH

    def mark(self, key: Key) -> None:
        """Marks a partition whose entry may differ from the last request."""
        self._marked[key] = None

    def refused(self, key: Key) -> None:
        """Notes that the source refused a partition."""
        self._refused.add(key)

    def ask(self, wanted: dict[Key, FetchPartition | None]) -> FetchRequestData:
        """Builds the next request. `wanted` has those `marked`, or all if it is not incremental; None is unwanted."""
        if not self.is_incremental:
            if len(wanted) > NAMED_MAX:  # without a session, too, every partition has its turn
                wanted = {key: wanted[key] for key in (*(key for key in self._marked if key in wanted), *wanted)}
            self._marked, self._refused = {}, set()
            self.told = {}
            for key, each in wanted.items():
                if each is not None:
                    if len(self.told) < NAMED_MAX:
                        self.told[key] = each
                    else:
                        self._marked[key] = None
            return FetchRequestData(self._id, self.epoch, _by_topic(self.told), [], bool(self._marked))
        changed: dict[Key, FetchPartition] = {}
        forgotten: dict[bytes, list[int]] = {}
        count = 0
        for key, each in wanted.items():
            self._marked.pop(key, None)
            if each is None:
                if self.told.pop(key, None) is not None:
                    count += 1
                    forgotten.setdefault(key[0], []).append(key[1])
            elif key in self._refused or self.told.get(key) != each:
                if count >= NAMED_MAX:
                    self._marked[key] = None
                    continue
                count += 1
                self._refused.discard(key)
                self.told[key] = changed[key] = each
        gone = [ForgottenTopic(topic_id=topic_id, partitions=numbers) for topic_id, numbers in forgotten.items()]
        return FetchRequestData(self._id, self.epoch, _by_topic(changed), gone, bool(self._marked))

    @property
    def marked(self) -> list[Key]:
        """The partitions to examine for the next request, in order."""
        return list(islice(self._marked, LOOKED_AT_MAX))

    def answered(self, error: ErrorCode, session_id: int) -> bool:
        """Handles a response; False if it carries an error, which ends the session."""
        if error is not ErrorCode.NONE:
            self._id = self._id if error is ErrorCode.INVALID_FETCH_SESSION_EPOCH else NO_SESSION
            self.epoch = FIRST_EPOCH
            return False
        if not self.is_incremental:
            self._id = session_id
            self.epoch = FIRST_EPOCH if session_id == NO_SESSION else 1
        elif session_id == NO_SESSION:  # the session was empty, and has ended
            self._id, self.epoch = NO_SESSION, FIRST_EPOCH
        else:
            self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1
        return True

    def lost(self) -> None:
        """Handles a lost response: the next request names everything."""
        self.epoch = FIRST_EPOCH


def _by_topic(partitions: dict[Key, FetchPartition]) -> list[FetchTopic]:
    topics: dict[bytes, list[FetchPartition]] = {}
    for (topic_id, _), each in partitions.items():
        topics.setdefault(topic_id, []).append(each)
    return [FetchTopic(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]
