"""Reports what cannot be read, when it is read again, and when to give up.

Reading goes on through an outage. It ends where it cannot go on: a topic that the brokers no longer know, and, if the
end of the topic was asked for, an outage that lasts longer than the time limit.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.cli.errors import Failed
from penstock.client.consumer.fetcher import Trouble
from penstock.client.errors import ClientError, Refused
from penstock.client.metadata import TopicPartition
from penstock.model.errors import ErrorCode

TOLD_AFTER_MS: Final = 2_000
"""A shorter outage is not reported: a leader that moves causes one."""
AGAIN_AFTER_MS: Final = 60_000
GONE_AFTER_MS: Final = 15_000
"""A broker that has just started may not know all topics yet."""
SHOWN_MAX: Final = 3
_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


@dataclass(slots=True)
class _Outage:
    since_ms: int
    gone_since_ms: int | None = None
    is_told: bool = False


class Outages:
    """See the module. `limit_ms` is None if reading has no end."""

    def __init__(self, topic: str, group: str | None, limit_ms: int | None, tell: Callable[[str], None]) -> None:
        self._topic = topic
        self._group = group
        self._limit_ms = limit_ms
        self._tell = tell
        self._outages: dict[TopicPartition | None, _Outage] = {}
        self._told_ms = 0
        self._gone_since_ms: int | None = None

    def look_at_topic(self, now_ms: int, *, is_known: bool) -> None:
        """Raises Failed if the brokers have not known the topic for a while."""
        if is_known:
            self._gone_since_ms = None
        elif self._gone_since_ms is None:
            self._gone_since_ms = now_ms
        elif now_ms - self._gone_since_ms >= GONE_AFTER_MS:
            raise gone(self._topic)

    def look(self, now_ms: int, troubles: Sequence[Trouble]) -> None:
        """Reports changes. Raises Failed if reading cannot go on."""
        errors = {each.partition: each.error for each in troubles}
        for each in troubles:
            outage = self._outages.setdefault(each.partition, _Outage(each.since_ms))
            self._check(each.partition, outage, each.error, now_ms)
        self._tell_of_ends(now_ms, [each for each in self._outages if each not in errors])
        due = [each for each in errors if now_ms - self._outages[each].since_ms >= TOLD_AFTER_MS]
        is_new = any(not self._outages[each].is_told for each in (self._partitions(due) or due))
        if due and (is_new or now_ms - self._told_ms >= AGAIN_AFTER_MS):
            self._tell_of(due, errors[due[0]], now_ms)

    def _check(self, partition: TopicPartition | None, outage: _Outage, error: ClientError, now_ms: int) -> None:
        if not is_gone(error):
            outage.gone_since_ms = None
        elif outage.gone_since_ms is None:
            outage.gone_since_ms = now_ms
        elif now_ms - outage.gone_since_ms >= GONE_AFTER_MS:
            raise gone(self._topic if partition is None else str(partition))
        lasts_ms = now_ms - outage.since_ms
        if self._limit_ms is not None and lasts_ms >= self._limit_ms:
            raise Failed(
                f"{self._topic} could not be read to its end: {self._named([partition])} cannot be read since "
                f"{lasts_ms // 1000} s: {str(error).rstrip('.')}; --timeout waits longer"
            )

    def _tell_of(self, partitions: Sequence[TopicPartition | None], error: ClientError, now_ms: int) -> None:
        lasts_ms = now_ms - min(self._outages[each].since_ms for each in partitions)
        until = "until it succeeds; Ctrl-C ends" if self._limit_ms is None else f"for {self._limit_ms // 1000} s"
        for each in self._partitions(partitions) or partitions:
            self._outages[each].is_told = True
        self._told_ms = now_ms
        cause = str(error).rstrip(".")
        end = "" if cause.endswith("?") else "."
        self._tell(
            f"{self._named(partitions)} cannot be {self._verb(partitions)} since {lasts_ms // 1000} s: {cause}{end} "
            f"Trying again {until}."
        )

    def _tell_of_ends(self, now_ms: int, over: Sequence[TopicPartition | None]) -> None:
        ended = {each: self._outages.pop(each) for each in over}
        told = {each: outage for each, outage in ended.items() if outage.is_told}
        if told:
            lasted_ms = now_ms - min(outage.since_ms for outage in told.values())
            self._tell(f"{self._named(told)} can be {self._verb(told)} again, after {lasted_ms // 1000} s.")

    @staticmethod
    def _partitions(partitions: Iterable[TopicPartition | None]) -> list[TopicPartition | None]:
        return [each for each in partitions if each is not None]

    def _verb(self, partitions: Iterable[TopicPartition | None]) -> str:
        return "read" if self._partitions(partitions) else "reached"

    def _named(self, partitions: Iterable[TopicPartition | None]) -> str:
        """`orders[0], orders[1] and 4 more`; the coordinator only if it is alone."""
        names = list(map(str, self._partitions(partitions)))
        if not names:
            return f"the coordinator of group {self._group}"
        rest = len(names) - SHOWN_MAX
        return ", ".join(names[:SHOWN_MAX]) + (f" and {rest} more" if rest > 0 else "")


def gone(what: str) -> Failed:
    """The error of a topic or partition that the brokers have not known for a while."""
    return Failed(f"{what} cannot be read any more: the brokers do not know it; it may have been deleted")


def is_gone(error: ClientError) -> bool:
    """Whether the brokers do not know the topic."""
    return isinstance(error, Refused) and error.code in _GONE
