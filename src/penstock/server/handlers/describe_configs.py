"""DescribeConfigs: settings of topics, brokers and groups with their origin, and the levels of loggers.

Serves    DescribeConfigs 1–4, synonyms and documentation on request.
Answers   a broker's own settings under its number, those of all brokers together under an empty name. INVALID_REQUEST
          for another broker's number; for all resources of a request in which one is of an unknown type.
Departs   from Kafka 4.3: client metrics are INVALID_REQUEST; settings come sorted by name. `penstock.clock.ms` and
          `penstock.complaints` of a broker are told when they are asked for by name.
"""

from collections.abc import Sequence

from penstock.metadata.commands import Refusal
from penstock.metadata.image import BROKER, GROUP, TOPIC
from penstock.metadata.names import check_name
from penstock.metadata.settings.describe import Row, describe_broker, describe_cluster, describe_group, describe_topic
from penstock.model.errors import ErrorCode
from penstock.server.handlers.configs import BROKER_LOGGER, LISTED
from penstock.server.handlers.needs import Needs, node_of
from penstock.server.log_levels import levels
from penstock.server.serving import Call, serves
from penstock.server.vitals import vitals
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

LOGGER_SOURCE = 6
MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


@serves(DescribeConfigsRequest)
async def describe_configs(request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    """Resource by resource."""
    if any(resource.resource_type not in LISTED for resource in request.resources):
        refused = [_failed(each, ErrorCode.INVALID_REQUEST, MALFORMED) for each in request.resources]
        return DescribeConfigsResponse(throttle_time_ms=0, results=refused)
    node = node_of(call)
    return DescribeConfigsResponse(
        throttle_time_ms=0, results=[_describe(node, resource, request) for resource in request.resources]
    )


def _describe(node: Needs, resource: DescribeConfigsResource, request: DescribeConfigsRequest) -> DescribeConfigsResult:
    try:
        if resource.resource_type == BROKER_LOGGER:
            configs = _loggers(node, resource)
        else:
            rows = _rows(node, resource)
            configs = [
                _told(row, synonyms=request.include_synonyms, documentation=request.include_documentation)
                for row in rows
            ]
    except Refusal as refusal:
        return _failed(resource, refusal.code, refusal.message or "")
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _rows(node: Needs, resource: DescribeConfigsResource) -> Sequence[Row]:
    controller = node.controller
    image, settings = controller.image, controller.settings
    name, names = resource.resource_name, resource.configuration_keys
    if resource.resource_type == TOPIC:
        check_name(name)
        if name not in image.topics:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        return describe_topic(image.config(TOPIC, name), settings, names)
    if resource.resource_type == BROKER:
        if not name:
            return describe_cluster(settings, names)
        _check_number(name, controller.node_id, " or empty string,")
        return [*describe_broker(settings, names), *vitals(names or (), node.clock.wall_ms(), node.complaints)]
    if resource.resource_type == GROUP:
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(image.config(GROUP, name), settings, names)
    raise Refusal(ErrorCode.INVALID_REQUEST, "This broker keeps no client metrics")


def _check_number(name: str, node_id: int, or_else: str) -> None:
    if not name.removeprefix("-").isdecimal():
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != node_id:
        sentence = f"Unexpected broker id, expected {node_id}{or_else} but received {name}"
        raise Refusal(ErrorCode.INVALID_REQUEST, sentence)


def _loggers(node: Needs, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    if not resource.resource_name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    _check_number(resource.resource_name, node.controller.node_id, "")
    wanted = resource.configuration_keys
    return [
        DescribeConfigsResourceResult(
            name=name, value=level, read_only=False, config_source=LOGGER_SOURCE, is_sensitive=False, synonyms=()
        )
        for name, level in levels().items()
        if not wanted or name in wanted
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
        documentation=row.documentation if documentation else None,
    )


def _failed(resource: DescribeConfigsResource, code: ErrorCode, message: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=(),
    )
