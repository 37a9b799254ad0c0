"""Base class of metadata records: messages with a key that identifies their type in the log."""

from typing import ClassVar

from penstock.wire.declare import Message


class MetadataRecord(Message):
    """One change of the cluster's state."""

    KEY: ClassVar[int]

    def __init_subclass__(cls, *, key: int = -1, versions: str = "none", flexible: str = "none") -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.KEY = key
