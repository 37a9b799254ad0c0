"""A disk that loses unsynced data, wrapped around any Disk. docs/fault-model.md explains the model in detail.

Writes     stay in this process until `sync`; a power cut loses them, or (torn) keeps some of their 512-byte sectors.
Sizes      persist in order, up to a random change: a file may come back shorter, or longer with zeros.
Names      created, moved and removed names persist only after `sync_dir`; torn, each unsynced one is kept or undone.
Syncs      may fail: the data then stays visible, is never written, and the next sync succeeds; or lie: see Faults.
Errors     EIO on command and at random, ENOSPC at a total size, flipped bits at rest and on read.
The inner disk always holds exactly the data that would survive, so SIGKILL is a power cut too. It is not synced.
"""

import errno
from collections.abc import Sequence
from contextlib import suppress
from random import Random

from penstock.host.faults import Faults, Orders
from penstock.host.memory import Delay, MemoryMap
from penstock.host.names import PendingNames
from penstock.host.paths import trouble
from penstock.host.pinned import PinnedFile
from penstock.host.survivors import Node, Survivors
from penstock.host.syncing import sync_in_turn
from penstock.host.tree import Change, Directory, Tree, files_below
from penstock.host.unsynced import Unsynced
from penstock.model.ports import Buffer, Disk, File, FileMap, FileSlice


class LossyFile(PinnedFile):
    """An open file of a LossyDisk. After a power cut every call but `close` and `unpin` raises EIO."""

    __slots__ = ("_disk", "_life", "_node", "_unsynced")

    def __init__(self, path: str, node: Node, content: Unsynced, disk: "LossyDisk") -> None:
        super().__init__(path)
        self._node = node
        self._unsynced = content
        self._disk = disk
        self._life = disk.life

    def size(self) -> int:
        """Bytes in the file."""
        self._check()
        return self._unsynced.size_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        """Reads written data, synced or not."""
        self._check(position)
        disk = self._disk
        disk.may_fail("read", self._path, disk.faults.read_error)
        content = self._unsynced.read(position, size_bytes)
        flip_chance = disk.faults.flip_on_read
        if content and flip_chance and disk.random.random() < flip_chance:
            flipped = bytearray(content)
            flipped[disk.random.randrange(len(flipped))] ^= 1 << disk.random.randrange(8)
            return bytes(flipped)
        return content

    def write(self, position: int, data: Buffer) -> None:
        """Writes data: visible at once, durable after `sync`. A failed write leaves a random part of the data."""
        self._check(position)
        disk = self._disk
        if not len(data):
            return
        try:
            disk.may_fail("write", self._path, disk.faults.write_error)
            disk.grow(self._node, position + len(data), self._path)
        except OSError:
            self._write_part(position, data[: disk.random.randrange(len(data) + 1)])
            raise
        self._unsynced.write(position, data)

    def truncate(self, size_bytes: int) -> None:
        """Changes the size: visible at once, durable after `sync`."""
        self._check(size_bytes)
        disk = self._disk
        disk.may_fail("truncate", self._path, disk.faults.write_error)
        disk.grow(self._node, size_bytes, self._path)
        disk.shrink(self._node, size_bytes)
        self._unsynced.truncate(size_bytes)

    def map_readonly(self) -> FileMap:
        """Maps the current content: the base file's own map if nothing is unsynced, else a copy."""
        self._check()
        if self._unsynced.is_clean:
            return self._unsynced.base.map_readonly()
        return MemoryMap(self._unsynced.read(0, self._unsynced.size_bytes))

    async def sync(self) -> None:
        """Makes all data durable that was written before the call."""
        self._check()
        disk, unsynced = self._disk, self._unsynced
        target = unsynced.called
        if disk.delay is not None:
            await disk.delay("sync", self._path)
            self._check()
        try:
            disk.may_fail("sync", self._path, disk.faults.sync_error)
        except OSError:
            if disk.faults.is_torn:
                unsynced.tear(disk.random, disk.random.random())
            unsynced.drop(target)
            raise
        if not disk.faults.sync_lies:
            unsynced.apply(target)

    def _write_part(self, position: int, data: Buffer) -> None:
        with suppress(OSError):
            self._disk.grow(self._node, position + len(data), self._path)
            self._unsynced.write(position, data)

    def _check(self, position: int = 0) -> None:
        if self._life != self._disk.life:
            raise trouble(errno.EIO, self._path)
        if self._is_released:
            raise trouble(errno.EBADF, self._path)
        if position < 0:
            raise trouble(errno.EINVAL, self._path)

    def _release(self) -> None:
        if self._life == self._disk.life:
            self._disk.closed(self._node)


class LossyDisk:
    """See the module. All random choices come from `random`, so that a run can be repeated."""

    def __init__(
        self, inner: Disk, random: Random, faults: Faults | None = None, *, delay: Delay | None = None, boots: int = 0
    ) -> None:
        self.inner = inner
        self.random = random
        self.faults = faults if faults is not None else Faults()
        self.delay = delay
        self.boots = boots
        """Number of power cuts before this disk was created."""
        self.boot_id = f"lossy-{_peek(random):032x}-{boots}"
        """New for every LossyDisk: a process around a real directory is ended by SIGKILL, and its successor creates
        a disk with another seed. Processes that share a disk (`kill_process`) share the id."""
        self.open_count = 0
        self.life = 0
        """Number of the current process life; the files of an earlier life are dead."""
        self._is_dead = False
        self._orders = Orders()
        self._tree: Tree[Node] = Tree()
        self._pending: PendingNames[Node] = PendingNames()
        self._survivors = Survivors(inner)
        self._survivors.load(self._tree.root)
        self._used_bytes: int | None = None  # computed when a capacity is first checked

    # Faults on command

    def power_cut(self) -> "LossyDisk":
        """Cuts the power: this disk and its files are dead; the returned disk holds what survived."""
        self._check()
        if self.faults.is_torn:
            self.write_back()
        self._die()
        self._is_dead = True
        self._survivors.close()
        return LossyDisk(self.inner, self.random, self.faults, delay=self.delay, boots=self.boots + 1)

    def kill_process(self) -> None:
        """Kills the process that has files open: the files are dead, written data remains, synced or not."""
        self._check()
        self._die()
        for node in list(self._survivors.loaded.values()):
            if node.opens:
                node.opens = 0
                self._settle(node)

    def write_back(self) -> None:
        """Makes a random part of the unsynced data durable, as a device may at any time."""
        self._check()
        random = self.random
        chance = random.choice((0.0, 1.0, random.random(), random.random()))
        for _, node in sorted(self._survivors.loaded.items()):
            self._content(node).tear(random, chance)
        chance = random.choice((0.0, 1.0, random.random(), random.random()))
        self._commit(self._pending.take_some(random, chance))

    def fail_next(self, operation: str, path: str | None = None, *, count: int = 1, code: int = errno.EIO) -> None:
        """Orders an error for the next calls of open, read, write, truncate, sync, sync_dir or sync_all."""
        self._orders.add(operation, path, count, code)

    def fail_nothing(self) -> None:
        """Cancels the errors of `fail_next` that have not occurred yet."""
        self._orders.clear()

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Flips a bit of the durable content. Readers see it unless unsynced data covers it."""
        self._check()
        node = self._tree.find(path)
        if not isinstance(node, Node):
            raise trouble(errno.ENOENT, path)
        base = self._content(node).base
        byte = base.read(position, 1)
        if byte:
            base.write(position, bytes([byte[0] ^ (1 << bit)]))
        self._release(node)
        if not byte:
            raise trouble(errno.EINVAL, path)

    def flip_random_bit(self, below: str = "") -> tuple[str, int, int] | None:
        """Flips a random bit below a directory. Returns its place, or None if there is no durable byte."""
        self._check()
        found = [(path, node) for path, node in files_below(self._tree.directory(below), below) if self._held(node)]
        if not found:
            return None
        path, node = self.random.choice(found)
        place = path, self.random.randrange(self._held(node)), self.random.randrange(8)
        self.flip_bit(*place)
        return place

    # The port

    def open(self, path: str, *, create: bool = False) -> LossyFile:
        """Opens a file for reading and writing; `create` creates it if it is missing."""
        self._check()
        self.may_fail("open", path, self.faults.open_error)
        directory, name = self._tree.place(path)
        node = directory.entries.get(name)
        if node is None:
            if not create:
                raise trouble(errno.ENOENT, path)
            if self.faults.capacity_bytes is not None and self.free_bytes() == 0:
                raise trouble(errno.ENOSPC, path)
            node = self._survivors.new_node()
            directory.entries[name] = node
            self._pending.changes.append(Change(((directory, name, node),), None))
        if isinstance(node, Directory):
            raise trouble(errno.EISDIR, path)
        content = self._content(node)
        node.opens += 1
        self.open_count += 1
        return LossyFile(path, node, content, self)

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        self._check()
        return self._tree.find(path) is not None

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        self._check()
        return self._tree.names(path)

    def make_dir(self, path: str) -> None:
        """Creates the directory and its parents; no error if it exists."""
        self._check()
        for change in self._tree.make_dir(path):
            self._record(change)

    def remove_dir(self, path: str) -> None:
        """Removes an empty directory."""
        self._check()
        self._record(self._tree.remove_dir(path))

    def rename(self, old: str, new: str) -> None:
        """Moves a file or directory, replacing a file at `new`."""
        self._check()
        change = self._tree.rename(old, new)
        if change is not None:
            self._record(change)

    def unlink(self, path: str) -> None:
        """Removes a file; open files stay readable."""
        self._check()
        self._record(self._tree.unlink(path))

    async def sync_many(self, files: Sequence[File]) -> Sequence[OSError | None]:
        """Syncs one file after the other."""
        return await sync_in_turn(files)

    async def sync_dir(self, path: str) -> None:
        """Makes the names in the directory durable, but not the name of the directory itself."""
        self._check()
        directory = self._tree.directory(path)
        if self.delay is not None:
            await self.delay("sync_dir", path)
            self._check()
        self.may_fail("sync_dir", path, self.faults.sync_error)
        if not self.faults.sync_lies:
            self._commit(self._pending.take(directory))

    async def sync_all(self) -> None:
        """Makes every file and every name durable."""
        self._check()
        targets = [
            (node, content, content.called) for node in self._survivors.loaded.values() if (content := node.content)
        ]
        if self.delay is not None:
            await self.delay("sync_all", "")
            self._check()
        try:
            self.may_fail("sync_all", "", self.faults.sync_error)
        except OSError:
            for _, content, target in targets:
                content.drop(target)
            raise
        if self.faults.sync_lies:
            return
        for _, content, target in targets:
            content.apply(target)
        self._commit(self._pending.take_all())
        for node, _, _ in targets:
            self._release(node)

    def free_bytes(self) -> int:
        """Free space on the disk."""
        self._check()
        if self.faults.capacity_bytes is None:
            return self.inner.free_bytes()
        return max(0, self.faults.capacity_bytes - self._used())

    def is_resident(self, part: FileSlice) -> bool:  # noqa: ARG002 - it is read through this process anyway
        """Always true."""
        return True

    # For this room's files

    def may_fail(self, operation: str, path: str, chance: float) -> None:
        """Raises an ordered error, or EIO with the given probability."""
        self._orders.raise_if_due(operation, path)
        if chance and self.random.random() < chance:
            raise trouble(errno.EIO, path)

    def grow(self, node: Node, end: int, path: str) -> None:
        """Accounts for a file that grows to `end`; raises ENOSPC beyond the capacity."""
        content = node.content
        assert content is not None
        more = end - content.size_bytes
        if more <= 0:
            return
        capacity_bytes = self.faults.capacity_bytes
        if capacity_bytes is not None and self._used() + more > capacity_bytes:
            raise trouble(errno.ENOSPC, path)
        if self._used_bytes is not None:
            self._used_bytes += more

    def shrink(self, node: Node, size_bytes: int) -> None:
        """Accounts for a file that shrinks to `size_bytes`."""
        content = node.content
        assert content is not None
        if self._used_bytes is not None:
            self._used_bytes -= max(0, content.size_bytes - size_bytes)

    def closed(self, node: Node) -> None:
        """Accounts for a closed file."""
        node.opens -= 1
        self.open_count -= 1
        if node.opens == 0:
            self._settle(node)

    # Inside

    def _check(self) -> None:
        if self._is_dead:
            raise trouble(errno.EIO, "")

    def _die(self) -> None:
        self.life += 1
        self.open_count = 0
        self._orders.clear()

    def _record(self, change: Change[Node]) -> None:
        self._pending.changes.append(change)
        if isinstance(change.replaced, Node):
            change.replaced.is_linked = False
            if change.replaced.opens == 0:
                self._settle(change.replaced)

    def _commit(self, changes: Sequence[Change[Node]]) -> None:
        for change in changes:
            self._survivors.commit(change)
        for change in changes:
            for _, _, node in change.entries:
                if isinstance(node, Node):
                    self._release(node)
            if isinstance(change.replaced, Node):
                self._release(change.replaced)

    def _content(self, node: Node) -> Unsynced:
        return self._survivors.content(node)

    def _settle(self, node: Node) -> None:
        """Called when a file has lost its last user, or its last name while it has no users."""
        if not node.is_linked and self._used_bytes is not None:
            self._used_bytes -= self._size(node)
        self._release(node)

    def _release(self, node: Node) -> None:
        """Releases content of a file that is not open, if it can be loaded again or no name can reach it."""
        if node.opens or node.content is None:
            return
        if node.is_linked or self._survivors.is_saved(node) or self._is_pending(node):
            self._survivors.release(node)
        else:
            self._survivors.forget(node)

    def _is_pending(self, node: Node) -> bool:
        return any(entry[2] is node for change in self._pending.changes for entry in change.entries)

    def _size(self, node: Node) -> int:
        size_bytes = self._content(node).size_bytes
        self._release(node)
        return size_bytes

    def _held(self, node: Node) -> int:
        """Number of durable bytes in a file."""
        size_bytes = self._content(node).base.size()
        self._release(node)
        return size_bytes

    def _used(self) -> int:
        if self._used_bytes is None:
            unnamed = (node for node in self._survivors.loaded.values() if node.opens and not node.is_linked)
            named = (node for _, node in files_below(self._tree.root, ""))
            self._used_bytes = sum(self._size(node) for node in [*unnamed, *named])
        return self._used_bytes


def _peek(random: Random) -> int:
    """The next value of the stream, without drawing it, so that older seeds still give the same runs."""
    twin = Random(0)  # noqa: S311 - a copy of the given stream
    twin.setstate(random.getstate())
    return twin.getrandbits(128)
