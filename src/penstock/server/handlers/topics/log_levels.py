"""Levels of this program's loggers, with the level names of Kafka's tools (resource type BROKER_LOGGER)."""

import logging
from typing import Final

from penstock.metadata.commands import Operation, Refusal
from penstock.model.errors import ErrorCode

ROOT: Final = "root"
PACKAGE: Final = "penstock"
LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES: Final = {level: name for name, level in LEVELS.items()}


def levels() -> dict[str, str]:
    """The effective level of each logger, by name."""
    names = [name for name in logging.Logger.manager.loggerDict if name.partition(".")[0] == PACKAGE]
    return {name: _NAMES.get(_logger(name).getEffectiveLevel(), "INFO") for name in sorted([*names, ROOT])}


def change_levels(changes: tuple[tuple[str, int, str | None], ...], *, validate_only: bool) -> None:
    """Applies changes (logger, operation, level): all of them, or raises Refusal."""
    known = levels()
    for name, operation, level in changes:
        _check(name, operation, level, known)
    for name, operation, level in () if validate_only else changes:
        _logger(name).setLevel(LEVELS[level] if operation == Operation.SET and level else logging.NOTSET)


def _check(name: str, operation: int, level: str | None, known: dict[str, str]) -> None:
    if operation not in (Operation.SET, Operation.DELETE):
        try:
            sentence = f"{Operation(operation).name} operation is not allowed for the BROKER_LOGGER resource"
        except ValueError:
            sentence = f"Unknown operations type {operation}"
        raise Refusal(ErrorCode.INVALID_REQUEST, sentence)
    if name not in known:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == Operation.SET and level not in LEVELS:
        sentence = f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{sentence}Valid log levels are {', '.join(sorted(LEVELS))}")
    if operation == Operation.DELETE and name == ROOT:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
