"""The Entropy port from a seeded stream."""

from random import Random


class SimulatedEntropy:
    """Random values that repeat with the seed."""

    def __init__(self, stream: Random) -> None:
        self._stream = stream

    def token(self, size_bytes: int) -> bytes:
        """`size_bytes` random bytes."""
        return self._stream.randbytes(size_bytes)

    def below(self, end: int) -> int:
        """A number from 0 to end - 1."""
        return self._stream.randrange(end)
