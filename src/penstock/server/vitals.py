"""What a node tells of itself beside its settings: what time it is there, and what it has complained of lately.

DescribeConfigs tells these of a broker to a client that asks for them by name, as `penstock doctor` does; who asks for
everything, as consoles do, sees the settings of Kafka and nothing else.
"""

import json
from collections.abc import Iterable

from penstock.metadata.settings.describe import Row
from penstock.metadata.settings.setting import Kind, Source
from penstock.server.complaints import Complaints

CLOCK = "penstock.clock.ms"
COMPLAINTS = "penstock.complaints"


def vitals(names: Iterable[str], now_ms: int, complaints: Complaints) -> list[Row]:
    """Those that are asked for, as settings that nobody can change."""
    rows = []
    for name in names:
        if name == CLOCK:
            rows.append(_row(CLOCK, str(now_ms), Kind.LONG, "The broker's clock: milliseconds since 1970."))
        elif name == COMPLAINTS:
            said = json.dumps([each._asdict() for each in complaints.remembered()])
            rows.append(_row(COMPLAINTS, said, Kind.STRING, "What the broker has refused lately, and why: JSON."))
    return rows


def _row(name: str, value: str, kind: Kind, documentation: str) -> Row:
    return Row(name, value, Source.DEFAULT, kind, False, True, (), documentation)
