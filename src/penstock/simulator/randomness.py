"""Independent random streams from one seed.

Every node, link and disk draws from a stream of its own, named by a label; an extra draw in one place changes nothing
elsewhere, so a failing seed still reproduces while the code around it changes.
"""

from hashlib import blake2b
from random import Random


class Streams:
    """The streams of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[tuple[str, ...], Random] = {}

    def stream(self, *label: str) -> Random:
        """The stream with that label; the same one each time, so its draws continue."""
        stream = self._streams.get(label)
        if stream is None:
            text = "\0".join((str(self.seed), *label)).encode()
            stream = Random(int.from_bytes(blake2b(text, digest_size=16).digest()))  # noqa: S311
            self._streams[label] = stream
        return stream
