"""DescribeConfigs: settings of topics, brokers and groups with their sources, and levels of loggers.

Serves    DescribeConfigs 1–4, with synonyms and documentation on request.
Answers   this broker's settings under its id, the dynamic defaults of all brokers under an empty name. INVALID_REQUEST
          for another broker's id; also for all resources of a request if one of them is of an unknown type.
          The documentation of a setting without effect says so.
Departs   from Kafka 4.3: client metrics are INVALID_REQUEST; settings are sorted by name. `penstock.clock.ms`,
          `penstock.complaints` and `penstock.settings.gaps` of a broker are returned if they are requested by name. A
          resource that is named several times is answered once, with all requested settings. A response holds at most 8
          MiB of settings (CONFIGS_BYTES_MAX); resources that do not fit are POLICY_VIOLATION.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from penstock.metadata.commands import Refusal
from penstock.metadata.image import BROKER, GROUP, TOPIC, Image
from penstock.metadata.names import check_name
from penstock.metadata.settings.describe import Row, describe_broker, describe_cluster, describe_group, describe_topic
from penstock.metadata.settings.effects import GAPS
from penstock.model.errors import ErrorCode
from penstock.model.limits import MIB
from penstock.model.ports import Clock
from penstock.server.connections.client_warnings import ClientWarnings
from penstock.server.connections.serving import Call, serves
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.handlers.topics.configs import BROKER_LOGGER, LISTED
from penstock.server.handlers.topics.log_levels import levels
from penstock.server.handlers.topics.self_report import self_report_rows, version_report_rows
from penstock.server.loop.pieces import TOO_LARGE, Turns
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

LOGGER_SOURCE = 6
CONFIGS_BYTES_MAX: Final = 8 * MIB
"""Size of one response: names, values, synonyms and documentation of settings."""
ROW_BYTES: Final = 16
"""Size of a setting in a response without its strings."""
Asked: TypeAlias = "dict[tuple[int, str], dict[str, None] | None]"
"""Names of settings by resource; None for all."""
MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


class DescribeConfigsHandler:
    """Describes settings of resources and levels of loggers."""

    def __init__(self, controller: ControllerRunner, clock: Clock, client_warnings: ClientWarnings) -> None:
        self._controller = controller
        self._clock = clock
        self._client_warnings = client_warnings

    @serves(DescribeConfigsRequest)
    async def describe_configs(self, request: DescribeConfigsRequest, _call: Call) -> DescribeConfigsResponse:
        """Describes resource by resource."""
        turns = Turns()
        asked = await _asked_once(request.resources, turns)
        if any(kind not in LISTED for kind, _ in asked):
            refused = [
                _failed(kind, name, ErrorCode.INVALID_REQUEST, MALFORMED) async for kind, name in turns.through(asked)
            ]
            return DescribeConfigsResponse(throttle_time_ms=0, results=refused)
        describing = _Describing(self._controller, self._clock, self._client_warnings, request)
        results = []
        for (kind, name), names in asked.items():
            results.append(describing.describe(kind, name, names))
            await turns.after(1 + len(results[-1].configs))
        return DescribeConfigsResponse(throttle_time_ms=0, results=results)


async def _asked_once(resources: Sequence[DescribeConfigsResource], turns: Turns) -> Asked:
    asked: Asked = {}
    async for resource in turns.through(resources):
        key, keys = (resource.resource_type, resource.resource_name), resource.configuration_keys
        known = asked.setdefault(key, {})
        if not keys:
            asked[key] = None
        elif known is not None:
            known.update(dict.fromkeys(keys))
    return asked


class _Describing:
    """Describes the resources of one response. Topics with equal overrides share one description."""

    def __init__(
        self,
        controller: ControllerRunner,
        clock: Clock,
        client_warnings: ClientWarnings,
        request: DescribeConfigsRequest,
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._client_warnings = client_warnings
        self._synonyms = request.include_synonyms
        self._documentation = request.include_documentation
        self._left_bytes = CONFIGS_BYTES_MAX
        self._shared: dict[tuple[object, ...], tuple[Sequence[DescribeConfigsResourceResult], int]] = {}

    def describe(self, kind: int, name: str, names: Sequence[str] | dict[str, None] | None) -> DescribeConfigsResult:
        try:
            configs, size_bytes = self._configs(kind, name, None if names is None else tuple(names))
        except Refusal as refusal:
            return _failed(kind, name, refusal.code, refusal.message or "")
        if size_bytes > self._left_bytes:
            return _failed(kind, name, ErrorCode.POLICY_VIOLATION, TOO_LARGE)
        self._left_bytes -= size_bytes
        return DescribeConfigsResult(
            error_code=ErrorCode.NONE, error_message="", resource_type=kind, resource_name=name, configs=configs
        )

    def _configs(
        self, kind: int, name: str, names: tuple[str, ...] | None
    ) -> tuple[Sequence[DescribeConfigsResourceResult], int]:
        if kind == BROKER_LOGGER:
            configs = _loggers(self._controller.node_id, name, names)
            return configs, _size_bytes(configs)
        own = self._controller.image.config(kind, name)
        if kind == TOPIC:
            _check_topic(self._controller.image, name)
        elif kind == GROUP and not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        key = kind, name if kind == BROKER else "", names, tuple(sorted(own.items()))
        if key not in self._shared:
            rows = self._rows(kind, name, names)
            told = tuple(_told(row, synonyms=self._synonyms, documentation=self._documentation) for row in rows)
            self._shared[key] = told, _size_bytes(told)
        return self._shared[key]

    def _rows(self, kind: int, name: str, names: Sequence[str] | None) -> Sequence[Row]:
        image, settings = self._controller.image, self._controller.settings
        if kind == TOPIC:
            return describe_topic(image.config(TOPIC, name), settings, names)
        if kind == BROKER:
            if not name:
                return [*describe_cluster(settings, names), *version_report_rows(names or ())]
            _check_number(name, self._controller.node_id, " or empty string,")
            return [
                *describe_broker(settings, names),
                *self_report_rows(names or (), self._clock.wall_ms(), self._client_warnings),
            ]
        if kind == GROUP:
            return describe_group(image.config(GROUP, name), settings, names)
        raise Refusal(ErrorCode.INVALID_REQUEST, "This broker keeps no client metrics")


def _size_bytes(configs: Sequence[DescribeConfigsResourceResult]) -> int:
    size_bytes = 0
    for each in configs:
        size_bytes += ROW_BYTES + len(each.name) + len(each.value or "") + len(each.documentation or "")
        size_bytes += sum(ROW_BYTES + len(other.name) + len(other.value or "") for other in each.synonyms)
    return size_bytes


def _check_topic(image: Image, name: str) -> None:
    check_name(name)
    if name not in image.topics:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)


def _check_number(name: str, node_id: int, or_else: str) -> None:
    if not name.removeprefix("-").isdecimal():
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != node_id:
        sentence = f"Unexpected broker id, expected {node_id}{or_else} but received {name}"
        raise Refusal(ErrorCode.INVALID_REQUEST, sentence)


def _loggers(node_id: int, name: str, names: Sequence[str] | None) -> list[DescribeConfigsResourceResult]:
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    _check_number(name, node_id, "")
    wanted = frozenset(names or ())
    return [
        DescribeConfigsResourceResult(
            name=logger, value=level, read_only=False, config_source=LOGGER_SOURCE, is_sensitive=False, synonyms=()
        )
        for logger, level in levels().items()
        if not wanted or logger in wanted
    ]


def _told(row: Row, *, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=row.name,
        value=row.value,
        read_only=row.read_only,
        config_source=row.source,
        is_sensitive=row.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in (row.synonyms if synonyms else ())
        ],
        config_type=row.kind or 0,
        documentation=_documentation(row) if documentation else None,
    )


def _documentation(row: Row) -> str | None:
    gap = GAPS.get(row.name)
    return row.documentation if gap is None else f"{row.documentation or ''} {gap.sentence(row.name)}.".lstrip()


def _failed(kind: int, name: str, code: ErrorCode, message: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code, error_message=message, resource_type=kind, resource_name=name, configs=()
    )
