"""Proposed ISR changes on their way to the controller: many partitions in one request, one request at a time.

Invariants: a proposal is sent again, unchanged, until the metadata log supersedes it (R09, KAFKA-15353), whatever a
possibly deposed controller answers (KAFKA-14154); it is withdrawn only if a controller reports that it was not carried
out although the leader's other state was current.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.metadata.cluster_commands import AlteredPartitions, AlterPartition, NewIsr
from penstock.model.errors import ErrorCode
from penstock.replication.effects import Effect, SendChange
from penstock.replication.leader import Leader
from penstock.replication.ports import Key
from penstock.replication.settings import CHANGES_PER_REQUEST_MAX, RESEND_MS, ReplicationSettings

NEVER: Final = 1 << 62
NOT_CARRIED_OUT: Final = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)


class Changes:
    """Proposals of all partitions that this broker leads. `find` returns the leadership of a partition, if any."""

    def __init__(
        self,
        me: tuple[int, int],
        settings: ReplicationSettings,
        find: Callable[[Key], Leader | None],
        effects: list[Effect],
    ) -> None:
        self._me = me
        self.settings = settings
        self._find = find
        self._effects = effects
        self._waiting: dict[Key, None] = {}
        self._sent: dict[Key, NewIsr] = {}
        self._awaited = 0
        self._last_number = 0
        self._due_ms = 0
        """When the in-flight request counts as lost; without one, when the next may be sent."""
        self._again: deque[tuple[int, Key]] = deque()
        """Partitions whose proposal is sent again or reconsidered, in order of time: all wait equally long."""

    def add(self, key: Key) -> None:
        """Queues the proposal of a leader."""
        self._waiting[key] = None

    @property
    def wake_at(self) -> int:
        """When the next action is due."""
        again_ms = self._again[0][0] if self._again else NEVER
        return min(self._due_ms, again_ms) if self._awaited or self._waiting else again_ms

    def go_on(self, now: int) -> None:
        """Sends queued proposals, unless a request is in flight."""
        while self._again and self._again[0][0] <= now:
            self._think_over(self._again.popleft()[1], now)
        if self._awaited:
            if now < self._due_ms:
                return
            self.on_lost(self._awaited, now)
        if now < self._due_ms or not self._waiting:
            return
        self._sent = {}
        while self._waiting and len(self._sent) < CHANGES_PER_REQUEST_MAX:
            key = next(iter(self._waiting))
            del self._waiting[key]
            leader = self._find(key)
            if leader is not None and leader.proposal is not None:
                self._sent[key] = leader.proposal
        if not self._sent:
            return
        self._last_number += 1
        self._awaited = self._last_number
        self._due_ms = now + min(self.settings.request_timeout_ms, RESEND_MS)
        command = AlterPartition(*self._me, tuple(self._sent.values()))
        self._effects.append(SendChange(self._awaited, command))

    def _think_over(self, key: Key, now: int) -> None:
        leader = self._find(key)
        if leader is not None and (leader.proposal is not None or leader.grow(now)):
            self._waiting[key] = None

    def on_answer(self, number: int, reply: AlteredPartitions, now: int) -> None:
        """Handles the response to the in-flight request; any other is too late."""
        if number != self._awaited:
            return
        if reply.code is not ErrorCode.NONE:
            self.on_lost(number, now)
            return
        self._awaited = 0
        self._due_ms = now
        codes = {(each.topic_id, each.index): each.code for each in reply.partitions}
        for key, proposal in self._sent.items():
            leader = self._find(key)
            if leader is None or leader.proposal is not proposal:
                continue
            if codes.get(key) in NOT_CARRIED_OUT:
                leader.take_back(proposal)
            self._again.append((now + RESEND_MS, key))
        self._sent = {}

    def on_lost(self, number: int, now: int) -> None:
        """Handles the loss of the in-flight request: its proposals are sent again after the back-off."""
        if number != self._awaited:
            return
        self._awaited = 0
        self._due_ms = now + self.settings.backoff_ms
        self._waiting = dict.fromkeys((*self._sent, *self._waiting))
        self._sent = {}
