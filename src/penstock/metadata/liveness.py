"""Which brokers live, as far as the active controller has heard: soft state, never recorded.

The clock here runs only while the controller does (R34): between two times at which it was told that time passes, at
most GAP_MS_MAX count, and after a longer gap nobody is judged before as much has passed again, in which what came in
meanwhile is heard. A controller that stood still, was overloaded or has just been elected has heard nobody, and that
says nothing about the brokers. Neither does a shorter moment in which it did: a session is over if it was over when the
controller was last told that time passes, so that whatever came in before that has been heard.
"""

from dataclasses import dataclass
from typing import Final

from penstock.metadata.image import Image

WAKE_MS: Final = 100
"""How often an active controller wants to be told that time passes."""
GAP_MS_MAX: Final = 250
"""What counts of the time between two of these."""


@dataclass(slots=True)
class Session:
    """What the last heartbeat of one registration told."""

    epoch: int
    heard_ms: int
    metadata_offset: int = -1
    shutdown_end: int | None = None
    """The end of the metadata log when a broker that shuts down had handed over everything."""


class Liveness:
    """The sessions of brokers, on a clock that counts what the controller has seen of time."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._now: int | None = None
        self._judges_at_ms = 0
        self._told_ms = self._told_before_ms = 0
        self.running_ms = 0
        self.is_active = False

    def begin(self, image: Image, now: int) -> None:
        """The controller becomes active: whoever is not fenced has a whole session from now on."""
        self._now = now
        self.is_active = True
        self._sessions = {
            broker_id: Session(broker.epoch, self.running_ms)
            for broker_id, broker in image.brokers.items()
            if not broker.is_fenced
        }

    def end(self) -> None:
        """The controller is no longer active."""
        self._sessions = {}
        self.is_active = False

    def time_passes(self, now: int) -> None:
        """To be called at least every WAKE_MS while the controller is active."""
        self._advance(now)
        if self.running_ms - self._told_ms >= WAKE_MS // 2:  # else what came in before may still wait
            self._told_before_ms, self._told_ms = self._told_ms, self.running_ms

    def _advance(self, now: int) -> None:
        gap_ms = 0 if self._now is None else max(0, now - self._now)
        is_patient = self.running_ms < self._judges_at_ms
        self.running_ms += min(gap_ms, GAP_MS_MAX)
        if gap_ms > GAP_MS_MAX and not is_patient:  # but one that is always late must judge some time
            self._judges_at_ms = self.running_ms + GAP_MS_MAX
        self._now = now

    def hear(self, broker_id: int, epoch: int, metadata_offset: int, now: int) -> Session:
        """A broker sent a heartbeat."""
        self._advance(now)
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = Session(epoch, self.running_ms)
        session.heard_ms = self.running_ms
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        return session

    def lose(self, broker_id: int, epoch: int) -> None:
        """Nobody answers any more where the broker was: its session is over."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.heard_ms = -(1 << 62)

    def session(self, broker_id: int, epoch: int) -> Session | None:
        """The session of a registration, however long it has been silent."""
        session = self._sessions.get(broker_id)
        return session if session is not None and session.epoch == epoch else None

    def is_live(self, broker_id: int, epoch: int, timeout_ms: int) -> bool:
        """Whether that registration was heard of within the time-out."""
        session = self.session(broker_id, epoch)
        return session is not None and self.running_ms - session.heard_ms < timeout_ms

    def _was_live(self, broker_id: int, epoch: int, timeout_ms: int) -> bool:
        session = self.session(broker_id, epoch)
        return session is not None and self._told_before_ms - session.heard_ms < timeout_ms

    def expired(self, image: Image, timeout_ms: int) -> list[int]:
        """Brokers that are not fenced and were silent for longer than the time-out, in order."""
        if not self.is_active or self.running_ms < self._judges_at_ms:
            return []
        return sorted(
            broker_id
            for broker_id, broker in image.brokers.items()
            if not broker.is_fenced and not self._was_live(broker_id, broker.epoch, timeout_ms)
        )

    def least_offset(self, image: Image, besides: int) -> int:
        """How far the slowest of the other active brokers has followed the metadata log."""
        offsets = [
            session.metadata_offset
            for broker_id, broker in image.brokers.items()
            if broker.is_active and broker_id != besides
            if (session := self.session(broker_id, broker.epoch)) is not None
        ]
        return min(offsets, default=1 << 62)
