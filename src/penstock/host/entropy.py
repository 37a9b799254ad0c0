"""The machine's randomness, good enough for secrets."""

import secrets


class HostEntropy:
    """Randomness from the kernel."""

    __slots__ = ()

    def token(self, size_bytes: int) -> bytes:
        """`size_bytes` random bytes."""
        return secrets.token_bytes(size_bytes)

    def below(self, end: int) -> int:
        """A number from 0 to end - 1."""
        return secrets.randbelow(end)
