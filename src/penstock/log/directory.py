"""A data directory: its identity, its logs, the ledger, group commit, and the clean-shutdown marker.

The identity names the owner (cluster, node, the directory's own id) and the format version; a newer format is refused.
The marker is removed durably before any log is opened: a crash during recovery is never mistaken for a clean shutdown
(R30). Before that the boot of the machine is recorded (`boot.py`), so that after a clean shutdown and a reboot, a crash
between the two steps still counts as having lost nothing.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.log import checked, manifest, truncation, upkeep
from penstock.log.ledger import LEDGER_BYTES, Ledger
from penstock.log.log import MANIFEST_VERSION, SNAPSHOT_VERSION, Identity, Log, SyncTicket
from penstock.log.pool import FILES_OPEN_MAX, MAPS_OPEN_MAX, Pool
from penstock.log.recovery import Findings, create_log, open_log
from penstock.log.settings import DEFAULT_SETTINGS, LogSettings
from penstock.log.space import RESERVE_BYTES, full_or
from penstock.model.errors import DiskFull, StorageError
from penstock.model.ports import Disk, Entropy
from penstock.model.signal import Signal

FORMAT_VERSION = 1
IDENTITY = "directory"
CLEAN = "clean"
LOGS = "logs"
GONE = ".gone"
ASIDE = ".damaged"
"""ASIDE ends the name of a damaged log, GONE of a log being deleted (in earlier releases: log name, number, GONE)."""
PROBE = "probe"
PROBE_BYTES = 4096


class WrongDirectory(Exception):
    """The directory belongs to another cluster or node."""


class DataDirectory:
    """The logs of one disk. Made by `open_directory`."""

    def __init__(
        self,
        disk: Disk,
        identity: dict[str, Any],
        *,
        ledger_bytes: int = LEDGER_BYTES,
        files_open_max: int = FILES_OPEN_MAX,
        maps_open_max: int = MAPS_OPEN_MAX,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> None:
        self.disk = disk
        self.identity = identity
        self.pool = Pool(disk, files_open_max, maps_open_max, reserve_bytes)
        self.ledger = Ledger(disk, ledger_bytes)
        self.logs: dict[str, Log] = {}
        self.kept_aside: dict[int, Identity] = {}
        """Damaged logs that were set aside, by log number."""
        self.findings = Findings()
        self.was_clean = False
        """Whether the last shutdown was clean: then no log is scanned."""
        self.offline_reason: str | None = None
        self._dirty: dict[int, Log] = {}
        self._unhurried: dict[int, Log] = {}
        """Logs with unsynced writes whose sync is not due yet."""
        self._written: dict[int, Log] = {}
        self._next_number = 1
        self.became_dirty: Signal[[]] = Signal()
        """Emitted when the first log since the last round becomes dirty; wakes group commit."""
        self.was_unhurried: Signal[[Log]] = Signal()
        """Emitted on a write to a log whose sync is not due yet; group commit calls `hurry` when it is."""

    @property
    def is_dirty(self) -> bool:
        """Whether a round of group commit has logs to sync."""
        return bool(self._dirty)

    # --- logs -----------------------------------------------------------------------------------------------------

    async def create(
        self, topic: str, topic_id: str, partition: int, settings: LogSettings = DEFAULT_SETTINGS, start: int = 0
    ) -> Log:
        """Creates a log."""
        name = f"{topic}-{partition}"
        if name in self.logs:
            raise ValueError(f"there is a log {name} already")
        if self.disk.exists(f"{LOGS}/{name}"):
            self._remove_unfinished(name)
            if self.disk.exists(f"{LOGS}/{name}"):
                raise StorageError(f"{LOGS}/{name} has records but no manifest: move it away, or restore its manifest")
        identity = Identity(self._next_number, topic, topic_id, partition)
        self._next_number += 1
        try:
            log = await create_log(self.pool, f"{LOGS}/{name}", identity, settings, self._note_dirty, start)
        except (OSError, DiskFull) as error:
            with suppress(OSError):  # otherwise the next attempt removes it
                self._remove_tree(f"{LOGS}/{name}")
            told = full_or(error) if isinstance(error, OSError) else error
            self.pool.refusals += isinstance(told, DiskFull)
            raise told from error
        self.logs[name] = log
        return log

    async def delete(self, log: Log) -> None:
        """Deletes a log."""
        aside = f"{LOGS}/{log.identity.number}{GONE}"
        await self._rename(log, aside)
        self._remove_tree(aside)

    async def set_aside(self, log: Log) -> None:
        """Keeps a damaged log under another name, so that a new one can be created in its place.

        If an earlier log of the partition is still kept, this one is deleted instead: the earlier one has more.
        """
        if any(kept[1:] == log.identity[1:] for kept in self.kept_aside.values()):
            await self.delete(log)
            return
        await self._rename(log, f"{LOGS}/{log.identity.number}{ASIDE}")
        self.kept_aside[log.identity.number] = log.identity

    async def remove_aside(self, number: int) -> None:
        """Deletes a damaged log that was set aside: another replica, or this one again, has all its records."""
        del self.kept_aside[number]
        gone = f"{LOGS}/{number}{GONE}"
        self.disk.rename(f"{LOGS}/{number}{ASIDE}", gone)
        await self.disk.sync_dir(LOGS)
        self._remove_tree(gone)

    async def _rename(self, log: Log, aside: str) -> None:
        """Moves a log's files and forgets the log. `aside` omits the topic: a long name leaves no room for a suffix."""
        name = log.path.rpartition("/")[2]
        upkeep.close_files(log)
        try:
            self.disk.rename(log.path, aside)
        except OSError as error:
            raise full_or(error) from error
        del self.logs[name]
        self._dirty.pop(log.identity.number, None)
        self._unhurried.pop(log.identity.number, None)
        self._written.pop(log.identity.number, None)
        log.take_offline("deleted")
        await self.disk.sync_dir(LOGS)
        self.ledger.forget(log.identity.number)

    def _find_aside(self, name: str) -> None:
        """Registers a log that an earlier run set aside. One without a readable manifest is left to the operator."""
        number = int(name.removesuffix(ASIDE))
        self._next_number = max(self._next_number, number + 1)
        with suppress(checked.Damaged, OSError, KeyError):
            value = checked.read(self.disk, manifest.path_of(f"{LOGS}/{name}"), manifest.KIND, MANIFEST_VERSION).value
            self.kept_aside[number] = Identity(number, value["topic"], value["topic_id"], value["partition"])

    def _remove_tree(self, path: str) -> None:
        for name in self.disk.list(path):
            self.pool.remove(f"{path}/{name}")  # a log created in its place must not receive its open files
        self.disk.remove_dir(path)

    def _remove_unfinished(self, name: str) -> None:
        """Removes a log whose creation was not finished: no manifest and no records. Any other is left unchanged."""
        path = f"{LOGS}/{name}"
        for file_name in self.disk.list(path):
            file = self.disk.open(f"{path}/{file_name}")
            size_bytes = file.size()
            file.close()
            if size_bytes and file_name.endswith(".log"):
                found = f"{path}: has records but no manifest, and was left alone"
                self.findings.damage.append(found)
                self.findings.doubt.append(found)
                return
        self._remove_tree(path)

    async def truncate(self, log: Log, end_offset: int, *, now_ms: int) -> None:
        """Truncates a log to an end offset."""
        await truncation.truncate(log, self.disk, self.ledger, end_offset, now_ms=now_ms)

    async def begin_epoch(self, log: Log, epoch: int) -> None:
        """Records durably that a leader epoch begins at the log's end, before anything is written in it (R03)."""
        epochs_before = list(log.epochs)
        if log.epochs.begin(epoch, log.written_end):
            try:
                await manifest.write(log, self.disk, log.settled_segments, self.pool.reserve)
            except DiskFull:
                log.epochs.take_back(epochs_before, epoch)
                raise
            except OSError as error:
                log.fail(f"a leader epoch could not be written down: {error}")
                raise StorageError(f"{log.path} is offline: {log.offline_reason}") from error

    def take_written(self) -> list[Log]:
        """Returns the logs written to since the last call; no other log can have a new segment."""
        written, self._written = self._written, {}
        return list(written.values())

    def _note_dirty(self, log: Log) -> None:
        self._written[log.identity.number] = log
        if not log.is_sync_due:
            self._unhurried[log.identity.number] = log
            self.was_unhurried(log)
            return
        self._unhurried.pop(log.identity.number, None)
        self._make_due(log)

    def _make_due(self, log: Log) -> None:
        is_first = not self._dirty
        self._dirty[log.identity.number] = log
        if is_first:
            self.became_dirty()

    def hurry(self, log: Log | None = None) -> None:
        """Makes a log, or all logs, due: the next round covers it."""
        due = list(self._unhurried.values()) if log is None else [log]
        for each in due:
            if self._unhurried.pop(each.identity.number, None) is not None:
                self._make_due(each)

    # --- group commit ---------------------------------------------------------------------------------------------

    async def commit(self) -> list[Log]:
        """Runs one round: everything written so far becomes durable. Returns the logs covered, including failed ones.

        The caller runs one round at a time; records appended meanwhile belong to the next. DiskFull means that the
        ledger could not be written; the logs belong to the next round too.
        """
        dirty, self._dirty = self._dirty, {}
        synced: list[SyncTicket] = []
        waiting = list(dirty.values())
        at_once = max(1, self.pool.files_open_max // 2)  # files that are being synced stay open
        while waiting:
            some, waiting = waiting[:at_once], waiting[at_once:]
            synced += await self._sync_data([t for log in some if (t := log.begin_sync()) is not None])
        # A log that has failed meanwhile gets no ledger entry: our sync may have followed one that failed.
        good = [t for t in synced if t.cuts == t.log.cuts and t.log.offline_reason is None]
        if good:
            try:
                await self.ledger.record([ticket.entry for ticket in good])
            except DiskFull:
                self.pool.refusals += 1
                for ticket in synced:
                    ticket.log.postpone_sync()
                raise
            except OSError as error:
                self._take_offline(f"the ledger could not be written: {error}")
                for ticket in synced:
                    ticket.log.fail_sync(ticket, error)
                return list(self.logs.values())
        for ticket in synced:
            ticket.log.finish_sync(ticket)
        return list(dirty.values())

    async def _sync_data(self, tickets: list[SyncTicket]) -> list[SyncTicket]:
        files = [file for ticket in tickets for file in ticket.files]
        outcomes = iter(await self.disk.sync_many(files))
        good: list[SyncTicket] = []
        for ticket in tickets:
            errors = [error for _ in ticket.files if (error := next(outcomes)) is not None]
            try:
                if not errors and ticket.has_new_names:
                    await self.disk.sync_dir(ticket.log.path)
            except OSError as error:
                errors.append(error)
            if errors:
                ticket.log.fail_sync(ticket, errors[0])
            else:
                ticket.release_files()
                good.append(ticket)
        return good

    def _take_offline(self, reason: str) -> None:
        self.offline_reason = self.offline_reason or reason
        self.pool.boot.fail()
        for log in self.logs.values():
            log.take_offline(reason)

    async def sync_all(self) -> None:
        """Syncs the whole disk. After a failure the next run of the same boot distrusts the page cache."""
        try:
            await self.disk.sync_all()
        except OSError:
            self.pool.boot.fail()
            raise

    async def settle(self) -> None:
        """Seals the finished segments of every log."""
        for log in list(self.logs.values()):
            await upkeep.settle(log, self.disk)

    def takes_files(self) -> bool:
        """Whether a file can be created and written, which free space alone does not show."""
        try:
            checked.write_now(self.disk, PROBE, bytes(PROBE_BYTES)).close()
            self.disk.unlink(PROBE)
        except (OSError, DiskFull):
            return False
        return True

    def keep_room(self) -> None:
        """Restores missing space of the reserve and the ledger, and the boot mark, if there is space now."""
        self.pool.reserve.fill()
        self.ledger.keep_room()
        self.pool.boot.keep_mark()

    async def outlast(self) -> None:
        """Makes that space survive a power cut: the disk may be full when the node is back."""
        await self.pool.reserve.outlast()
        await self.ledger.outlast()

    # --- closing --------------------------------------------------------------------------------------------------

    async def close(self, *, leaves_marker: bool = True) -> None:
        """Shuts down so that the next start scans nothing: all logs at once, with few syncs.

        On a full disk this is not possible: everything promised is stored, and the next start scans. The marker is
        also left out while losses of an earlier crash are not registered: its absence shows them to the next start.
        """
        try:
            with suppress(DiskFull):
                await self._close_clean(leaves_marker=leaves_marker)
        finally:
            self.ledger.close()
            self.pool.close()

    async def _close_clean(self, *, leaves_marker: bool) -> None:
        self.hurry()
        await self.commit()
        online = [log for log in self.logs.values() if log.offline_reason is None]
        staged = [self._stage_clean(log) for log in online]
        await self.sync_all()
        for path in staged:
            self.disk.rename(path + ".new", path)
        await self.sync_all()
        self.ledger.entries |= {log.identity.number: log.ledger_entry() for log in online}
        await self.ledger.take_turn()
        if leaves_marker and len(online) == len(self.logs) and self.offline_reason is None:
            await checked.replace(self.disk, CLEAN, CLEAN, FORMAT_VERSION, {"logs": len(self.logs)})

    def _stage_clean(self, log: Log) -> str:
        """Writes a log's indexes and producer state, and its manifest under a temporary name; syncs nothing."""
        for segment in log.segments[log.settled_segments :]:
            content = log.index_in_memory(segment).sealed()
            log.forget_files(segment, "index")
            self._write_whole(log.path_of(segment, "index"), content)
        snapshots = dict(log.pending_snapshots) | {log.written_end: log.producers.snapshot()}
        for offset, snapshot in snapshots.items():
            has_any = snapshot.has_content
            if has_any and (offset, True) not in log.snapshots:  # a file that the manifest names is not overwritten
                content = checked.encode("producers", SNAPSHOT_VERSION, snapshot.to_list())
                self._write_whole(log.snapshot_path(offset), content)
            log.note_snapshot(offset, has_any=has_any)
        value = manifest.describe(log, len(log.segments) - 1, is_clean=True)
        path = manifest.path_of(log.path)
        self._write_whole(path + ".new", checked.encode(manifest.KIND, MANIFEST_VERSION, value))
        return path

    def _write_whole(self, path: str, content: bytes) -> None:
        checked.write_now(self.disk, path, content).close()


async def open_directory(
    disk: Disk,
    *,
    cluster_id: str,
    node_id: int,
    entropy: Entropy,
    now_ms: int,
    settings_for: Callable[[str, int], LogSettings] = lambda _topic, _partition: DEFAULT_SETTINGS,
    ledger_bytes: int = LEDGER_BYTES,
    files_open_max: int = FILES_OPEN_MAX,
    maps_open_max: int = MAPS_OPEN_MAX,
    reserve_bytes: int = RESERVE_BYTES,
) -> DataDirectory:
    """Opens the directory and every log in it, or creates a new one. `findings` lists the problems found."""
    findings = Findings()
    is_new = not disk.exists(IDENTITY)
    identity = await _identify(disk, cluster_id, node_id, entropy, findings)
    directory = DataDirectory(
        disk,
        identity,
        ledger_bytes=ledger_bytes,
        files_open_max=files_open_max,
        maps_open_max=maps_open_max,
        reserve_bytes=reserve_bytes,
    )
    directory.findings = findings
    directory.pool.reserve.find()
    directory.was_clean = is_clean = _read_marker(disk, findings)
    await directory.pool.boot.begin(is_clean=is_clean or is_new)
    await _remove_marker(disk)
    directory.ledger.load()
    findings.damage += directory.ledger.damage
    findings.doubt += directory.ledger.damage
    if directory.ledger.damage:
        await directory.pool.boot.found_damage()
    findings.cut += directory.ledger.torn
    for name in disk.list(LOGS):
        if name.endswith(GONE):
            directory._remove_tree(f"{LOGS}/{name}")
            continue
        if name.endswith(ASIDE):
            directory._find_aside(name)
            continue
        if not disk.exists(manifest.path_of(f"{LOGS}/{name}")):
            directory._remove_unfinished(name)
            continue
        topic, _, partition = name.rpartition("-")
        directory.logs[name] = log = await open_log(
            directory.pool,
            f"{LOGS}/{name}",
            settings_for(topic, int(partition)),
            directory._note_dirty,
            ledger=directory.ledger.entries,
            is_clean=is_clean,
            now_ms=now_ms,
            findings=findings,
        )
        directory._next_number = max(directory._next_number, log.identity.number + 1)
    if not is_clean:
        await directory.sync_all()  # once for all logs: everything found is promised from now on
    directory._next_number = max([directory._next_number, *(n + 1 for n in directory.ledger.entries)])
    entries = directory.ledger.entries
    directory.ledger.entries = {
        log.identity.number: log.ledger_entry() if log.offline_reason is None else entries[log.identity.number]
        for log in directory.logs.values()
        if log.offline_reason is None or log.identity.number in entries
    }
    await directory.ledger.take_turn()
    directory.keep_room()
    await directory.outlast()
    return directory


async def _identify(disk: Disk, cluster_id: str, node_id: int, entropy: Entropy, findings: Findings) -> dict[str, Any]:
    if not disk.exists(IDENTITY):
        identity = {"cluster_id": cluster_id, "node_id": node_id, "directory_id": entropy.token(16).hex()}
        disk.make_dir(LOGS)
        await checked.replace(disk, IDENTITY, IDENTITY, FORMAT_VERSION, identity)
    said = checked.read(disk, IDENTITY, IDENTITY, FORMAT_VERSION)
    if said.damage is not None:
        findings.damage.append(said.damage)
    found: dict[str, Any] = said.value
    for key, mine in (("cluster_id", cluster_id), ("node_id", node_id)):
        if found[key] != mine:
            raise WrongDirectory(
                f"this data directory belongs to {key.replace('_', ' ')} {found[key]!r}, not {mine!r}: "
                "point the node at its own directory, or at an empty one"
            )
    return found


def _read_marker(disk: Disk, findings: Findings) -> bool:
    """Whether the last shutdown was clean."""
    if not disk.exists(CLEAN):
        return False
    try:
        said = checked.read(disk, CLEAN, CLEAN, FORMAT_VERSION)
        is_clean = True
        if said.damage is not None:
            findings.damage.append(said.damage)
    except checked.Damaged as error:
        findings.damage.append(str(error))
        is_clean = False
    return is_clean


async def _remove_marker(disk: Disk) -> None:
    """Removes the marker durably."""
    if disk.exists(CLEAN):
        disk.unlink(CLEAN)
        await disk.sync_dir("")
