"""The only doors to the world: clock, entropy, disk, network, workers.

`host` has the real ones, `simulator` the simulated ones; everything else takes them as arguments. Reads and writes of
files are plain calls (they end in the page cache); whatever may really wait is awaited. Paths are relative to the
disk's root, with "/" between parts. A disk reports trouble as OSError with its errno, in both worlds.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview


class Clock(Protocol):
    """What time it is. The wall clock may jump, the monotonic one never goes back."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for timestamps that people and records see."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment, for time-outs and intervals."""


class Entropy(Protocol):
    """Randomness, so that a simulated world can repeat it."""

    def token(self, size_bytes: int) -> bytes:
        """That many random bytes; good enough for ids and secrets on the host."""

    def below(self, end: int) -> int:
        """A number from 0 to end - 1."""


class Footprint(NamedTuple):
    """What a process takes of its machine."""

    cpu_s: float
    """CPU time that it has used, all threads together."""
    resident_bytes: int
    open_files: int
    open_files_max: int
    began_s: float
    """When it began, in seconds since 1970."""


class File(Protocol):
    """An open file. It stays usable while it is pinned, even after `close` and after it was unlinked."""

    @property
    def path(self) -> str:
        """Where it was opened."""

    def size(self) -> int:
        """Bytes in the file."""

    def read(self, position: int, size_bytes: int) -> bytes:
        """Up to that many bytes; fewer only at the end of the file."""

    def write(self, position: int, data: Buffer) -> None:
        """All of the data, or OSError. What a failed write left behind is unknown."""

    def truncate(self, size_bytes: int) -> None:
        """Cuts the file to that size."""

    def map_readonly(self) -> "FileMap":
        """The file's present content as memory. Costs a mapping until it is closed."""

    async def sync(self) -> None:
        """Returns when content and size are on stable storage. After an OSError nothing may be assumed; never retry."""

    def pin(self) -> None:
        """Keeps the file usable until `unpin`."""

    def unpin(self) -> None:
        """Undoes one `pin`; closes the file if `close` was called meanwhile."""

    def close(self) -> None:
        """Gives the descriptor back, now or with the last `unpin`."""


class FileMap(Protocol):
    """A read-only memory map."""

    @property
    def view(self) -> memoryview:
        """The mapped bytes."""

    def close(self) -> None:
        """Gives the mapping back."""


class FileSlice:
    """A range of a file on its way to a socket. Pins the file until it is released; whoever sends it releases it."""

    __slots__ = ("_is_pinned", "file", "position", "size_bytes")

    def __init__(self, file: File, position: int, size_bytes: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes
        file.pin()
        self._is_pinned = True

    def __len__(self) -> int:
        return self.size_bytes

    def read(self) -> bytes:
        """The bytes, for whoever cannot send a file."""
        return self.file.read(self.position, self.size_bytes)

    def release(self) -> None:
        """Unpins the file; further calls do nothing."""
        if self._is_pinned:
            self._is_pinned = False
            self.file.unpin()


class Disk(Protocol):
    """A directory tree. New, moved and removed names survive a power cut only after `sync_dir` of their directory."""

    @property
    def boot_id(self) -> str:
        """Names the life of the page cache: unchanged while what was written is there, synced or not; else new."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and writing; `create` makes the file if it is missing."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def make_dir(self, path: str) -> None:
        """Makes the directory and its parents; no error if it exists."""

    def remove_dir(self, path: str) -> None:
        """Removes an empty directory."""

    def rename(self, old: str, new: str) -> None:
        """Moves a file or directory, replacing a file at `new`."""

    def unlink(self, path: str) -> None:
        """Removes a file; open files stay readable."""

    async def sync_many(self, files: Sequence[File]) -> "Sequence[OSError | None]":
        """Syncs files side by side; for each, what went wrong. A failed one must never be synced again."""

    async def sync_dir(self, path: str) -> None:
        """Returns when the names in the directory are on stable storage."""

    async def sync_all(self) -> None:
        """Returns when everything that was written to this disk so far is on stable storage."""

    def free_bytes(self) -> int:
        """How much more fits."""

    def is_resident(self, part: FileSlice) -> bool:
        """Whether the start of the slice can be read without waiting for the device."""


class Connection(Protocol):
    """A stream of bytes between two ends."""

    @property
    def peer(self) -> str:
        """Host and port of the other end."""

    @property
    def local(self) -> str:
        """Host and port of this end."""

    async def receive_into(self, view: memoryview) -> int:
        """Waits for bytes; 0 means that the other end is done. ConnectionError when it broke."""

    def try_receive_into(self, view: memoryview) -> int | None:
        """The same without waiting: None when nothing is there."""

    async def readable(self) -> None:
        """Waits until there may be something to receive, so that no memory is held meanwhile."""

    async def send(self, buffers: Sequence[Buffer | FileSlice]) -> None:
        """Sends all of them in order, and releases the slices whatever happens."""

    def close(self) -> None:
        """Ends the connection at once."""


class Listener(Protocol):
    """A place where connections arrive."""

    @property
    def address(self) -> str:
        """Host and port that it really listens on."""

    async def accept(self) -> Connection:
        """The next connection. OSError after `close`."""

    def close(self) -> None:
        """Accepts no more."""


class Network(Protocol):
    """How nodes and clients reach each other."""

    async def listen(self, host: str, port: int) -> Listener:
        """Port 0 takes a free one."""

    async def connect(self, host: str, port: int) -> Connection:
        """OSError when nobody answers."""


class Workers(Protocol):
    """Where blocking calls and long computations go, so that the loop goes on."""

    def run(self, work: Callable[[], T], *, makes_many: bool = False) -> Awaitable[T]:
        """What `work` returns or raises; `makes_many` says that it makes thousands of objects that live on."""

    def breathe(self) -> None:
        """For work that computes, every few microseconds: lets the loop have the interpreter if it wants it."""
