"""The error for a payload that decompresses to more than its cap."""

from penstock.model.errors import BatchTooLarge


class OverCap(BatchTooLarge):
    """See the module. Carries the beginning of the payload, as far as it was decompressed."""

    def __init__(self, sentence: str, prefix: bytes | bytearray = b"") -> None:
        super().__init__(sentence)
        self.prefix = prefix
