"""Controller decisions on settings: AlterConfigs, which replaces them, and IncrementalAlterConfigs, which changes them.

Answers   codes and messages are Kafka 4.3's. An error in one resource does not stop the others; the changes of one
          resource are accepted all or none.
Departs   an unknown operation is INVALID_REQUEST for every resource type. Client metrics and loggers are not supported
          as resources.
"""

from collections.abc import Mapping

from penstock.metadata.commands import (
    AlterConfigs,
    AlteredConfigs,
    ConfigChanges,
    IncrementalAlterConfigs,
    NewConfigs,
    Operation,
    Refusal,
)
from penstock.metadata.creation import check_topic_configs
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import BROKER, GROUP, TOPIC
from penstock.metadata.names import check_name
from penstock.metadata.records import ClearElrRecord, ConfigRecord
from penstock.metadata.settings.broker import BROKER_SETTINGS
from penstock.metadata.settings.checks import check_dynamic_broker, check_group
from penstock.metadata.settings.group import GROUP_SETTINGS
from penstock.metadata.settings.setting import InvalidSetting, Kind, Setting
from penstock.metadata.settings.topic import TOPIC_SETTINGS
from penstock.metadata.view import ELR_FEATURE, RECORDS_PER_COMMAND_MAX, TOO_MANY_RECORDS, View, repeated
from penstock.model.errors import ErrorCode
from penstock.model.shard import Decision, answer

REGISTRIES: Mapping[int, Mapping[str, Setting]] = {
    TOPIC: TOPIC_SETTINGS,
    BROKER: BROKER_SETTINGS,
    GROUP: GROUP_SETTINGS,
}

_MIN_ISR = "min.insync.replicas"


def alter_configs(
    command: AlterConfigs | IncrementalAlterConfigs, view: View
) -> Decision[MetadataRecord, tuple[AlteredConfigs, ...]]:
    """Replaces all settings of resources, or changes single ones."""
    seen = repeated((resource.kind, resource.name) for resource in command.resources)
    records: list[MetadataRecord] = []
    results = []
    for resource in command.resources:
        try:
            if seen[resource.kind, resource.name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            made = _alter(resource, view, command.asked_at)
            if len(records) + len(made) > RECORDS_PER_COMMAND_MAX:
                raise Refusal(ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS)
            records += made
            results.append(AlteredConfigs(resource.kind, resource.name))
        except Refusal as refusal:
            results.append(AlteredConfigs(resource.kind, resource.name, refusal.code, refusal.message))
    return answer(() if command.validate_only else tuple(records), tuple(results))


def _alter(resource: NewConfigs | ConfigChanges, view: View, asked_at: int | None) -> list[MetadataRecord]:
    kind, name = resource.kind, resource.name
    named = _checked_keys(resource)
    if kind not in REGISTRIES:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    if kind == BROKER and name:
        check_broker_name(name, asked_at)
    current = view.image.config(kind, name)
    configs = _wanted(resource, current)
    try:
        _check(kind, name, configs, view)
    except InvalidSetting as complaint:
        raise Refusal(complaint.code, str(complaint)) from None
    left_out = [key for key in sorted(current) if key not in configs and key not in named]
    records: list[MetadataRecord] = [
        ConfigRecord(resource_type=kind, resource_name=name, name=key, value=configs.get(key))
        for key in (*named, *left_out)
        # Brokers reload the files that a setting names whenever it is set, even to its old value (KAFKA-14136).
        if configs.get(key) != current.get(key) or (kind == BROKER and key in named)
    ]
    return records + (_cleared(kind, name, view) if configs.get(_MIN_ISR) != current.get(_MIN_ISR) else [])


def _cleared(kind: int, name: str, view: View) -> list[MetadataRecord]:
    """Clears the ELR, which depends on min.insync.replicas: with a lower value more may be committed than it has."""
    is_for_all = kind == BROKER and not name
    has_eligible = view.image.features.get(ELR_FEATURE, 0) >= 1
    if not has_eligible or not (kind == TOPIC or is_for_all):
        return []
    return [ClearElrRecord(topic_name="" if is_for_all else name)]


def _checked_keys(resource: NewConfigs | ConfigChanges) -> list[str]:
    """The names of the given settings; refuses duplicates and missing values."""
    if isinstance(resource, NewConfigs):
        names = [name for name, _ in resource.configs]
        nulls = [name for name, value in resource.configs if value is None]
    else:
        names = [name for name, *_ in resource.changes]
        nulls = [name for name, operation, value in resource.changes if value is None and operation != Operation.DELETE]
    if len(dict.fromkeys(names)) != len(names):
        raise Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    return names


def _wanted(resource: NewConfigs | ConfigChanges, current: Mapping[str, str]) -> dict[str, str]:
    """All settings of the resource after the change."""
    if isinstance(resource, NewConfigs):
        return {name: value for name, value in resource.configs if value is not None}
    configs = dict(current)
    for name, operation, value in resource.changes:
        changed = _changed(resource.kind, name, operation, value or "", current.get(name))
        if changed is None:
            configs.pop(name, None)
        else:
            configs[name] = changed
    return configs


def _check(kind: int, name: str, configs: dict[str, str], view: View) -> None:
    settings = view.settings
    if kind == TOPIC:
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_name(name)
        check_topic_configs(configs, settings)
        if name not in view.image.topics:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif kind == GROUP:
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        defaults = {key: value for key, (value, _) in settings.group_defaults.items()}
        check_group(configs, defaults, {key: settings.value(key) for key in BROKER_SETTINGS})
    else:
        check_dynamic_broker(configs, is_per_broker=bool(name))


def check_broker_name(name: str, asked_at: int | None) -> None:
    """Refuses settings of a broker other than the one that received the request."""
    digits = name.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdecimal()):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if asked_at is not None and int(name) != asked_at:
        message = f"Unexpected broker id, expected {asked_at}, but received {name}"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)


def _changed(kind: int, name: str, operation: int, value: str, current: str | None) -> str | None:
    """The value of a setting after an operation; None removes it."""
    match operation:
        case Operation.SET:
            return value
        case Operation.DELETE:
            return None
        case Operation.APPEND | Operation.SUBTRACT:
            return _changed_list(kind, name, Operation(operation), value, current)
    raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")


def _changed_list(kind: int, name: str, operation: Operation, value: str, current: str | None) -> str:
    setting = REGISTRIES.get(kind, {}).get(name)
    if setting is None or setting.kind is not Kind.LIST:
        message = f"Can't {operation.name} to key {name} because its type is not LIST."
        if kind == BROKER:
            message = f"Config value {operation.name.lower()} is not allowed for config key: {name}"
        raise Refusal(ErrorCode.INVALID_CONFIG, message)
    words = [word for word in ((setting.default if current is None else current) or "").split(",") if word]
    for word in value.split(","):
        if operation is Operation.APPEND and word not in words:
            words.append(word)
        elif operation is Operation.SUBTRACT and word in words:
            words.remove(word)
    return ",".join(words)
