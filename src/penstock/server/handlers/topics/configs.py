"""AlterConfigs, IncrementalAlterConfigs, ListConfigResources: settings of topics, brokers, groups; levels of loggers.

Serves    AlterConfigs 0–2 (replaces all settings), IncrementalAlterConfigs 0–1 (changes the named ones),
          ListConfigResources 0–1.
Answers   once a change is durable and in force on this node; error codes and messages are the controller's.
          UNSUPPORTED_VERSION for a resource type that cannot be listed.
Departs   from Kafka 4.3: client metrics cannot be set, and none are listed; an unknown operation on a logger is
          INVALID_REQUEST. A resource that is named several times is refused once, with INVALID_REQUEST, and so is one
          with more than 1,000 settings (SETTINGS_MAX). A large request is decided in pieces of whole resources.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from penstock.metadata.commands import (
    AlterConfigs,
    AlteredConfigs,
    ConfigChanges,
    IncrementalAlterConfigs,
    NewConfigs,
    Refusal,
)
from penstock.metadata.configs import check_broker_name
from penstock.metadata.image import BROKER, GROUP, TOPIC, Image
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.shard import Command
from penstock.server.connections.serving import Call, serves
from penstock.server.controller.controller_channel import ControllerChannel
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.handlers.topics.log_levels import change_levels
from penstock.server.loop.pieces import PIECE_ELEMENTS, Turns, by_name, cut_by_weight
from penstock.wire.declare import Request
from penstock.wire.messages import alter_configs as replacing
from penstock.wire.messages import incremental_alter_configs as changing
from penstock.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

R = TypeVar("R", replacing.AlterConfigsResource, changing.AlterConfigsResource)
C = TypeVar("C", NewConfigs, ConfigChanges)

BROKER_LOGGER = 8
CLIENT_METRICS = 16
SETTINGS_MAX: Final = 1_000
"""Settings of one resource in a request."""
RESOURCE_ELEMENTS: Final = 6
"""Elements of `pieces` that a resource counts as, besides its settings."""
LISTED = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


class ConfigsHandler:
    """Changes and lists settings of resources, and changes levels of loggers."""

    def __init__(self, controller: ControllerRunner, channel: ControllerChannel | None) -> None:
        """`channel` leads to the active controller; None on controller listeners, which forward nothing."""
        self._controller = controller
        self._channel = channel

    @serves(replacing.AlterConfigsRequest)
    async def alter_configs(self, request: replacing.AlterConfigsRequest, call: Call) -> replacing.AlterConfigsResponse:
        """Replaces settings: those that are not named are removed."""
        turns = Turns()
        named = await by_name((((each.resource_type, each.resource_name), each) for each in request.resources), turns)
        altered = await self._alter(
            call,
            named,
            turns,
            make=lambda each: NewConfigs(
                each.resource_type, each.resource_name, tuple((c.name, c.value) for c in each.configs)
            ),
            command=lambda part, asked_at: AlterConfigs(part, asked_at, request.validate_only),
            request=lambda part: replacing.AlterConfigsRequest(resources=part, validate_only=request.validate_only),
        )
        return replacing.AlterConfigsResponse(
            throttle_time_ms=0,
            responses=[
                replacing.AlterConfigsResourceResponse(
                    error_code=each.code, error_message=each.message, resource_type=each.kind, resource_name=each.name
                )
                async for each in turns.through(altered)
            ],
        )

    @serves(changing.IncrementalAlterConfigsRequest)
    async def incremental_alter_configs(
        self, request: changing.IncrementalAlterConfigsRequest, call: Call
    ) -> changing.IncrementalAlterConfigsResponse:
        """Changes settings: those that are not named stay."""
        turns = Turns()
        named = await by_name((((each.resource_type, each.resource_name), each) for each in request.resources), turns)
        kept = {key: found for key, found in named.items() if key[0] != BROKER_LOGGER}
        by_controller = iter(
            await self._alter(
                call,
                kept,
                turns,
                make=_changes,
                command=lambda part, asked_at: IncrementalAlterConfigs(part, asked_at, request.validate_only),
                request=lambda part: changing.IncrementalAlterConfigsRequest(
                    resources=part, validate_only=request.validate_only
                ),
            )
        )
        node_id = self._controller.node_id
        altered = []
        for (kind, name), found in named.items():
            if kind == BROKER_LOGGER and len(found[0].configs) > SETTINGS_MAX:
                message = too_many_settings(len(found[0].configs))
                altered.append(AlteredConfigs(kind, name, ErrorCode.INVALID_REQUEST, message))
            elif kind == BROKER_LOGGER:
                change = _changes(found[0])
                altered.append(_change_loggers(change, len(found), node_id, validate_only=request.validate_only))
                await turns.after(len(change.changes))
            else:
                altered.append(next(by_controller))
            await turns.after()
        return changing.IncrementalAlterConfigsResponse(
            throttle_time_ms=0,
            responses=[
                changing.AlterConfigsResourceResponse(
                    error_code=each.code, error_message=each.message, resource_type=each.kind, resource_name=each.name
                )
                async for each in turns.through(altered)
            ],
        )

    @serves(ListConfigResourcesRequest)
    async def list_config_resources(
        self, request: ListConfigResourcesRequest, call: Call
    ) -> ListConfigResourcesResponse:
        """Lists resources; version 0 has client metrics only."""
        if any(kind not in LISTED for kind in request.resource_types):
            return ListConfigResourcesResponse(
                throttle_time_ms=0, error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=()
            )
        kinds = (CLIENT_METRICS,) if call.version == 0 else dict.fromkeys(request.resource_types or LISTED)
        turns = Turns()
        return ListConfigResourcesResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            config_resources=[
                ConfigResource(resource_name=name, resource_type=kind)
                for kind in kinds
                async for name in turns.through(_named(self._controller.image, kind))
            ],
        )

    async def _alter(
        self,
        call: Call,
        named: Mapping[tuple[int, str], Sequence[R]],
        turns: Turns,
        *,
        make: Callable[[R], C],
        command: Callable[[tuple[C, ...], int | None], Command[tuple[AlteredConfigs, ...]]],
        request: Callable[[Sequence[R]], Request],
    ) -> Sequence[AlteredConfigs]:
        """Has the active controller, here or elsewhere, change settings in pieces; one result per resource.

        Settings of a broker are changed only through that broker.
        """
        elsewhere = None if self._controller.is_active else self._channel
        altered: dict[tuple[int, str], AlteredConfigs] = {}
        wanted: list[R] = []
        async for (kind, name), found in turns.through(named.items()):
            try:
                if len(found) > 1:
                    raise Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                if len(found[0].configs) > SETTINGS_MAX:
                    raise Refusal(ErrorCode.INVALID_REQUEST, too_many_settings(len(found[0].configs)))
                if elsewhere is not None and kind == BROKER and name:
                    check_broker_name(name, self._controller.node_id)
                wanted.append(found[0])
            except Refusal as refusal:
                altered[kind, name] = AlteredConfigs(kind, name, refusal.code, refusal.message)
        parts = await cut_by_weight(wanted, lambda each: RESOURCE_ELEMENTS + len(each.configs), turns)
        try:
            if elsewhere is None:
                asked_at = None if self._channel is None else self._controller.node_id
                commands = [
                    command(tuple(make(each) for each in part), asked_at)
                    async for part in turns.through(parts, PIECE_ELEMENTS)
                ]
                replies = await self._controller.ask_in_turn(commands)
            else:
                replies = [await _pass_on(elsewhere, call, request(part)) for part in parts]
        except ProtocolError as error:
            replies = [error] * len(parts)
        for part, reply in zip(parts, replies, strict=True):
            if isinstance(reply, ProtocolError):
                code, why = reply.code, str(reply)
                altered |= {(e.resource_type, e.resource_name): _failed(e, code, why) for e in part}
            else:
                altered |= {(each.kind, each.name): each for each in reply}
            await turns.after(len(part))
        return [altered[key] for key in named]


def too_many_settings(count: int) -> str:
    """The message for too many settings."""
    return f"{count} settings of one resource in a request, at most {SETTINGS_MAX} are allowed."


def _changes(resource: changing.AlterConfigsResource) -> ConfigChanges:
    return ConfigChanges(
        resource.resource_type,
        resource.resource_name,
        tuple((config.name, config.config_operation, config.value) for config in resource.configs),
    )


def _failed(
    resource: replacing.AlterConfigsResource | changing.AlterConfigsResource, code: ErrorCode, why: str
) -> AlteredConfigs:
    return AlteredConfigs(resource.resource_type, resource.resource_name, code, why)


async def _pass_on(channel: ControllerChannel, call: Call, request: Request) -> tuple[AlteredConfigs, ...]:
    response = cast("Any", await channel.forward_envelope(request, call))
    return tuple(
        AlteredConfigs(each.resource_type, each.resource_name, each.error_code, each.error_message)
        for each in response.responses
    )


def _change_loggers(resource: ConfigChanges, times: int, node_id: int, *, validate_only: bool) -> AlteredConfigs:
    """Changes levels of loggers, which belong to this process and are not persisted."""
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


def _named(image: Image, kind: int) -> list[str]:
    if kind == TOPIC:
        return sorted(image.topics)
    if kind in (BROKER, BROKER_LOGGER):
        return [str(number) for number in sorted(image.brokers)]
    return sorted(resource.name for resource in image.configs if resource.kind == kind)
