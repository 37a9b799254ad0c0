"""Random histories of a data directory in which operations overlap in time, as they do in the server.

Group commit runs concurrently with everything else, one round at a time. At most one operation that holds upkeep's lock
runs beside it: sealing, deletion from the front, replacement of segments, truncation, restart at an offset, removal of
a log. Creating a log and keeping room need no lock. Appends and reads happen between any two waits, except on a log
that is being truncated or removed. At any wait the process is killed, the power is cut, a sync fails or a bit flips.

The model holds every batch, how much of it is on stable storage, where the log may start, and where a bit has flipped.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from typing import Any, NamedTuple

from penstock.host.faults import Faults
from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.log import truncation, upkeep
from penstock.log.directory import DataDirectory
from penstock.log.log import Log
from penstock.log.scrub import scrub
from penstock.log.settings import Durability, LogSettings
from penstock.model.errors import ProtocolError, StorageError
from penstock.model.ports import FileSlice
from penstock.records.check import Rules
from penstock.records.header import BatchView
from tests.simulation.kit.invariants import broken
from tests.simulation.log.histories import (
    FROM_COORDINATOR,
    TRANSACTIONAL_ID,
    PowerCut,
    a_random_batch,
    a_random_marker,
    check_derived,
    drive,
    open_small,
    stored_batches,
    wait_at,
)
from tests.unit.log.place import merged

Batch = tuple[int, bytes]
STEPS = 120
LOGS_MAX = 3
READERS_MAX = 4
STEPS_AFTER_FLIP = 20


class End(Enum):
    """How the process ends."""

    KILL = "kill"
    POWER_CUT = "power cut"


@dataclass
class Kept:
    """The model of one log."""

    log: Log
    batches: list[Batch] = field(default_factory=list)
    stable_end: int = 0
    """The end of what the log has reported to be on stable storage."""
    starts: list[int] = field(default_factory=lambda: [0])
    """Where the log may start: an interrupted deletion leaves the old start or the new one."""
    keeps_at_least: int | None = None
    """A truncation is under way, or was interrupted: at least this many batches stay."""
    may_be_empty: bool = False
    """A restart at an offset is under way, or was interrupted."""
    may_be_missing: bool = False
    """The log is being created or removed, or that was interrupted."""

    def live(self) -> list[Batch]:
        """The batches that no deletion from the front has reached."""
        return [b for b in self.batches if b[0] >= self.log.start_offset]


class Work(NamedTuple):
    """An operation in progress."""

    kind: str
    name: str
    running: Coroutine[Any, Any, object]
    is_exclusive: bool
    """Nothing is appended to the log or read from it meanwhile."""
    on_end: Callable[[], None]


class Reader(NamedTuple):
    """A slice that is being sent."""

    name: str
    part: FileSlice
    content: bytes
    cuts: int


class Flip(NamedTuple):
    """A bit of a batch on stable storage that has flipped."""

    name: str
    batch: Batch
    path: str
    position: int
    bit: int


class Overlaps:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.settings = LogSettings(
            durability=random.choice([Durability.FSYNC, Durability.FSYNC, Durability.REPLICATED]),
            segment_bytes=random.choice([300, 600, 2000]),
            index_interval_bytes=random.choice([64, 256]),
            segment_ms=random.choice([50, 10_000]),
            retention_ms=None,
        )
        self.sync_failures = random.choice([0.0, 0.0, 0.03, 0.1])
        self.flip_at = random.randrange(STEPS // 2, STEPS) if random.random() < 0.5 else None
        self.disk = LossyDisk(MemoryDisk(), Random(seed + 1), Faults(is_torn=random.random() < 0.7), delay=wait_at)
        self.now_ms = 1_000_000
        self.epoch = 0
        self.ends = 0
        self.commit: Coroutine[Any, Any, object] | None = None
        self.locked: Work | None = None
        self.free: Work | None = None
        self.readers: list[Reader] = []
        self.flip: Flip | None = None
        self.created = ""
        """The log whose creation was interrupted."""
        self.story: list[str] = []
        self.directory: DataDirectory = open_small(self.disk, self.settings, self.now_ms)
        self.kept: dict[str, Kept] = {}
        for partition in range(random.choice([1, 2])):
            log = drive(self.directory.create("t", "id", partition, self.settings))
            self.kept[f"t-{partition}"] = Kept(log)

    # --- operations that do not wait ------------------------------------------------------------------------------

    def is_busy(self, name: str) -> bool:
        """Whether the log is being truncated, removed or created."""
        return any(work is not None and work.name == name and work.is_exclusive for work in (self.locked, self.free))

    def usable(self) -> list[str]:
        """Logs that accept appends."""
        return [n for n, k in self.kept.items() if not self.is_busy(n) and k.log.offline_reason is None]

    def append(self, name: str) -> None:
        kept, random = self.kept[name], self.random
        log = kept.log
        producer_id = random.choice([-1, 5, 6, TRANSACTIONAL_ID])
        known = log.producers.producers.get(producer_id)
        self.now_ms += random.choice([0, 1, 20])
        if known is not None and known.transaction_start is not None and random.random() < 0.5:
            data, rules = a_random_marker(random, self.now_ms), FROM_COORDINATOR
        else:
            sequence = known.seen[-1].last_sequence + 1 if known is not None and known.seen else 0
            data, rules = a_random_batch(random, producer_id, sequence, self.now_ms), Rules()
        self.epoch = max(self.epoch + (random.random() < 0.1), log.epochs.latest)
        try:
            appended = log.append(data, leader_epoch=self.epoch, now_ms=self.now_ms, rules=rules)
        except ProtocolError as error:
            self._excuse(name, error)
            return
        assert not appended.is_duplicate
        kept.batches.append((appended.base_offset, bytes(data)))
        self._tell(f"append {name} {appended.base_offset}")

    def roll(self, name: str) -> None:
        try:
            self.kept[name].log.roll()
        except ProtocolError as error:
            self._excuse(name, error)

    def change_settings(self, name: str) -> None:
        durability = self.random.choice(list(Durability))
        self.kept[name].log.adopt_settings(replace(self.settings, durability=durability))

    def hurry(self, _name: str) -> None:
        self.directory.hurry()

    def keep_room(self, _name: str) -> None:
        self.directory.keep_room()

    def read(self, name: str) -> None:
        """Starts to send a slice; it stays readable while segments are deleted and replaced."""
        kept = self.kept[name]
        live = kept.live()
        if not live or len(self.readers) >= READERS_MAX or self._is_flipped(name):
            return
        base, data = self.random.choice(live)
        try:
            part = kept.log.read(base, self.random.choice([1, 2000]), limit=kept.log.written_end)
        except ProtocolError as error:
            self._excuse(name, error)
            return
        assert part is not None
        content = b"".join(batch for at, batch in live if at >= base)[: len(part)]
        assert content[: len(data)] == data
        self.readers.append(Reader(name, part, content, kept.log.cuts))

    def finish_read(self, _name: str) -> None:
        if not self.readers:
            return
        reader = self.readers.pop(self.random.randrange(len(self.readers)))
        kept = self.kept.get(reader.name)
        is_certain = kept is not None and reader.cuts == kept.log.cuts and not self._is_flipped(reader.name)
        if is_certain and reader.part.read() != reader.content:
            broken("Readers", "a slice that is being sent has changed")
        reader.part.release()

    # --- operations that wait for the disk ------------------------------------------------------------------------

    def start_commit(self) -> None:
        if self.commit is None:
            self._tell("commit starts")
            self.commit = self.directory.commit()
            self.step_commit()

    def step_commit(self) -> None:
        if self.commit is None:
            return
        try:
            self.commit.send(None)
        except StopIteration:
            self._tell("commit ends")
            self.commit = None

    def start_locked(self) -> None:
        """Starts an operation that holds upkeep's lock."""
        names = self.usable()
        if self.locked is not None or not names:
            return
        name = self.random.choice(names)
        begin = self.random.choice(
            [self.settle, self.settle, self.truncate, self.truncate, self.delete_before, self.replace, self.restart]
            + [self.remove] * (self.random.random() < 0.2)
        )
        self.locked = begin(name, self.kept[name])
        if self.locked is not None:
            self._tell(f"{begin.__name__} {name} starts")
            self.step_locked()

    def settle(self, name: str, kept: Kept) -> Work:
        return Work("settle", name, upkeep.settle(kept.log, self.disk), False, _nothing)

    def truncate(self, name: str, kept: Kept) -> Work | None:
        log = kept.log
        # Often after the flipped bit, so that the truncation reads the damage and keeps it.
        flipped = self.flip.batch[0] if self.flip is not None and self.flip.name == name else -1
        live = [b for b in kept.live() if b[0] > flipped] or kept.live()
        if not live:
            return None
        base, data = self.random.choice(live)
        end = self.random.randint(base, BatchView(data).last_offset)  # the end may lie inside a batch
        left = [b for b in kept.batches if _end_of(b) <= end]
        left_end = _end_of(left[-1]) if left else 0
        kept.keeps_at_least = len(left)
        kept.stable_end = min(kept.stable_end, left_end)
        kept.may_be_empty = left_end < log.start_offset
        if kept.may_be_empty:
            kept.stable_end = 0

        def on_end() -> None:
            kept.batches = left
            kept.keeps_at_least, kept.may_be_empty = None, False
            known = [b for b in left if _end_of(b) > log.segments[0].base_offset]
            if log.offline_reason is not None:
                broken("Offline", "a truncation is done whose sync came after one that failed")
            if log.written_end != max(left_end, log.segments[0].base_offset):
                broken("Damage" if self._is_flipped(name) else "Contents", f"{log} was to end at {left_end}")
            if not self._is_flipped(name):
                if stored_batches(log, self.disk) != known:
                    broken("Contents", "a truncation has cut too much or too little")
                check_derived(log, known)

        return Work("truncate", name, self.directory.truncate(log, end, now_ms=self.now_ms), True, on_end)

    def restart(self, name: str, kept: Kept) -> Work:
        log = kept.log
        # Often just before the base offset of an old segment, which would fit after the next appends.
        at = self.random.choice([log.written_end + 5, *(s.base_offset for s in log.segments)])
        offset = max(log.start_offset, at - self.random.randint(0, 3))
        kept.stable_end, kept.keeps_at_least, kept.may_be_empty = 0, 0, True
        kept.starts = [log.start_offset, offset]

        def on_end() -> None:
            kept.batches, kept.starts = [], [offset]
            kept.keeps_at_least, kept.may_be_empty = None, False
            assert (log.start_offset, log.written_end) == (offset, offset)
            assert stored_batches(log, self.disk) == []

        return Work("restart", name, truncation.restart_at(log, self.disk, self.directory.ledger, offset), True, on_end)

    def delete_before(self, name: str, kept: Kept) -> Work:
        log = kept.log
        log.advance_high_watermark(self.random.randint(0, log.durable_end))
        offset = self.random.randint(log.start_offset, log.high_watermark)
        kept.starts = [log.start_offset, offset]

        def on_end() -> None:
            kept.starts = [log.start_offset]
            assert log.start_offset == offset

        return Work("delete", name, upkeep.delete_before(log, self.disk, offset), False, on_end)

    def replace(self, name: str, kept: Kept) -> Work | None:
        log = kept.log
        if log.settled_segments < 2 or self._is_flipped(name):
            return None
        first = self.random.randrange(log.settled_segments - 1)
        old = log.segments[first : first + 2]
        new = merged(log, self.disk, old)
        return Work("replace", name, upkeep.replace_segments(log, self.disk, old, new), False, _nothing)

    def remove(self, name: str, kept: Kept) -> Work:
        kept.may_be_missing = True

        def on_end() -> None:
            del self.kept[name]

        return Work("remove", name, self.directory.delete(kept.log), True, on_end)

    def step_locked(self) -> None:
        self.locked = self._step(self.locked)

    def start_free(self) -> None:
        """Starts an operation that holds no lock."""
        if self.free is not None:
            return
        if self.random.random() < 0.6:
            self.free = Work("outlast", "", self.directory.outlast(), False, _nothing)
        else:
            missing = [n for n in (f"t-{p}" for p in range(LOGS_MAX)) if n not in self.kept]
            if not missing:
                return
            self.free = self.create(missing[0])
        self.step_free()

    def create(self, name: str) -> Work:
        partition = int(name.rpartition("-")[2])
        self._tell(f"create {name} starts")

        def on_end() -> None:
            self.kept[name] = Kept(self.directory.logs[name])

        return Work("create", name, self.directory.create("t", "id", partition, self.settings), True, on_end)

    def step_free(self) -> None:
        self.free = self._step(self.free)

    def _step(self, work: Work | None) -> Work | None:
        if work is None:
            return None
        try:
            work.running.send(None)
        except StopIteration:
            work.on_end()
            self._tell(f"{work.kind} {work.name} ends")
        except (ProtocolError, OSError) as error:
            self._excuse(work.name, error)
            if work is self.free and work.name:
                self.created = work.name  # files of the half-created log may survive a power cut
            kept = self.kept.get(work.name)
            if kept is not None and work.is_exclusive and not kept.log.offline_reason:
                broken("Offline", f"{work.name}: half of an operation is done, and the log stays in use")
        else:
            return work
        return None

    # --- faults ---------------------------------------------------------------------------------------------------

    def fail_a_sync(self) -> None:
        """Makes the next sync of some kind fail; a power cut loses what it covered, whatever later syncs report."""
        self._tell("a sync will fail")
        if self.kept and self.random.random() < 0.5:
            log = self.kept[self.random.choice(sorted(self.kept))].log
            self.disk.fail_next("sync", log.path_of(log.active, "log"))
        else:
            self.disk.fail_next(self.random.choice(["sync", "sync", "sync_dir"]))

    def _excuse(self, name: str, error: Exception) -> None:
        """Accepts a failed operation only if a disk fault explains it."""
        self._tell(f"{name} fails: {error}")
        is_storage = isinstance(error, StorageError | OSError) and self.sync_failures > 0
        if not is_storage and not self._is_flipped(name):
            broken("Refused", f"{name}: {error!r}")

    def _is_flipped(self, name: str) -> bool:
        return self.flip is not None and self.flip.name == name

    def clear(self) -> list[str]:
        """Logs without an operation in progress or an abandoned one."""
        busy = [work.name for work in (self.locked, self.free) if work is not None]
        return [name for name, kept in self.kept.items() if name not in busy and kept.log.offline_reason is None]

    def flip_a_bit(self, names: list[str]) -> bool:
        """Flips a bit of a batch that is on stable storage; False if there is none, or a write still covers it."""
        random = self.random
        stable = [(n, b) for n in names for b in self.kept[n].live() if _end_of(b) <= self.kept[n].stable_end]
        if not stable:
            return False
        name, batch = random.choice(stable)
        log = self.kept[name].log
        segment = next(s for s in reversed(log.segments) if s.base_offset <= batch[0])
        path = log.path_of(segment, "log")
        file = self.disk.open(path)
        content = file.read(0, file.size())
        position = content.index(batch[1]) + random.randrange(len(batch[1]) if random.random() < 0.6 else 21)
        bit = random.randrange(8)
        self.disk.flip_bit(path, position, bit)
        is_visible = file.read(0, file.size()) != content
        file.close()
        if not is_visible:
            self.disk.flip_bit(path, position, bit)
            return False
        self.flip = Flip(name, batch, path, position, bit)
        self._tell(f"a bit flips in {path} at {position}")
        return True

    # --- the end of a process -------------------------------------------------------------------------------------

    def end(self, how: End) -> None:
        """Ends the process at this wait and opens the directory again."""
        self._die(how)
        self._open(how)
        for name in list(self.kept):
            self._check(name, how)

    def end_with_flip(self, how: End) -> None:
        """A bit flips while the node is down: it is reported, truncates nothing, and loses nothing else."""
        clear = self.clear()
        self._die(how)
        if not self.flip_a_bit(clear):
            self._open(how)
            return
        flip = self.flip
        assert flip is not None
        self._open(how)
        self._check_reported(flip)
        if not self.disk.exists(flip.path) or self.disk.open(flip.path).size() <= flip.position:
            broken("Damage", f"{flip.path}: damage was cut off")
        for name in [n for n in self.kept if n != flip.name]:
            self._check(name, how)
        self.disk.kill_process()
        self.disk.flip_bit(flip.path, flip.position, flip.bit)
        self.flip = None
        self._open(how)
        for name in list(self.kept):
            self._check(name, how)

    def close(self) -> None:
        """Shuts down: waits for operations in progress, then leaves nothing to scan."""
        while self.commit is not None or self.locked is not None or self.free is not None:
            self.step_commit()
            self.step_locked()
            self.step_free()
        self._tell("CLOSE")
        is_whole = not any(kept.log.offline_reason for kept in self.kept.values()) and not self.flip
        try:
            drive(self.directory.close())
        except OSError as error:
            is_whole = False
            self._excuse("", error)
        self.readers.clear()
        self.disk.fail_nothing()
        self._open(End.KILL)
        assert not is_whole or self.directory.was_clean or self.sync_failures
        assert not self.directory.was_clean or self.directory.findings.scanned_bytes == 0
        for name in list(self.kept):
            self._check(name, End.KILL)

    def _die(self, how: End) -> None:
        self._tell(how.value.upper())
        self.ends += 1
        self.note()
        for running in (self.commit, self.locked and self.locked.running, self.free and self.free.running):
            if running is not None:
                running.close()
        if self.free is not None and self.free.name:
            # The log that was being created may exist, and is then empty.
            self.created = self.free.name
        self.commit = self.locked = self.free = None
        self.readers.clear()
        if how is End.POWER_CUT:
            self.disk = self.disk.power_cut()
        else:
            self.disk.kill_process()

    def _open(self, how: End) -> None:
        """Opens the directory; the power may be cut during recovery."""
        while True:
            is_cut = how is End.POWER_CUT and self.flip is None and self.random.random() < 0.2
            try:
                waits = self.random.randrange(8) if is_cut else None
                self.directory = open_small(self.disk, self.settings, self.now_ms, waits)
                break
            except PowerCut:
                self.disk = self.disk.power_cut()
        if self.created in self.directory.logs and self.created not in self.kept:
            self.kept[self.created] = Kept(self.directory.logs[self.created])
        for name, kept in list(self.kept.items()):
            log = self.directory.logs.get(name)
            if log is None:
                if not kept.may_be_missing:
                    broken("Logs", f"{name} is gone")
                del self.kept[name]
            else:
                kept.log = log
        if sorted(self.directory.logs) != sorted(self.kept):
            broken("Logs", "a removed log is back")
        self.created = ""

    def _check(self, name: str, how: End) -> None:
        """Compares an opened log with the model, and continues from what was found."""
        kept = self.kept[name]
        log = kept.log
        damage = self.directory.findings.damage
        if [d for d in damage if not self.flip or f"/{self.flip.name}" not in d] or log.offline_reason:
            broken("FalseDamage", str(damage or log.offline_reason))
        if log.start_offset not in kept.starts:
            broken("Start", f"{name} starts at {log.start_offset}, not at {kept.starts}")
        found = stored_batches(log, self.disk)
        known = [b for b in kept.batches if _end_of(b) > log.segments[0].base_offset]
        gone = len(kept.batches) - len(known)
        at_least = len(kept.batches) if kept.keeps_at_least is None else kept.keeps_at_least
        is_emptied = kept.may_be_empty and not found
        if not is_emptied:
            if found != known[: len(found)]:
                broken("Contents", f"{name}: a hole, a duplicate or a wrong byte")
            if how is End.KILL and gone + len(found) < at_least:
                broken("Killed", f"{name}: a kill has lost what was written")
            if log.written_end < kept.stable_end:
                broken("Lost", f"{name} ends at {log.written_end}, but was on stable storage to {kept.stable_end}")
        check_derived(log, found)
        for base, data in found:
            if base >= log.start_offset:
                part = log.read(base, len(data), limit=log.written_end)
                if part is None or part.read()[: len(data)] != data:
                    broken("Contents", f"{name}: offset {base} cannot be read")
                part.release()
        self.epoch = max(self.epoch, log.epochs.latest)
        self.kept[name] = Kept(log, kept.batches[:gone] + found, log.synced_end, [log.start_offset])

    def _check_reported(self, flip: Flip) -> None:
        """Opening or scrubbing the log reports the damage, and data on stable storage is not cut off.

        Sealed segments are not read when a log is opened. They are sent as they are; clients verify checksums.
        """
        kept = self.kept[flip.name]
        log = kept.log
        noticed = [d for d in self.directory.findings.damage if flip.path in d or log.path in d]
        noticed += scrub(log, self.disk) + log.trouble
        if not noticed:
            broken("Damage", f"nothing reports the flipped bit in {flip.path} at {flip.position}")
        if log.offline_reason is None and log.written_end < kept.stable_end:
            broken("Damage", f"damage cost records: {log.written_end} < {kept.stable_end}")

    def note(self) -> None:
        """Checks the reported stable ends and adds them to the model: a client may rely on them from now on."""
        for name, kept in self.kept.items():
            if not self.is_busy(name):
                if kept.log.synced_end > kept.log.written_end:
                    broken("Promised", f"{kept.log} is reported to be on stable storage to {kept.log.synced_end}")
                kept.stable_end = max(kept.stable_end, kept.log.synced_end)

    # --- one history ----------------------------------------------------------------------------------------------

    def live(self, steps: int = STEPS) -> None:
        random = self.random
        plain = [self.append] * 12 + [self.roll, self.change_settings, self.keep_room, self.read, self.read]
        plain += [self.finish_read, self.finish_read]
        for step in range(steps):
            if step == self.flip_at:
                self.live_with_flip()
                return
            self._advance(random.random(), plain)
            if random.random() < 0.05:
                random.choice([self._kill, self._cut, self._cut, self.close])()
        self.end(End.POWER_CUT)

    def _kill(self) -> None:
        self.end(End.KILL)

    def _cut(self) -> None:
        self.end(End.POWER_CUT)

    def live_with_flip(self) -> None:
        """A bit flips, at rest or during operations; the history ends once that is reported."""
        random = self.random
        how = random.choice(list(End))
        if random.random() < 0.5:
            self.end_with_flip(how)
            return
        self.note()
        if self.flip_a_bit(self.clear()) and self.locked is None and random.random() < 0.5:
            assert self.flip is not None
            self.locked = self.truncate(self.flip.name, self.kept[self.flip.name])
            self.step_locked()
        plain: list[Callable[[str], None]] = [self.append] * 4 + [self.roll, self.read, self.finish_read]
        for _ in range(STEPS_AFTER_FLIP if self.flip else 0):
            self._advance(random.random(), plain)
        flip = self.flip
        clear = self.clear()
        self._die(how)
        self._open(how)
        if flip is not None and flip.name in clear and flip.batch in self.kept[flip.name].live():
            self._check_reported(flip)

    def _advance(self, draw: float, plain: list[Callable[[str], None]]) -> None:
        random = self.random
        names = self.usable()
        if draw < 0.33:
            if names:
                random.choice(plain)(random.choice(names))
        elif draw < 0.44:
            if random.random() < 0.5:
                self.directory.hurry()
            self.start_commit()
        elif draw < 0.54:
            self.start_locked()
        elif draw < 0.57:
            self.start_free()
        elif draw < 0.75:
            self.step_commit()
        elif draw < 0.95:
            self.step_locked()
        else:
            self.step_free()
        if self.sync_failures and random.random() < self.sync_failures:
            self.fail_a_sync()
        self.note()

    def _tell(self, what: str) -> None:
        self.story.append(what)


def _end_of(batch: Batch) -> int:
    return BatchView(batch[1]).last_offset + 1


def _nothing() -> None:
    return None


def run_overlaps(seed: int) -> int:
    """Runs one history; returns the number of kills and power cuts in it."""
    history = Overlaps(seed)
    try:
        history.live()
    except BaseException as error:
        error.add_note(" | ".join(history.story[-25:]))
        raise
    return history.ends
