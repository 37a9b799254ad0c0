"""What a setting asks for and this version does not do; shared by brokers, which have gaps, and clients, which ask."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

GAPS_SETTING: Final = "penstock.settings.gaps"
"""The name under which a broker reports its gaps to clients that request it with DescribeConfigs."""


@dataclass(frozen=True, slots=True)
class SettingGap:
    """A setting that has no effect, or not all of its effect, unless its value asks for nothing that is missing."""

    why: str
    """What is true instead: a clause without a full stop."""
    served: tuple[str, ...] = ()
    """Values, or words of a list, for which nothing is missing: the version behaves like that anyway."""
    is_partial: bool = False
    """Whether the setting has an effect otherwise."""

    def concerns(self, text: str) -> bool:
        """Whether something is missing for this value. An empty value asks for nothing."""
        words = [word.strip().lower() for word in text.split(",")]
        return any(word and word not in map(str.lower, self.served) for word in words)

    def sentence(self, name: str) -> str:
        """What a user is told about a setting with this gap, without a full stop."""
        effect = "only a part of its effect" if self.is_partial else "no effect"
        return f"{name} has {effect} in this version: {self.why}"

    def __str__(self) -> str:
        return f"{'in part' if self.is_partial else 'no'}: {self.why}"


def gaps_to_json(gaps: Mapping[str, SettingGap]) -> str:
    """The gaps by setting, as a broker reports them."""
    return json.dumps({name: asdict(gap) for name, gap in gaps.items()})


def gaps_from_json(text: str) -> dict[str, SettingGap]:
    """The gaps that a broker of this version, or of a later one with more fields, has reported."""
    told: dict[str, dict[str, Any]] = json.loads(text)
    return {
        name: SettingGap(str(gap["why"]), tuple(gap["served"]), bool(gap["is_partial"])) for name, gap in told.items()
    }
