"""Settings that are valid one by one and contradict each other."""

from collections.abc import Callable, Iterator, Mapping

from penstock.cli.errors import Failed
from penstock.cli.settings.listeners import (
    NotServed,
    client_listeners,
    inter_broker_listener,
    names,
    parse_listeners,
    protocols_of,
)
from penstock.cli.settings.startup import metrics_address, role_of

_NOT_MORE_THAN = (
    ("min.insync.replicas", "default.replication.factor"),
    ("offsets.topic.min.isr", "offsets.topic.replication.factor"),
    ("transaction.state.log.min.isr", "transaction.state.log.replication.factor"),
    ("share.coordinator.state.topic.min.isr", "share.coordinator.state.topic.replication.factor"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("message.max.bytes", "socket.request.max.bytes"),
)
"""The first must not exceed the second, where at least one of them is given."""

_UNITS = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
)
"""The same setting in several units, in order of precedence."""

EVERY_INTERFACE = frozenset(("", "0.0.0.0", "::"))  # noqa: S104 - compared only
"""Hosts to bind to that nobody can connect to."""


def contradictions(settings: Mapping[str, str], number: Callable[[str], int | None]) -> Iterator[str]:
    """A sentence for each contradiction; `number` returns the value in force, which may be the default."""
    for small, large in _NOT_MORE_THAN:
        if small in settings or large in settings:
            less, more = number(small), number(large)
            if less is not None and more is not None and less > more:
                yield f"{small} ({less}) is more than {large} ({more}): lower the one or raise the other"
    for units in _UNITS:
        given = [name for name in units if name in settings]
        if len(given) > 1:
            yield f"{given[0]} and {', '.join(given[1:])} are both set, and only {given[0]} counts: remove the others"
    if "log.dir" in settings and "log.dirs" in settings:
        yield "log.dir and log.dirs are both set, and only log.dirs counts: remove log.dir"
    if "broker.id" in settings and settings["broker.id"] != settings.get("node.id", settings["broker.id"]):
        yield "broker.id and node.id differ: keep node.id alone"
    if "zookeeper.connect" in settings:
        yield "zookeeper.connect is set, and there is no ZooKeeper any more: remove it"
    yield from _about_listeners(settings)
    try:
        metrics_address(settings)
    except Failed as complaint:
        yield str(complaint)


def _about_listeners(settings: Mapping[str, str]) -> Iterator[str]:
    try:
        protocols = protocols_of(settings)
        listeners = parse_listeners(settings.get("listeners", "PLAINTEXT://:9092"), protocols)
        advertised = parse_listeners(settings.get("advertised.listeners", ""), protocols)
    except Failed as complaint:
        yield str(complaint)
        return
    known = [each.name for each in listeners]
    for name in sorted({name for name in known if known.count(name) > 1}):
        yield f"two listeners are named {name}: give each a name of its own"
    places = [(each.host, each.port) for each in listeners if each.port]
    for host, port in sorted({place for place in places if places.count(place) > 1}):
        yield f"two listeners share {host or '*'}:{port}: give each a port of its own"
    controllers = names(settings.get("controller.listener.names"))
    roles = names(settings.get("process.roles"))
    for each in advertised:
        if each.name not in known and each.name not in controllers:
            yield f"advertised.listeners names {each.name}, which listeners does not: add it there, or remove it here"
        if each.host in EVERY_INTERFACE:
            yield f"advertised.listeners tells clients to connect to {each.host or 'no host'}: name one that they reach"
    if not roles or "BROKER" in roles:
        yield from _about_client_listeners(settings)
    if "CONTROLLER" in roles:
        for name in controllers:
            if name not in known:
                yield f"controller.listener.names has {name}, which is none of the listeners {', '.join(known)}"
    if roles == ["BROKER"] and not (
        settings.get("controller.quorum.voters") or settings.get("controller.quorum.bootstrap.servers")
    ):
        yield "process.roles is broker alone, and nothing says where the controllers are: set controller.quorum.voters"


def _about_client_listeners(settings: Mapping[str, str]) -> Iterator[str]:
    try:
        listeners = client_listeners(settings)
        inter_broker_listener(settings, listeners)
    except NotServed:
        return  # not a contradiction: `validate` lists it among the refusals
    except Failed as complaint:
        yield str(complaint)
        return
    for each in listeners:
        if each.is_advertised and each.advertised is None and each.host in EVERY_INTERFACE and _has_others(settings):
            yield (
                f"listener {each.name} is bound to every interface, and nothing says at which address the other nodes "
                f"reach it: add {each.name}://host:{each.port} to advertised.listeners"
            )


def _has_others(settings: Mapping[str, str]) -> bool:
    """Whether the settings name other nodes."""
    try:
        return bool(role_of(settings).quorum)
    except (Failed, ValueError):
        return False
