"""Rules for topic names."""

import re
from typing import Final

from penstock.metadata.commands import Refusal
from penstock.metadata.draft import unified
from penstock.metadata.image import Image
from penstock.model.errors import ErrorCode

NAME_CHARACTERS_MAX: Final = 249
METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__group_events")
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Refuses an invalid topic name."""
    if why := _trouble(name):
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")


def _trouble(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_CHARACTERS_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def check_new_name(name: str, image: Image) -> None:
    """Refuses the name of an existing topic, and a name that metrics could not distinguish from an existing one."""
    if name in image.topics:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    check_name(name)
    for other in image.unified_names.get(unified(name)) or ():
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
