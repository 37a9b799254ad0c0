"""The log formats of a node: the values of `--log-format`."""

from enum import StrEnum


class LogFormat(StrEnum):
    """A line of text per entry, or a JSON object."""

    TEXT = "text"
    JSON = "json"
