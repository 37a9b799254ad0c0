"""What is said about peers that misbehave: at once, in one sentence, but not a thousand times a second.

The first complaint of a kind is logged as it comes; those that follow before the next `tick` are counted and told
together. So a flood of bad connections cannot become a flood of log lines. The last of each kind is remembered for a
while, for whoever asks the node what is wrong with its clients.
"""

import logging
from typing import NamedTuple

logger = logging.getLogger("penstock.peers")

REMEMBERED_S = 900


class Remembered(NamedTuple):
    """The last complaint of a kind, and how many there were."""

    kind: str
    sentence: str
    times: int
    seconds_ago: int


class Complaints:
    """Says things; whoever owns it calls `tick` about once a second."""

    __slots__ = ("_last", "_repeats", "_ticks")

    def __init__(self) -> None:
        self._repeats: dict[str, tuple[int, str]] = {}
        self._last: dict[str, tuple[str, int, int]] = {}
        self._ticks = 0

    def say(self, kind: str, sentence: str) -> None:
        """A complaint of a kind."""
        said = self._repeats.get(kind)
        if said is None:
            self._repeats[kind] = (0, "")
            logger.warning("%s", sentence)
        else:
            self._repeats[kind] = (said[0] + 1, sentence)
        self._last[kind] = (sentence, self._last.get(kind, ("", 0, 0))[1] + 1, self._ticks)

    def tick(self) -> None:
        """Tells what was held back."""
        self._ticks += 1
        repeats, self._repeats = self._repeats, {}
        for count, sentence in repeats.values():
            if count == 1:
                logger.warning("%s", sentence)
            elif count:
                logger.warning("%s (and %d more like it)", sentence, count - 1)

    def remembered(self) -> list[Remembered]:
        """What there was to complain of lately; the rest is forgotten."""
        self._last = {kind: last for kind, last in self._last.items() if self._ticks - last[2] <= REMEMBERED_S}
        return [
            Remembered(kind, sentence, count, self._ticks - tick)
            for kind, (sentence, count, tick) in self._last.items()
        ]
