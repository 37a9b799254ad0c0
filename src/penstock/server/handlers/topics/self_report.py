"""Values that a node reports beside its settings: its clock, its recent warnings, and settings without effect.

DescribeConfigs returns them for a broker to a client that requests them by name, as `penstock doctor` does; a request
for all settings, as consoles send it, returns the settings of Kafka and nothing else. Settings without effect are those
of the version, so any broker reports them for all brokers, too.
"""

import json
from collections.abc import Iterable

from penstock.metadata.settings.describe import Row
from penstock.metadata.settings.effects import GAPS
from penstock.metadata.settings.setting import Kind, Source
from penstock.model.setting_gap import GAPS_SETTING, gaps_to_json
from penstock.server.connections.client_warnings import ClientWarnings

CLOCK = "penstock.clock.ms"
COMPLAINTS = "penstock.complaints"


def self_report_rows(names: Iterable[str], now_ms: int, client_warnings: ClientWarnings) -> list[Row]:
    """The requested values, as read-only settings."""
    rows = []
    for name in names:
        if name == CLOCK:
            rows.append(_row(CLOCK, str(now_ms), Kind.LONG, "The broker's clock: milliseconds since 1970."))
        elif name == COMPLAINTS:
            said = json.dumps([each._asdict() for each in client_warnings.remembered()])
            rows.append(_row(COMPLAINTS, said, Kind.STRING, "What the broker has refused lately, and why: JSON."))
    return [*rows, *version_report_rows(names)]


def version_report_rows(names: Iterable[str]) -> list[Row]:
    """The requested values that do not depend on the broker."""
    if GAPS_SETTING not in names:
        return []
    return [_row(GAPS_SETTING, gaps_to_json(GAPS), Kind.STRING, "Settings without effect, and what is true: JSON.")]


def _row(name: str, value: str, kind: Kind, documentation: str) -> Row:
    return Row(name, value, Source.DEFAULT, kind, False, True, (), documentation)
