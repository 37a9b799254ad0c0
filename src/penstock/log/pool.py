"""Resources shared by the logs of a directory. Open files and maps are bounded by least-recently-used eviction.

Ten thousand logs have more segments than a process has descriptors. An evicted file is opened again on its next use; if
it was dirty, its sync goes through the new descriptor, which covers the whole file.
"""

from collections import OrderedDict

from penstock.log.boot import Boot
from penstock.log.index import MappedIndex
from penstock.log.space import Reserve
from penstock.model.ports import Disk, File

FILES_OPEN_MAX = 4096
MAPS_OPEN_MAX = 1024


class Pool:
    """The descriptors, the maps, the reserve and the boot record of one data directory."""

    def __init__(
        self,
        disk: Disk,
        files_open_max: int = FILES_OPEN_MAX,
        maps_open_max: int = MAPS_OPEN_MAX,
        reserve_bytes: int = 0,
    ) -> None:
        self.disk = disk
        self.reserve = Reserve(disk, reserve_bytes)
        self.boot = Boot(disk, self.reserve)
        self.files_open_max = files_open_max
        self.maps_open_max = maps_open_max
        self.refusals = 0
        """The number of writes that were refused because the disk was full."""
        self._files: OrderedDict[str, File] = OrderedDict()
        self._maps: OrderedDict[str, MappedIndex] = OrderedDict()

    @property
    def files_open(self) -> int:
        """The number of open files."""
        return len(self._files)

    @property
    def maps_open(self) -> int:
        """The number of open maps."""
        return len(self._maps)

    def file(self, path: str, *, create: bool = False) -> File:
        """Returns the open file; any later call may close it unless it is pinned."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        while len(self._files) >= self.files_open_max:
            self._files.popitem(last=False)[1].close()
        file = self._files[path] = self.disk.open(path, create=create)
        return file

    def index(self, path: str) -> MappedIndex:
        """Returns the sealed index at a path; raises Damaged if it is not intact."""
        found = self._maps.get(path)
        if found is not None:
            self._maps.move_to_end(path)
            return found
        file = self.disk.open(path)
        try:
            found = MappedIndex(file)
        finally:
            file.close()
        while len(self._maps) >= self.maps_open_max:
            self._maps.popitem(last=False)[1].close()
        self._maps[path] = found
        return found

    def forget(self, path: str) -> None:
        """Closes the file and the map at a path."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()
        found = self._maps.pop(path, None)
        if found is not None:
            found.close()

    def remove(self, path: str) -> None:
        """Closes the file and the map at a path, and removes the file if it exists."""
        self.forget(path)
        if self.disk.exists(path):
            self.disk.unlink(path)

    def close(self) -> None:
        """Closes everything."""
        for path in [*self._files, *self._maps]:
            self.forget(path)
