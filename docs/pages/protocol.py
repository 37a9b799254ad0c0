"""Generates docs/protocol.md: every API of Kafka 4.3, its served versions, departures, and reasons for omissions."""

import re
import sys
from collections.abc import Iterator
from inspect import getdoc

from penstock.server.connections.dispatch import Dispatch
from penstock.server.connections.serving import Route
from penstock.server.handlers.cluster.api_versions import ADVERTISED_FROM
from penstock.server.handlers.tables import BROKER_HANDLERS, BROKER_ONLY, CONTROLLER_HANDLERS
from penstock.wire.api import ALSO_ON_CONTROLLERS, CONTROLLER_ONLY, Api, request_class

TRANSACTIONS = "there are no transactions yet"
LOGINS = "there are no logins and no access control yet"
SHARE = "there are no share groups yet"
STREAMS = "there are no streams groups yet"
WHY_NOT = {
    Api.ADD_PARTITIONS_TO_TXN: TRANSACTIONS,
    Api.ADD_OFFSETS_TO_TXN: TRANSACTIONS,
    Api.END_TXN: TRANSACTIONS,
    Api.WRITE_TXN_MARKERS: TRANSACTIONS,
    Api.TXN_OFFSET_COMMIT: TRANSACTIONS,
    Api.DESCRIBE_TRANSACTIONS: TRANSACTIONS,
    Api.LIST_TRANSACTIONS: TRANSACTIONS,
    Api.SASL_HANDSHAKE: LOGINS,
    Api.SASL_AUTHENTICATE: LOGINS,
    Api.CREATE_DELEGATION_TOKEN: LOGINS,
    Api.RENEW_DELEGATION_TOKEN: LOGINS,
    Api.EXPIRE_DELEGATION_TOKEN: LOGINS,
    Api.DESCRIBE_DELEGATION_TOKEN: LOGINS,
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: LOGINS,
    Api.ALTER_USER_SCRAM_CREDENTIALS: LOGINS,
    Api.DESCRIBE_CLIENT_QUOTAS: "there are no quotas yet",
    Api.ALTER_CLIENT_QUOTAS: "there are no quotas yet",
    Api.ALTER_REPLICA_LOG_DIRS: "a node has one data directory",
    Api.GET_TELEMETRY_SUBSCRIPTIONS: "no client metrics are collected; clients do without when it is not offered",
    Api.PUSH_TELEMETRY: "no client metrics are collected; clients do without when it is not offered",
    Api.SHARE_GROUP_HEARTBEAT: SHARE,
    Api.SHARE_GROUP_DESCRIBE: SHARE,
    Api.SHARE_FETCH: SHARE,
    Api.SHARE_ACKNOWLEDGE: SHARE,
    Api.INITIALIZE_SHARE_GROUP_STATE: SHARE,
    Api.READ_SHARE_GROUP_STATE: SHARE,
    Api.WRITE_SHARE_GROUP_STATE: SHARE,
    Api.DELETE_SHARE_GROUP_STATE: SHARE,
    Api.READ_SHARE_GROUP_STATE_SUMMARY: SHARE,
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: SHARE,
    Api.ALTER_SHARE_GROUP_OFFSETS: SHARE,
    Api.DELETE_SHARE_GROUP_OFFSETS: SHARE,
    Api.STREAMS_GROUP_HEARTBEAT: STREAMS,
    Api.STREAMS_GROUP_DESCRIBE: STREAMS,
}
"""Why an API is not served. A test fails if a served API is listed here."""

HEAD = """# Protocol

<!-- Made by `./dev pages` from the handlers; a test compares. -->

Penstock speaks Apache Kafka's wire protocol as Kafka 4.3 does: {served} of {all} APIs are served. Every request and
response of all {all} can be read and written, in all versions, and is compared field by field with Kafka's own codec.

What is not served is not advertised either, so clients know before they ask: a request for it closes the connection,
and the node says in its log what was asked and what to do. An unknown version of ApiVersions is answered all the same.

## All APIs

*Kafka 4.3* are the versions of the protocol, *served* those that this node answers, *where* on whose listener Kafka
has it.

| Key | API | Kafka 4.3 | Served | Where | Departs from Kafka, or why it is left out |
|--:|---|---|---|---|---|
"""
_SECTION = re.compile(r"^(Serves|Answers|Departs) +(.*)")


def page() -> str:
    """The whole page."""
    routes = {
        **Dispatch(CONTROLLER_HANDLERS, leaves_out=BROKER_ONLY).routes,
        **Dispatch(BROKER_HANDLERS, leaves_out=CONTROLLER_ONLY).routes,
    }
    head = HEAD.format(served=len(routes), all=len(Api))
    rows = "".join(_row(api, routes.get(api)) for api in Api)
    return f"{head}{rows}\n## What is served, family by family\n{''.join(_families())}"


def _row(api: Api, route: Route | None) -> str:
    request = request_class(api)
    last = (
        min(request.VERSIONS.last, request.UNSTABLE.first - 1) if request.UNSTABLE.last >= 0 else request.VERSIONS.last
    )
    kafka = _range(request.VERSIONS.first, last)
    where = "controllers" if api in CONTROLLER_ONLY else "both" if api in ALSO_ON_CONTROLLERS else "brokers"
    if route is None:
        return f"| {int(api)} | {api.title} | {kafka} | – | {where} | {WHY_NOT[api]} |\n"
    served = _range(route.first, route.last)
    if api in ADVERTISED_FROM:
        served += f" (advertised from {ADVERTISED_FROM[api]})"
    departs = sections(route.handle.__module__)["Departs"]
    return f"| {int(api)} | {api.title} | {kafka} | {served} | {where} | {_departure(departs)} |\n"


def _departure(text: str) -> str:
    """Removes the words "from Kafka 4.3", which the column's title already implies."""
    return re.sub(r"^(nowhere )?from Kafka 4\.3[:.] ?", "", text)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def _families() -> Iterator[str]:
    modules = {handler.__module__ for handler in (*BROKER_HANDLERS, *CONTROLLER_HANDLERS)}
    for module in sorted(modules):
        title, _, rest = (getdoc(sys.modules[module]) or "").partition(":")
        yield f"\n### {title}\n\n{rest.splitlines()[0].strip().capitalize()}\n\n"
        for name, text in sections(module).items():
            yield f"- **{name}** {text}\n"


def sections(module: str) -> dict[str, str]:
    """The sections Serves, Answers and Departs of the docstring of a handlers' module."""
    found: dict[str, str] = {}
    name = None
    for line in (getdoc(sys.modules[module]) or "").splitlines():
        if match := _SECTION.match(line):
            name, found[match[1]] = match[1], match[2]
        elif name is not None and line.startswith(" "):
            found[name] += f" {line.strip()}"
        else:
            name = None
    assert found.keys() == {"Serves", "Answers", "Departs"}, f"{module} does not say what it serves"
    return found
