"""Settings of a broker's file that must not be ignored: a node does not start with them until their feature exists.

Without them in force a node would be open where its operator believes it closed, or fill a disk that should be
relieved. Other settings without effect do no such harm (`effects`).
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.metadata.settings.broker import BROKER_SETTINGS
from penstock.metadata.settings.setting import InvalidSetting

_TRUSTED: Final = "keep the listeners on a network that you trust"


class _Rule(NamedTuple):
    """Settings whose names match, and the sentence for one of them; `refuses` limits the rule to some values."""

    names: re.Pattern[str]
    sentence: str
    refuses: Callable[[str], bool] = bool


_LISTENER: Final = r"(listener\.name\.[^.]+\.([^.]+\.)?)?"
_RULES: Final = (
    _Rule(
        re.compile(r"authorizer\.class\.name"),
        "{name} asks for access control, which is not there yet, so everybody who connects could read and write "
        f"everything: remove it, and {_TRUSTED}",
    ),
    _Rule(
        re.compile(r"super\.users"),
        "{name} names administrators, and without access control, which is not there yet, everybody is one: remove it, "
        f"and {_TRUSTED}",
    ),
    _Rule(
        re.compile(_LISTENER + r"sasl\..+"),
        "{name} asks for logins, which are not there yet, so everybody could connect: remove it, and " + _TRUSTED,
    ),
    _Rule(
        re.compile(_LISTENER + r"ssl\..+"),
        "{name} asks for TLS, which is not there yet, so everything would travel unencrypted: remove it, and "
        + _TRUSTED,
    ),
    _Rule(
        re.compile(r"security\.inter\.broker\.protocol"),
        "{name} is not PLAINTEXT, and brokers speak nothing else to each other yet: remove it, and " + _TRUSTED,
    ),
    _Rule(
        re.compile(r"remote\.log\.storage\.system\.enable"),
        "{name} asks for tiered storage, which is not there yet, so everything would stay on local disks: set it to "
        "false, and size the disks for the whole retention",
    ),
    _Rule(
        re.compile(r"log\.cleanup\.policy"),
        "{name} asks for compaction of every topic, which is not there yet, so nothing would ever be compacted: set it "
        "to delete; a single topic may have cleanup.policy=compact and keeps every record",
        lambda text: "compact" in re.split(r"\s*,\s*", text),
    ),
)


def refusals(given: Mapping[str, str]) -> dict[str, str]:
    """The settings with which a node must not start, each with a sentence that says what to do."""
    return {
        name: rule.sentence.format(name=name)
        for name, text in sorted(given.items())
        for rule in _RULES
        if rule.names.fullmatch(name) and rule.refuses(text.strip()) and not _is_default(name, text)
    }


def _is_default(name: str, text: str) -> bool:
    setting = BROKER_SETTINGS.get(name)
    try:
        return setting is not None and setting.parse(text) == setting.parse(setting.default)
    except InvalidSetting:
        return False
