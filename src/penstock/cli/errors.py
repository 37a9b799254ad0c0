"""Errors of commands: one sentence that advises the user what to do. Exit codes: 0 success, 1 failed, 2 misused."""

from typing import TYPE_CHECKING, ClassVar

from penstock.cli.output import printable

if TYPE_CHECKING:
    from penstock.client.bootstrap import FoundCluster


class Failed(Exception):
    """A command failed; the text of the exception is for the user."""

    exit_code: ClassVar[int] = 1


class Misused(Failed):
    """The command line itself is invalid."""

    exit_code = 2


class NotReached(Failed):
    """No broker of the cluster answers."""

    def __init__(self, told: str, found: "FoundCluster") -> None:
        super().__init__(_not_reached(told, found))


class PartlyReached(Failed):
    """A broker does not answer, although others of its cluster did."""

    def __init__(self, told: str) -> None:
        super().__init__(f"{told.rstrip('.')}{'' if told.endswith('?') else '.'} {_OTHERS_ANSWER}")


_START_ONE = "Start one with `penstock dev`, or say where yours is with -b host:port"
_OTHERS_ANSWER = "The cluster was reached, but a broker of it may be down: `penstock doctor` shows what is wrong"


def _not_reached(told: str, found: "FoundCluster") -> str:
    from penstock.cli.sandbox_place import sandbox_of
    from penstock.client.bootstrap import Rule

    if (sandbox := sandbox_of(found)) is not None:
        return (
            f"nobody answers of the cluster in {sandbox.path}: `{sandbox.start}` starts it, or say with -b where "
            "another is"
        )
    told = f"{told.rstrip('.')}{'' if told.endswith('?') else '.'}"
    if found.rule in (Rule.ADDRESS, Rule.DEFAULT):
        return f"{told} {_START_ONE}"
    is_context = found.rule in (Rule.CONTEXT, Rule.CONTEXT_IN_USE)
    whose = f"{'is that of' if is_context else 'was'} {found.source}"
    return f"{told} This address {whose}: start that cluster, or say where yours is with -b host:port"


def sentence(error: BaseException) -> str | None:
    """The message of an error for the user, safe for a terminal; None if the error is a bug in Penstock."""
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
