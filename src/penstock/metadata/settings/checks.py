"""Checks of a set of settings as a whole: known names, allowed values, and values that agree with each other.

Messages are Kafka's, with one addition: for an unknown name that resembles a known one, the known one is suggested.
"""

import difflib
from collections.abc import Iterable, Mapping

from penstock.metadata.settings.broker import BROKER_SETTINGS
from penstock.metadata.settings.group import GROUP_SETTINGS
from penstock.metadata.settings.setting import InvalidSetting, Setting, Update, Value
from penstock.metadata.settings.topic import TOPIC_SETTINGS
from penstock.model.errors import ErrorCode


class UnchangeableSetting(InvalidSetting):
    """A broker setting that cannot change this way while the broker runs."""

    code = ErrorCode.INVALID_REQUEST


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint to append to a message: the most similar known name, or nothing."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.8)
    return f"; did you mean {found[0]}?" if found else ""


def validate(name: str, text: str, settings: Mapping[str, Setting] = TOPIC_SETTINGS, family: str = "topic") -> Value:
    """The value of one named setting; raises InvalidSetting with a message for the user."""
    setting = settings.get(name)
    if setting is None:
        raise InvalidSetting(f"Unknown {family} config name: {name}{nearest(name, settings)}")
    return setting.parse(text)


def _parsed(
    given: Mapping[str, str], settings: Mapping[str, Setting], family: str, defaults: Mapping[str, Value]
) -> dict[str, Value]:
    for name in given:  # names first: a wrong name explains more than a wrong value
        if name not in settings:
            raise InvalidSetting(f"Unknown {family} config name: {name}{nearest(name, settings)}")
    return {**defaults, **{name: settings[name].parse(text) for name, text in given.items()}}


def _number(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value


def check_topic(
    overrides: Mapping[str, str], defaults: Mapping[str, Value], *, has_remote_storage: bool = False
) -> dict[str, Value]:
    """All values of a topic with these overrides; raises InvalidSetting."""
    values = _parsed(overrides, TOPIC_SETTINGS, "topic", defaults)
    lag_min, lag_max = _number(values, "min.compaction.lag.ms"), _number(values, "max.compaction.lag.ms")
    if lag_min > lag_max:
        raise InvalidSetting(
            f"conflict topic config setting min.compaction.lag.ms ({lag_min}) > max.compaction.lag.ms ({lag_max})"
        )
    if values["remote.storage.enable"] is True:
        if not has_remote_storage:
            raise InvalidSetting(
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            )
        policy = values["cleanup.policy"]
        if isinstance(policy, tuple) and "compact" in policy:
            raise InvalidSetting("Remote log storage is unsupported for the compacted topics")
        for unit in ("bytes", "ms"):
            _check_local_retention(values, unit)
    return values


def _check_local_retention(values: Mapping[str, Value], unit: str) -> None:
    """Checks that local retention is at most the total retention."""
    whole, local = _number(values, f"retention.{unit}"), _number(values, f"local.retention.{unit}")
    name = f"local.retention.{unit}"
    if whole > -1 and local == -1:
        raise InvalidSetting.value(name, local, f"Value must not be -1 as retention.{unit} value is set as {whole}.")
    if -1 < whole < local:
        raise InvalidSetting.value(name, local, f"Value must not be more than retention.{unit} property value: {whole}")


def check_group(
    overrides: Mapping[str, str], defaults: Mapping[str, Value], broker: Mapping[str, Value]
) -> dict[str, Value]:
    """All values of a group with these overrides, within the bounds that the broker sets; raises InvalidSetting."""
    values = _parsed(overrides, GROUP_SETTINGS, "group", defaults)
    for name in GROUP_SETTINGS:
        kind, _, rest = name.partition(".")
        least = f"group.{kind}.min.{rest}"
        most = f"group.{kind}.max.{rest.removeprefix('num.')}"
        if least in broker and _number(values, name) < _number(broker, least):
            raise InvalidSetting(f"{name} must be greater than or equal to {least}")
        if most in broker and _number(values, name) > _number(broker, most):
            raise InvalidSetting(f"{name} must be less than or equal to {most}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if _number(values, session) <= _number(values, heartbeat):
            raise InvalidSetting(f"{session} must be greater than {heartbeat}")
    return values


def check_dynamic_broker(changed: Mapping[str, str], *, is_per_broker: bool) -> None:
    """Raises UnchangeableSetting for changes that a running broker cannot apply. Unknown names (plug-ins) pass."""
    _refuse(
        "Cannot update these configs dynamically",
        [name for name in changed if _update_of(name) is Update.READ_ONLY],
    )
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        [name for name in changed if name.startswith("ssl.") and name in BROKER_SETTINGS],
    )
    for name, text in changed.items():
        setting = BROKER_SETTINGS.get(_base_name(name))
        if setting is not None:
            try:
                setting.parse(text)
            except InvalidSetting as complaint:
                raise UnchangeableSetting(str(complaint)) from None
    if not is_per_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            [name for name in changed if _update_of(_base_name(name)) is Update.PER_BROKER],
        )


def _refuse(why: str, names: list[str]) -> None:
    if names:
        raise UnchangeableSetting(f"{why}: [{', '.join(names)}]")


def _update_of(name: str) -> Update | None:
    setting = BROKER_SETTINGS.get(name)
    return None if setting is None else setting.update


def _base_name(name: str) -> str:
    """The name that `listener.name.<listener>.<name>` overrides for one listener."""
    return name.split(".", 3)[3] if name.startswith("listener.name.") and name.count(".") > 2 else name


def check_broker_file(static: Mapping[str, str]) -> list[str]:
    """All errors in a broker's file. An unknown name is an error only if it resembles a known one."""
    complaints = []
    for name, text in static.items():
        setting = BROKER_SETTINGS.get(_base_name(name))
        try:
            if setting is not None:
                setting.parse(text)
            elif hint := nearest(name, BROKER_SETTINGS):
                complaints.append(f"Unknown broker config name: {name}{hint}")
        except InvalidSetting as complaint:
            complaints.append(str(complaint))
    return complaints
