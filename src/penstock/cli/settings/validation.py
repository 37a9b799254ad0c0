"""The validation of a broker's settings, the same for `penstock server`, `penstock config check`, `penstock doctor`.

A setting that does not do what it says is in one of three groups: mistakes; what must not be ignored and is not there
yet; what is accepted and has no effect. A node starts only if the first two are empty.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.cli.errors import Failed
from penstock.cli.settings.contradictions import contradictions
from penstock.cli.settings.listeners import NotServed, controller_names, not_served, parse_listeners, protocols_of
from penstock.cli.settings.startup import FILE_ONLY, Plan, plan_of
from penstock.metadata.settings.broker import BROKER_SETTINGS
from penstock.metadata.settings.checks import check_broker_file
from penstock.metadata.settings.effects import listed, without_effect
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.settings.refusals import refusals
from penstock.model.loopback import beyond_loopback, is_loopback
from penstock.model.setting_gap import SettingGap


@dataclass(frozen=True, slots=True)
class Validation:
    """The result, in sentences for the operator."""

    errors: tuple[str, ...] = ()
    """Typos, values out of bounds, contradictions."""
    refusals: tuple[str, ...] = ()
    """Settings with which this version does not start, and what to do."""
    without_effect: Mapping[str, SettingGap] = field(default_factory=dict)
    """Settings that are accepted and change nothing, or less than they say."""

    @property
    def is_usable(self) -> bool:
        """Whether a node starts with these settings."""
        return not self.errors and not self.refusals

    @property
    def listed(self) -> str:
        """The settings without effect in one line."""
        return listed(self.without_effect)


def validate(settings: Mapping[str, str], *, allows_plaintext: bool = False) -> Validation:
    """Validates what an operator has given. `allows_plaintext`: beyond loopback, whatever the settings say."""
    layers = BrokerSettings(settings)

    def number(name: str) -> int | None:
        value = layers.value(name) if name in BROKER_SETTINGS else None
        return value if isinstance(value, int) else None

    errors = [*check_broker_file(settings), *contradictions(settings, number)]
    refused = refusals(settings)
    sentences = dict.fromkeys(refused.values())
    if not errors:
        sentences |= dict.fromkeys(_unserved_listeners(settings))
        try:
            plan = plan_of(settings, allows_plaintext=allows_plaintext)
            sentences |= dict.fromkeys(_open_listeners(plan))
        except NotServed as refusal:
            if not sentences:  # else it repeats one of them: a plan ends at the first
                sentences[str(refusal)] = None
        except Failed as error:
            errors.append(str(error))
    named = {*refused, *FILE_ONLY, *(word.strip(":;,.[]") for error in errors for word in error.split())}
    given = {name: text for name, text in settings.items() if name not in named}
    return Validation(tuple(errors), tuple(sentences), without_effect(given, BROKER_SETTINGS))


def _unserved_listeners(settings: Mapping[str, str]) -> Iterator[str]:
    """Refuses every listener that is not plaintext: this node's, and the controllers' that it connects to."""
    protocols = protocols_of(settings)
    used = [each.name for each in parse_listeners(settings.get("listeners", ""), protocols)]
    for name in dict.fromkeys((*used, *controller_names(settings))):
        if protocols.get(name, "PLAINTEXT") != "PLAINTEXT":
            yield not_served(name, protocols[name])


def _open_listeners(plan: Plan) -> Iterator[str]:
    """Refuses what `check_listeners` of a node refuses."""
    listeners = [*plan.listeners]
    if plan.role.listener is not None:
        listeners.append(plan.role.listener)
    places = [(each.name, each.host, each.port) for each in listeners]
    if plan.metrics is not None:
        places.append(("of the metrics", plan.metrics.host, plan.metrics.port))
    for name, host, port in places:
        if not plan.allows_plaintext and not is_loopback(host):
            yield beyond_loopback(name, host, port).rstrip(".")
