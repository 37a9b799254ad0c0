"""All errors in a broker's settings, as sentences."""

from collections.abc import Mapping

from penstock.cli.settings.contradictions import contradictions
from penstock.metadata.settings.broker import BROKER_SETTINGS
from penstock.metadata.settings.checks import check_broker_file
from penstock.metadata.settings.layers import BrokerSettings


def setting_errors(settings: Mapping[str, str]) -> list[str]:
    """One sentence per error."""
    layers = BrokerSettings(settings)

    def number(name: str) -> int | None:
        value = layers.value(name) if name in BROKER_SETTINGS else None
        return value if isinstance(value, int) else None

    return [*check_broker_file(settings), *contradictions(settings, number)]
