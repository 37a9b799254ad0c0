"""Liveness of brokers, judged by the heartbeats that the active controller received: soft state, never recorded.

The clock runs only while the controller does (R34). Of the time between two updates of the clock at most GAP_MS_MAX
counts. After a longer gap no session expires until GAP_MS_MAX has passed again, in which heartbeats that arrived
meanwhile are processed: a controller that was stopped, overloaded or just elected has received no heartbeats, which
says nothing about the brokers. The same holds for shorter pauses: a session has expired only if it had expired at the
previous `time_passes`, so that every heartbeat that arrived before then has been processed.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.metadata.image import Image

WAKE_MS: Final = 100
"""Interval at which an active controller's `time_passes` is called."""
GAP_MS_MAX: Final = 250
"""Most time that counts between two updates of the clock."""


class WakeAt(NamedTuple):
    """A change of a decision: requests a `Tick` at this time."""

    at_ms: int


@dataclass(slots=True)
class Session:
    """State reported by the last heartbeat of one registration."""

    epoch: int
    heard_ms: int
    metadata_offset: int = -1
    shutdown_end: int | None = None
    """End of the metadata log when a broker in controlled shutdown had handed over everything."""


class Liveness:
    """The sessions of brokers, on a clock that counts the controller's running time."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._now: int | None = None
        self._judges_at_ms = 0
        self._told_ms = self._told_before_ms = 0
        self.running_ms = 0
        self.is_active = False

    def begin(self, image: Image, now: int) -> None:
        """Activates the controller; every broker that is not fenced gets a full session."""
        self._now = now
        self.is_active = True
        self._sessions = {
            broker_id: Session(broker.epoch, self.running_ms)
            for broker_id, broker in image.brokers.items()
            if not broker.is_fenced
        }

    def end(self) -> None:
        """Deactivates the controller and drops all sessions."""
        self._sessions = {}
        self.is_active = False

    def time_passes(self, now: int) -> None:
        """Advances the clock; to be called at least every WAKE_MS while the controller is active."""
        self._advance(now)
        if self.running_ms - self._told_ms >= WAKE_MS // 2:  # else earlier heartbeats may still be queued
            self._told_before_ms, self._told_ms = self._told_ms, self.running_ms

    def _advance(self, now: int) -> None:
        gap_ms = 0 if self._now is None else max(0, now - self._now)
        is_patient = self.running_ms < self._judges_at_ms
        self.running_ms += min(gap_ms, GAP_MS_MAX)
        if gap_ms > GAP_MS_MAX and not is_patient:  # a controller that is always late must still expire sessions
            self._judges_at_ms = self.running_ms + GAP_MS_MAX
        self._now = now

    def hear(self, broker_id: int, epoch: int, metadata_offset: int, now: int) -> Session:
        """Records a heartbeat of a broker."""
        self._advance(now)
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = Session(epoch, self.running_ms)
        session.heard_ms = self.running_ms
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        return session

    def lose(self, broker_id: int, epoch: int) -> None:
        """Ends the session of a broker that a probe did not find."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.heard_ms = -(1 << 62)

    def session(self, broker_id: int, epoch: int) -> Session | None:
        """The session of a registration, even if it has expired."""
        session = self._sessions.get(broker_id)
        return session if session is not None and session.epoch == epoch else None

    def is_live(self, broker_id: int, epoch: int, timeout_ms: int) -> bool:
        """Whether a heartbeat of that registration arrived within the timeout."""
        session = self.session(broker_id, epoch)
        return session is not None and self.running_ms - session.heard_ms < timeout_ms

    def _was_live(self, broker_id: int, epoch: int, timeout_ms: int) -> bool:
        session = self.session(broker_id, epoch)
        return session is not None and self._told_before_ms - session.heard_ms < timeout_ms

    def expired(self, image: Image, timeout_ms: int) -> list[int]:
        """Unfenced brokers without a heartbeat for longer than the timeout, sorted."""
        if not self.is_active or self.running_ms < self._judges_at_ms:
            return []
        return sorted(
            broker_id
            for broker_id, broker in image.brokers.items()
            if not broker.is_fenced and not self._was_live(broker_id, broker.epoch, timeout_ms)
        )

    def least_offset(self, image: Image, besides: int) -> int:
        """The metadata offset of the slowest of the other active brokers."""
        offsets = [
            session.metadata_offset
            for broker_id, broker in image.brokers.items()
            if broker.is_active and broker_id != besides
            if (session := self.session(broker_id, broker.epoch)) is not None
        ]
        return min(offsets, default=1 << 62)
