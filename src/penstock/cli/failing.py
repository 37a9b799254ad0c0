"""What a command says when it fails: one sentence that tells what to do. Exit codes: 0 well, 1 failed, 2 misused."""

from typing import ClassVar

from penstock.cli.output import printable


class Failed(Exception):
    """A command could not do what it was asked; its text is for the user."""

    exit_code: ClassVar[int] = 1


class Misused(Failed):
    """The command line itself makes no sense."""

    exit_code = 2


class PartlyReached(Failed):
    """A broker does not answer, though others of its cluster did."""

    def __init__(self, told: str) -> None:
        super().__init__(f"{told.rstrip('.')}{'' if told.endswith('?') else '.'} {_OTHERS_ANSWER}")


_START_ONE = "Start one with `penstock dev`, or say where yours is with -b host:port"
_OTHERS_ANSWER = "The cluster was reached, but a broker of it may be down: `penstock doctor` shows what is wrong"


def sentence(error: BaseException) -> str | None:
    """What the user is told of an error, fit for a terminal; None when it is a mistake of ours."""
    told = _told(error)
    return None if told is None else "\n".join(map(printable, told.split("\n")))


def _told(error: BaseException) -> str | None:
    match error:
        case Failed() | ValueError():
            return str(error)
        case OSError():
            what = error.strerror or str(error)
            return f"{error.filename}: {what}" if error.filename else what
    return _of_client(error)


def _of_client(error: BaseException) -> str | None:
    from penstock.client.errors import ClientError, Refused, TimedOut, Unreachable
    from penstock.model.errors import ErrorCode

    told = str(error).rstrip(".")
    match error:
        case Unreachable():
            return f"{told}{'' if told.endswith('?') else '.'} {_START_ONE}"
        case TimedOut():
            return f"{told}; is the broker overloaded? --timeout gives it more time"
        case Refused(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            return f"{told}; `penstock topic list` shows what there is"
        case Refused(code=ErrorCode.GROUP_ID_NOT_FOUND):
            return f"there is no {error.subject or 'such group'}: `penstock group list` shows what there is"
        case Refused(code=ErrorCode.TOPIC_ALREADY_EXISTS):
            return f"{told}; `penstock topic alter` changes it"
        case ClientError():
            return told
    return None
