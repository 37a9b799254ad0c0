"""Why a query failed, in one sentence, and whether a person must do something before it can go on.

An error crosses three borders on its way: worker to JVM, JVM to driver, query to whoever waits for it. What is left is
a text with the original somewhere inside.
"""

import re
from typing import NamedTuple

_OURS = re.compile(r"\b(penstock(?:\.\w+)+): (.+)")
_ANY = re.compile(r"^\s*(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt)): (.+)", re.MULTILINE)
_CONCURRENT = "CONCURRENT_STREAM_LOG_UPDATE"
"""Spark's word for somebody else having written what it was about to write to the checkpoint."""
FINAL = ("Refused", "BadRecord", "DataLost", "OptionError", "TopicRecreated", "CheckpointError")
"""Trying again would end the same way."""


class Failure(NamedTuple):
    """What to tell."""

    sentence: str
    is_final: bool


def failure_of(*errors: BaseException | None) -> Failure:
    """The first of them that says something of ours, or else the first."""
    given = [error for error in errors if error is not None]
    for error in given:
        kind = f"{type(error).__module__}.{type(error).__name__}"
        if kind.startswith("penstock."):
            return Failure(str(error), _is_final(kind))
        if found := _OURS.findall(str(error)):
            kind, sentence = found[-1]
            return Failure(sentence.strip(), _is_final(kind))
    if any(_CONCURRENT in str(error) for error in given):
        return Failure("Another run uses the same checkpoint: find out which shall go on, and stop the other", True)
    if not given:
        return Failure("it ended and gave no reason", is_final=False)
    return Failure(_short(given[0]), is_final=False)


def _is_final(kind: str) -> bool:
    """What a broker refuses it may allow later; what the pipeline itself refuses stays refused."""
    return kind.startswith("penstock.spark.") and kind.rpartition(".")[2] in FINAL


def _short(error: BaseException) -> str:
    text = str(error)
    if found := _ANY.findall(text):
        name, sentence = found[-1]
        return f"{name}: {sentence.strip()}"
    return f"{type(error).__name__}: {text.strip().splitlines()[0] if text.strip() else 'no text'}"
