"""What a command says when it fails: one sentence that tells what to do. Exit codes: 0 well, 1 failed, 2 misused."""

from typing import ClassVar


class Failed(Exception):
    """A command could not do what it was asked; its text is for the user."""

    exit_code: ClassVar[int] = 1


class Misused(Failed):
    """The command line itself makes no sense."""

    exit_code = 2


_START_ONE = "Start one with `penstock dev`, or say where yours is with -b host:port"


def sentence(error: BaseException) -> str | None:
    """What the user is told of an error; None when it is a mistake of ours."""
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
            return f"{told}; `penstock group list` shows what there is"
        case Refused(code=ErrorCode.TOPIC_ALREADY_EXISTS):
            return f"{told}; `penstock topic alter` changes it"
        case ClientError():
            return told
    return None
