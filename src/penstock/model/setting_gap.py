"""What a setting asks for and this version does not do; shared by brokers, which have gaps, and clients, which ask."""

from dataclasses import dataclass


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
