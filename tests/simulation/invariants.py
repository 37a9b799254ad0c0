"""What an invariant that does not hold is told by."""

from typing import NoReturn


class Broken(AssertionError):
    """An invariant does not hold."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}")
        self.name = name


def broken(name: str, what: str) -> NoReturn:
    raise Broken(name, what)


def reason_of(error: BaseException) -> str:
    """The name of the invariant, or of the exception."""
    return str(getattr(error, "name", None) or type(error).__name__)
