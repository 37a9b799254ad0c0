"""Rate-limited warnings about misbehaving clients.

The first warning of a kind is logged immediately; further ones before the next `tick` are counted and logged together.
So a flood of bad connections cannot become a flood of log lines. The last warning of each kind is kept for a while and
appears in the node's report about itself.
"""

import logging
from typing import NamedTuple

logger = logging.getLogger("penstock.peers")

REMEMBERED_S = 900


class Remembered(NamedTuple):
    """The last warning of a kind and the number of its occurrences."""

    kind: str
    sentence: str
    times: int
    seconds_ago: int


class ClientWarnings:
    """See the module. The owner calls `tick` about once a second."""

    __slots__ = ("_last", "_repeats", "_ticks")

    def __init__(self) -> None:
        self._repeats: dict[str, tuple[int, str]] = {}
        self._last: dict[str, tuple[str, int, int]] = {}
        self._ticks = 0

    def say(self, kind: str, sentence: str) -> None:
        """Logs a warning, or counts it if one of its kind was just logged."""
        said = self._repeats.get(kind)
        if said is None:
            self._repeats[kind] = (0, "")
            logger.warning("%s", sentence)
        else:
            self._repeats[kind] = (said[0] + 1, sentence)
        self._last[kind] = (sentence, self._last.get(kind, ("", 0, 0))[1] + 1, self._ticks)

    def tick(self) -> None:
        """Logs the warnings that were held back."""
        self._ticks += 1
        repeats, self._repeats = self._repeats, {}
        for count, sentence in repeats.values():
            if count == 1:
                logger.warning("%s", sentence)
            elif count:
                logger.warning("%s (and %d more like it)", sentence, count - 1)

    def remembered(self) -> list[Remembered]:
        """The recent warnings, one per kind; drops older ones."""
        self._last = {kind: last for kind, last in self._last.items() if self._ticks - last[2] <= REMEMBERED_S}
        return [
            Remembered(kind, sentence, count, self._ticks - tick)
            for kind, (sentence, count, tick) in self._last.items()
        ]
