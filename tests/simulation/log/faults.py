"""Histories of a log with disk faults other than power cuts: failing syncs, full disks, flipped bits."""

from random import Random

from penstock.host.faults import Faults
from penstock.log.checked import Damaged
from penstock.log.ledger import Ledger
from penstock.log.scrub import scrub
from penstock.log.settings import Durability
from penstock.model.errors import DiskFull, StorageError
from penstock.records.header import BatchView
from tests.simulation.log.histories import History, PowerCut, drive


def run_failing_syncs(seed: int) -> None:
    """A sync fails and later ones falsely report success: the log goes offline and its durable end no longer moves."""
    history = History(seed, Durability.FSYNC, Faults(is_torn=True))
    random = history.random
    for _ in range(random.randrange(3, 15)):
        history.append()
        if random.random() < 0.4:
            history.commit()
    history.append()
    failing = random.choice(["sync", "sync", "sync_dir"])
    if failing == "sync_dir" or random.random() < 0.5:
        history.log.roll()
    history.disk.fail_next(failing)
    history.directory.hurry()
    drive(history.directory.commit())
    assert history.log.offline_reason is not None
    promised = history.log.durable_end
    for _ in range(3):  # after a failed sync, the results of later syncs mean nothing
        try:
            history.append()
            raise AssertionError("an offline log took an append")
        except StorageError:
            history.directory.hurry()
            drive(history.directory.commit())
    assert history.log.durable_end == promised
    history.cut_and_open()
    assert history.log.offline_reason is None


def run_full_disk(seed: int) -> bool:
    """The disk fills up: `DiskFull`, no data lost, not even by a power cut; the log works again once there is room."""
    history = History(seed, Durability.FSYNC, Faults(is_torn=True))
    random, faults = history.random, history.disk.faults
    faults.capacity_bytes = 8_000 + random.randrange(6_000)
    was_full = False
    for _ in range(60):
        epoch = history.epoch
        try:
            random.choice(
                [
                    history.append,
                    history.append,
                    history.append,
                    history.commit,
                    history.settle,
                    history.roll,
                    history.begin_epoch,
                    history.delete_before,
                ]
            )()
        except DiskFull:
            was_full = True
            history.epoch = epoch  # an epoch that was not written has not begun
            history.expected.start_candidates = [history.log.start_offset]
        assert history.log.offline_reason is None, history.log.offline_reason
        history.check_reads()
        if was_full and random.random() < 0.1:
            random.choice([history.cut_and_open, history.kill_and_open, history.close_and_open_full])()
        if was_full and random.random() < 0.05:
            faults.capacity_bytes += 5_000
    faults.capacity_bytes = None
    history.append()
    history.commit()
    history.cut_and_open()
    history.append()
    history.commit()
    return was_full


def run_flip(seed: int) -> str:
    """One bit flips at rest, anywhere: it is reported, loses no record silently, and truncates nothing.

    Returns the path of the file that was hit.
    """
    history = History(seed, random_durability(seed), Faults())
    random = history.random
    for _ in range(random.randrange(3, 25)):
        try:
            random.choice([history.append, history.append, history.append, history.end_transaction, history.roll])()
            if random.random() < 0.3:
                random.choice([history.commit, history.settle, history.begin_epoch])()
        except PowerCut:
            raise AssertionError("nothing cuts the power here") from None
    history.commit()
    if random.random() < 0.5:
        drive(history.directory.close())
    else:
        drive(history.disk.sync_all())
        history.disk.kill_process()
    path, position = flip_living_byte(history, Random(seed))
    try:
        history.directory = history.open()
    except Damaged:
        return path  # one bit cannot damage both copies of the identity, but a reader may report it so
    directory = history.directory
    history.log = log = directory.logs["t-0"]
    noticed = directory.findings.damage + directory.findings.cut + scrub(log, history.disk) + log.trouble
    assert noticed, f"nobody noticed bit flip in {path} at {position}"
    if path.endswith(".log"):
        assert any("logs/t-0" in sentence for sentence in noticed), (path, noticed)
        assert directory.findings.cut == [], f"taken for a torn tail: {directory.findings.cut}"
        file = history.disk.open(path)
        assert file.size() > position, "the damaged tail was cut off"
        file.close()
    else:
        assert log.written_end == history.expected.end, "damage outside the records cost records"
        for base, data in history.expected.batches:
            if base >= log.start_offset:
                part = log.read(base, len(data), limit=BatchView(data).last_offset + 1)
                assert part is not None
                assert part.read() == data
                part.release()
    return path


def random_durability(seed: int) -> Durability:
    return Durability.FSYNC if seed % 2 else Durability.REPLICATED


def flip_living_byte(history: History, random: Random) -> tuple[str, int]:
    """Flips a bit of a byte in use: not in a ledger's spare space or in the ledger that is no longer current."""
    disk = history.disk
    ledger = Ledger(disk)
    ledger.load()
    living = [f"logs/t-0/{name}" for name in disk.list("logs/t-0")] + ["directory", ledger.path_of(ledger.turn)]
    if disk.exists("clean"):
        living.append("clean")
    while True:
        path = random.choice(living)
        file = disk.open(path)
        size = min(file.size(), ledger.live_bytes) if path.startswith("ledger") else file.size()
        file.close()
        if size and not _is_dead(history, path):
            position = random.randrange(size)
            disk.flip_bit(path, position, random.randrange(8))
            return path, position


def _is_dead(history: History, path: str) -> bool:
    """Whether the file is unused: an index of a segment that is scanned anyway, or an unreferenced snapshot."""
    log = history.log
    if path.endswith(".index"):
        settled = [log.path_of(s, "index") for s in log.segments[: log.settled_segments]]
        is_closed = history.disk.exists("clean")
        return not is_closed and path not in settled
    if path.endswith(".producers"):
        return path not in [log.snapshot_path(offset) for offset, _ in log.snapshots]
    return path.endswith(".new")
