"""A disk counts as full when the signs persist, and as free when it had space for a while."""

from penstock.model.limits import MIB
from penstock.server.membership.disk_space import (
    CALM_MS,
    PATIENCE_MS,
    RETURN_MS,
    RETURN_MS_MAX,
    ROOM_TIMES,
    SIGNS_APART_MS,
    Room,
)

LOOK_MS = 250
PLENTY = 1_000 * MIB


class Watched:
    """A Room with a manual clock and a simulated disk."""

    def __init__(self, *, is_full: bool = False) -> None:
        self.now = 1_000_000
        self.free_bytes = 0 if is_full else PLENTY
        self.refusals = 0
        self.room = Room(MIB, is_full=is_full, now=self.now)
        self.changes = 0

    def pass_ms(self, duration_ms: int, *, refuses_every_ms: int | None = None) -> bool:
        """Advances the clock, and returns whether the disk counts as full."""
        for at_ms in range(0, duration_ms, LOOK_MS):
            self.now += LOOK_MS
            if refuses_every_ms is not None and at_ms % refuses_every_ms < LOOK_MS:
                self.refusals += 1
            self.changes += self.room.look(self.free_bytes, self.refusals, self.now)
        return self.room.is_full


def test_a_single_refusal_says_nothing() -> None:
    watched = Watched()
    assert not watched.pass_ms(60_000, refuses_every_ms=60_000)
    assert not watched.pass_ms(60_000, refuses_every_ms=2 * SIGNS_APART_MS)
    assert watched.changes == 0


def test_refusals_that_last_do_though_there_seems_to_be_room() -> None:
    """The disk may have no inodes left, or a quota; a follower retries every second."""
    assert Watched().pass_ms(PATIENCE_MS + 3 * LOOK_MS, refuses_every_ms=LOOK_MS)
    assert Watched().pass_ms(2_500, refuses_every_ms=1_000)


def test_nearly_full_is_full() -> None:
    watched = Watched()
    watched.free_bytes = MIB - 1
    assert not watched.pass_ms(PATIENCE_MS)
    assert watched.pass_ms(2 * LOOK_MS)


def test_there_must_be_more_room_than_it_took_and_for_a_while() -> None:
    watched = Watched(is_full=True)
    watched.free_bytes = ROOM_TIMES * MIB - 1
    assert watched.pass_ms(2 * RETURN_MS)
    watched.free_bytes = ROOM_TIMES * MIB
    assert watched.pass_ms(RETURN_MS - LOOK_MS)
    assert watched.pass_ms(2 * RETURN_MS, refuses_every_ms=1_000), "it still refuses"
    assert not watched.pass_ms(RETURN_MS + LOOK_MS)


def test_a_disk_that_fills_up_again_and_again_is_believed_later_each_time() -> None:
    watched = Watched()
    waits = []
    for _ in range(10):
        watched.free_bytes = 0
        watched.pass_ms(PATIENCE_MS + 2 * LOOK_MS)
        assert watched.room.is_full
        watched.free_bytes = PLENTY
        began = watched.now
        while watched.pass_ms(LOOK_MS):
            pass
        waits.append(watched.now - began)
    assert waits == sorted(waits)
    assert waits[0] == RETURN_MS
    assert waits[-1] == RETURN_MS_MAX
    watched.pass_ms(CALM_MS)
    watched.free_bytes = 0
    watched.pass_ms(PATIENCE_MS + 2 * LOOK_MS)
    watched.free_bytes = PLENTY
    assert not watched.pass_ms(RETURN_MS + LOOK_MS), "that was long ago"
