"""AlterConfigs, IncrementalAlterConfigs, ListConfigResources: settings of topics, brokers, groups; levels of loggers.

Serves    AlterConfigs 0–2 (replaces), IncrementalAlterConfigs 0–1 (changes), ListConfigResources 0–1.
Answers   once a change is durable and in force here; codes and sentences are the controller's. UNSUPPORTED_VERSION for
          a type of resource that cannot be listed.
Departs   from Kafka 4.3: there are no client metrics to subscribe to, so none can be set and none are listed; an
          unknown operation on a logger is INVALID_REQUEST.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, TypeVar, cast

from penstock.metadata.commands import (
    AlterConfigs,
    AlteredConfigs,
    ConfigChanges,
    IncrementalAlterConfigs,
    NewConfigs,
    Refusal,
)
from penstock.metadata.configs import check_broker_name
from penstock.metadata.image import BROKER, GROUP, TOPIC
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.shard import Command
from penstock.server.controller_channel import ControllerChannel
from penstock.server.handlers.needs import Needs, node_of
from penstock.server.log_levels import change_levels
from penstock.server.serving import Call, serves
from penstock.wire.api import Api
from penstock.wire.declare import Request
from penstock.wire.messages import alter_configs as replacing
from penstock.wire.messages import incremental_alter_configs as changing
from penstock.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

R = TypeVar("R", NewConfigs, ConfigChanges)

BROKER_LOGGER = 8
CLIENT_METRICS = 16
LISTED = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


@serves(replacing.AlterConfigsRequest)
async def alter_configs(request: replacing.AlterConfigsRequest, call: Call) -> replacing.AlterConfigsResponse:
    """What is not named is taken away."""
    resources = tuple(
        NewConfigs(each.resource_type, each.resource_name, tuple((c.name, c.value) for c in each.configs))
        for each in request.resources
    )
    altered = await _ask(
        call,
        resources,
        lambda kept, asked_at: AlterConfigs(kept, asked_at, request.validate_only),
        lambda names: replacing.AlterConfigsRequest(
            resources=[each for each in request.resources if (each.resource_type, each.resource_name) in names],
            validate_only=request.validate_only,
        ),
    )
    return replacing.AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            replacing.AlterConfigsResourceResponse(
                error_code=each.code, error_message=each.message, resource_type=each.kind, resource_name=each.name
            )
            for each in altered
        ],
    )


@serves(changing.IncrementalAlterConfigsRequest)
async def incremental_alter_configs(
    request: changing.IncrementalAlterConfigsRequest, call: Call
) -> changing.IncrementalAlterConfigsResponse:
    """What is not named stays."""
    node = node_of(call)
    resources = [
        ConfigChanges(
            each.resource_type,
            each.resource_name,
            tuple((config.name, config.config_operation, config.value) for config in each.configs),
        )
        for each in request.resources
    ]
    kept = tuple(each for each in resources if each.kind != BROKER_LOGGER)
    by_controller = iter(
        await _ask(
            call,
            kept,
            lambda passed, asked_at: IncrementalAlterConfigs(passed, asked_at, request.validate_only),
            lambda names: changing.IncrementalAlterConfigsRequest(
                resources=[each for each in request.resources if (each.resource_type, each.resource_name) in names],
                validate_only=request.validate_only,
            ),
        )
    )
    altered = [
        _change_loggers(each, resources.count(each), node.controller.node_id, validate_only=request.validate_only)
        if each.kind == BROKER_LOGGER
        else next(by_controller)
        for each in resources
    ]
    return changing.IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            changing.AlterConfigsResourceResponse(
                error_code=each.code, error_message=each.message, resource_type=each.kind, resource_name=each.name
            )
            for each in altered
        ],
    )


async def _ask(
    call: Call,
    resources: tuple[R, ...],
    command: Callable[[tuple[R, ...], int | None], Command[tuple[AlteredConfigs, ...]]],
    request: Callable[[Container[tuple[int, str]]], Request],
) -> Sequence[AlteredConfigs]:
    """Has the active controller change settings, here or elsewhere; settings of a broker only where that broker is."""
    if not resources:
        return ()
    node = node_of(call)
    is_at_controller = Api.ENVELOPE in call.client.routes
    try:
        if is_at_controller or node.controller.is_active:
            return await node.controller.ask(command(resources, None if is_at_controller else node.controller.node_id))
        return await _pass_on(node.channel, call, node.controller.node_id, resources, request)
    except ProtocolError as error:
        return [AlteredConfigs(each.kind, each.name, error.code, str(error)) for each in resources]


async def _pass_on(
    channel: ControllerChannel,
    call: Call,
    node_id: int,
    resources: tuple[R, ...],
    request: Callable[[Container[tuple[int, str]]], Request],
) -> Sequence[AlteredConfigs]:
    refused: dict[tuple[int, str], AlteredConfigs] = {}
    for each in resources:
        try:
            if each.kind == BROKER and each.name:
                check_broker_name(each.name, node_id)
        except Refusal as refusal:
            refused[each.kind, each.name] = AlteredConfigs(each.kind, each.name, refusal.code, refusal.message)
    passed = [(each.kind, each.name) for each in resources if (each.kind, each.name) not in refused]
    answers: Iterator[Any] = iter(())
    if passed:
        answers = iter(cast("Any", await channel.forward_envelope(request(passed), call)).responses)
    altered = []
    for each in resources:
        if (found := refused.get((each.kind, each.name))) is None:
            answer = next(answers)
            found = AlteredConfigs(each.kind, each.name, answer.error_code, answer.error_message)
        altered.append(found)
    return altered


def _change_loggers(resource: ConfigChanges, times: int, node_id: int, *, validate_only: bool) -> AlteredConfigs:
    """Loggers are this process's own affair: no record is kept of their levels."""
    name = resource.name
    try:
        if times > 1:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        if not name.removeprefix("-").isdecimal():
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        if int(name) != node_id:
            sentence = f"Unexpected node id. Expected {node_id}, but received {name}"
            raise Refusal(ErrorCode.INVALID_REQUEST, sentence)
        change_levels(resource.changes, validate_only=validate_only)
    except Refusal as refusal:
        return AlteredConfigs(resource.kind, name, refusal.code, refusal.message)
    return AlteredConfigs(resource.kind, name)


@serves(ListConfigResourcesRequest)
async def list_config_resources(request: ListConfigResourcesRequest, call: Call) -> ListConfigResourcesResponse:
    """Version 0 knows client metrics only."""
    if any(kind not in LISTED for kind in request.resource_types):
        return ListConfigResourcesResponse(
            throttle_time_ms=0, error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=()
        )
    kinds = (CLIENT_METRICS,) if call.version == 0 else dict.fromkeys(request.resource_types or LISTED)
    node = node_of(call)
    return ListConfigResourcesResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind) for kind in kinds for name in _named(node, kind)
        ],
    )


def _named(node: Needs, kind: int) -> list[str]:
    image = node.controller.image
    if kind == TOPIC:
        return sorted(image.topics)
    if kind in (BROKER, BROKER_LOGGER):
        return [str(number) for number in sorted(image.brokers)]
    return sorted(resource.name for resource in image.configs if resource.kind == kind)
