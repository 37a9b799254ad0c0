"""Pins: a file that is still being sent stays usable after `close`, and is released with its last `unpin`."""

import errno

from penstock.host.paths import trouble


class PinnedFile:
    """Base of files that count their pins. `_release` is called exactly once."""

    __slots__ = ("_is_closed", "_is_released", "_path", "_pins")

    def __init__(self, path: str) -> None:
        self._path = path
        self._pins = 0
        self._is_closed = False
        self._is_released = False

    @property
    def path(self) -> str:
        """Path under which the file was opened."""
        return self._path

    def pin(self) -> None:
        """Keeps the file usable until `unpin`."""
        if self._is_released:
            raise trouble(errno.EBADF, self._path)
        self._pins += 1

    def unpin(self) -> None:
        """Undoes one `pin`; closes the file if `close` was called meanwhile."""
        assert self._pins > 0, "unpin without a pin"
        self._pins -= 1
        if self._is_closed and self._pins == 0:
            self._release_once()

    def close(self) -> None:
        """Releases the file, now or with the last `unpin`. A second call does nothing."""
        self._is_closed = True
        if self._pins == 0:
            self._release_once()

    def _release_once(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._release()

    def _release(self) -> None:
        raise NotImplementedError
