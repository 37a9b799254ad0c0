"""Every broker setting that is implemented or that clients and consoles read. Names that are not listed are kept."""

from penstock.metadata.settings import (
    broker_cluster,
    broker_groups,
    broker_logs,
    broker_network,
    broker_share_groups,
    broker_transactions,
)
from penstock.metadata.settings.setting import Setting

_FAMILIES = (
    broker_cluster,
    broker_groups,
    broker_logs,
    broker_network,
    broker_share_groups,
    broker_transactions,
)

BROKER_SETTINGS: dict[str, Setting] = {setting.name: setting for family in _FAMILIES for setting in family.SETTINGS}
"""By name."""

SYNONYMS = {
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.hours": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.minutes": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.hours": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
}
"""Names of the same setting in different units, the strongest first; any other name has no synonyms."""
