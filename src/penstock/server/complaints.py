"""What is said about peers that misbehave: at once, in one sentence, but not a thousand times a second.

The first complaint of a kind is logged as it comes; those that follow before the next `tick` are counted and told
together. So a flood of bad connections cannot become a flood of log lines.
"""

import logging

logger = logging.getLogger("penstock.peers")


class Complaints:
    """Says things; whoever owns it calls `tick` about once a second."""

    __slots__ = ("_repeats",)

    def __init__(self) -> None:
        self._repeats: dict[str, tuple[int, str]] = {}

    def say(self, kind: str, sentence: str) -> None:
        """A complaint of a kind."""
        said = self._repeats.get(kind)
        if said is None:
            self._repeats[kind] = (0, "")
            logger.warning("%s", sentence)
        else:
            self._repeats[kind] = (said[0] + 1, sentence)

    def tick(self) -> None:
        """Tells what was held back."""
        repeats, self._repeats = self._repeats, {}
        for count, sentence in repeats.values():
            if count == 1:
                logger.warning("%s", sentence)
            elif count:
                logger.warning("%s (and %d more like it)", sentence, count - 1)
