"""Why a query failed, in one sentence, and whether an operator must act before it can continue.

An error crosses three boundaries: worker to JVM, JVM to driver, query to its caller. The result is a text with the
original error somewhere inside.
"""

import re
from typing import NamedTuple

_OURS = re.compile(r"\b(penstock(?:\.\w+)+): (.+)")
_ANY = re.compile(r"^\s*(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt)): (.+)", re.MULTILINE)
_CONCURRENT = "CONCURRENT_STREAM_LOG_UPDATE"
"""Spark's error if another run has written the same entry to the checkpoint."""
FINAL = ("CommitRefused", "BadRecord", "DataLost", "OptionError", "TopicRecreated", "CheckpointError")
"""Errors at which a retry would fail the same way."""


class Failure(NamedTuple):
    """A failure as reported."""

    sentence: str
    is_final: bool


RACE = Failure("Another run uses the same checkpoint: find out which shall go on, and stop the other", True)
"""Two runs have planned the same batch, and the other was faster."""


def failure_of(*errors: BaseException | None) -> Failure:
    """The first error that is or contains one of ours, or else the first error."""
    given = [error for error in errors if error is not None]
    for error in given:
        kind = f"{type(error).__module__}.{type(error).__name__}"
        if kind.startswith("penstock."):
            return Failure(str(error), _is_final(kind))
        if found := _OURS.findall(str(error)):
            kind, sentence = found[-1]
            return Failure(sentence.strip(), _is_final(kind))
    if any(_CONCURRENT in str(error) for error in given):
        return RACE
    if not given:
        return Failure("it ended and gave no reason", is_final=False)
    return Failure(_short(given[0]), is_final=False)


def _is_final(kind: str) -> bool:
    """Whether a retry cannot help: a broker may later allow a refused request, the pipeline itself never does."""
    return kind.startswith("penstock.spark.") and kind.rpartition(".")[2] in FINAL


def _short(error: BaseException) -> str:
    text = str(error)
    if found := _ANY.findall(text):
        name, sentence = found[-1]
        return f"{name}: {sentence.strip()}"
    return f"{type(error).__name__}: {text.strip().splitlines()[0] if text.strip() else 'no text'}"
