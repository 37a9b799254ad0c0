"""Ports, the only interfaces to the outside world: clock, entropy, disk, network, workers.

`host` implements the real ones, `simulator` the simulated ones; all other code takes them as arguments. File reads and
writes are plain calls (they end in the page cache); calls that may block are awaited. Paths are relative to the disk's
root, with "/" between parts. A disk reports errors as OSError with an errno, real or simulated.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview


class Clock(Protocol):
    """Current time. The wall clock may jump, the monotonic one never goes back."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for timestamps that people and records see."""

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary origin, for timeouts and intervals."""


class Entropy(Protocol):
    """Source of randomness, which a simulated world can repeat."""

    def token(self, size_bytes: int) -> bytes:
        """`size_bytes` random bytes; on the host, good enough for ids and secrets."""

    def below(self, end: int) -> int:
        """A number from 0 to end - 1."""


class Footprint(NamedTuple):
    """Resources used by a process."""

    cpu_s: float
    """CPU time used by all threads together."""
    resident_bytes: int
    open_files: int
    open_files_max: int
    began_s: float
    """Start time, in seconds since 1970."""


class File(Protocol):
    """An open file. A pinned file stays usable even after `close` and after it was unlinked."""

    @property
    def path(self) -> str:
        """Path under which the file was opened."""

    def size(self) -> int:
        """Bytes in the file."""

    def read(self, position: int, size_bytes: int) -> bytes:
        """Reads up to `size_bytes` bytes; fewer only at the end of the file."""

    def write(self, position: int, data: Buffer) -> None:
        """Writes all of the data, or raises OSError. The effect of a failed write is unknown."""

    def truncate(self, size_bytes: int) -> None:
        """Cuts the file to that size."""

    def map_readonly(self) -> "FileMap":
        """Maps the file's present content into memory, until the map is closed."""

    async def sync(self) -> None:
        """Returns when content and size are on stable storage. After an OSError nothing may be assumed; never retry."""

    def pin(self) -> None:
        """Keeps the file usable until `unpin`."""

    def unpin(self) -> None:
        """Undoes one `pin`; closes the file if `close` was called meanwhile."""

    def close(self) -> None:
        """Releases the descriptor, now or with the last `unpin`."""


class FileMap(Protocol):
    """A read-only memory map."""

    @property
    def view(self) -> memoryview:
        """The mapped bytes."""

    def close(self) -> None:
        """Releases the mapping."""


class FileSlice:
    """A range of a file to be sent to a socket. Pins the file until it is released; the sender releases it."""

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
        """Reads the bytes, for connections that cannot send a file."""
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
        """Identifies the page cache: unchanged while all written data is still there, synced or not; otherwise new."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens a file for reading and writing; `create` creates it if it is missing."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def make_dir(self, path: str) -> None:
        """Creates the directory and its parents; no error if it exists."""

    def remove_dir(self, path: str) -> None:
        """Removes an empty directory."""

    def rename(self, old: str, new: str) -> None:
        """Moves a file or directory, replacing a file at `new`."""

    def unlink(self, path: str) -> None:
        """Removes a file; open files stay readable."""

    async def sync_many(self, files: Sequence[File]) -> "Sequence[OSError | None]":
        """Syncs files concurrently; returns an error or None for each. A failed file must never be synced again."""

    async def sync_dir(self, path: str) -> None:
        """Returns when the names in the directory are on stable storage."""

    async def sync_all(self) -> None:
        """Returns when everything written to this disk so far is on stable storage."""

    def free_bytes(self) -> int:
        """Free space on the disk."""

    def is_resident(self, part: FileSlice) -> bool:
        """Whether the start of the slice can be read without waiting for the device."""


class Connection(Protocol):
    """A byte stream between two endpoints."""

    @property
    def peer(self) -> str:
        """Host and port of the other end."""

    @property
    def local(self) -> str:
        """Host and port of this end."""

    async def receive_into(self, view: memoryview) -> int:
        """Waits for bytes and returns their number, 0 at the end of the stream. Raises ConnectionError if it broke."""

    def try_receive_into(self, view: memoryview) -> int | None:
        """The same without waiting; None if no bytes are available."""

    async def readable(self) -> None:
        """Waits until there may be bytes to receive, without holding a buffer."""

    async def send(self, buffers: Sequence[Buffer | FileSlice]) -> None:
        """Sends all buffers in order; releases the slices even if sending fails."""

    def close(self) -> None:
        """Closes the connection immediately."""


class Listener(Protocol):
    """A listening socket."""

    @property
    def address(self) -> str:
        """Host and port on which it actually listens."""

    async def accept(self) -> Connection:
        """Waits for the next connection. Raises OSError after `close`."""

    def close(self) -> None:
        """Stops accepting connections."""


class Network(Protocol):
    """Connections between nodes and clients."""

    async def listen(self, host: str, port: int) -> Listener:
        """Starts to listen; port 0 selects a free port."""

    async def connect(self, host: str, port: int) -> Connection:
        """Opens a connection. Raises OSError if there is no answer."""


class Workers(Protocol):
    """Runs blocking calls and long computations outside the event loop."""

    def run(self, work: Callable[[], T], *, makes_many: bool = False) -> Awaitable[T]:
        """Result or exception of `work`; `makes_many` if it creates thousands of objects that stay alive."""

    def breathe(self) -> None:
        """Yields the interpreter to the event loop; long computations call it every few microseconds."""
