"""`penstock cluster health`: whether a cluster is healthy, for people, programs, and scripts that wait for it."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.cluster.location import CONNECT_MS, AnyDirOption, find_at
from penstock.cli.connection.connecting import BootstrapOption, TimeoutOption, open_client
from penstock.cli.output import Output, OutputOption, show_findings
from penstock.cli.sandbox_place import HOME, Sandbox, sandbox_of

if TYPE_CHECKING:
    from penstock.cli.cluster.state import ClusterState
    from penstock.client.bootstrap import FoundCluster
    from penstock.model.findings import Finding

PAUSE_S = 0.5
LOOK_S = 10.0
SPARE_S = 0.5
UNREACHED = 2


def health(
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    directory: AnyDirOption = HOME,
    wait: Annotated[float, typer.Option("--wait", min=0, help="Seconds that it has to become well.")] = 0.0,
    timeout: TimeoutOption = LOOK_S,
) -> None:
    """Tell what is wrong with a cluster, and what to do. Exit codes: 0 well, 1 something wrong, 2 nobody answers."""
    place = find_at(bootstrap, directory)
    local = sandbox_of(place)
    deadline = time.monotonic() + wait
    while True:
        found, is_reached = look(place, local, timeout)
        if all(each.is_well for each in found) or time.monotonic() >= deadline:
            break
        time.sleep(PAUSE_S)
    show_findings(found, output, exit_code=1 if is_reached else UNREACHED)


def look(
    cluster: "str | FoundCluster", local: Sandbox | None = None, timeout_s: float = LOOK_S
) -> "tuple[list[Finding], bool]":
    """The current findings, and whether the cluster was reached."""
    from penstock.cli.cluster.checkups import START, health_findings
    from penstock.client.errors import ClientError
    from penstock.model.findings import wrong

    start = START if local is None else f"`{local.start}` starts what is down"
    try:
        return health_findings(state_of(cluster, timeout_s), start), True
    except (ClientError, OSError) as error:
        fix = start if local is not None else "start its brokers, or say with -b where it is"
        return [wrong("reach", f"nobody answers: {error}", fix)], False


def state_of(cluster: "str | FoundCluster", timeout_s: float = LOOK_S) -> "ClusterState":
    """The state that a cluster reports; raises if no broker answers in time."""
    import asyncio

    from penstock.cli.cluster.state import ANSWER_MS, ClusterState, survey
    from penstock.client.errors import TimedOut

    timeout_ms = int(timeout_s * 1000)

    async def ask() -> ClusterState:
        async with open_client(
            cluster,
            timeout_ms=timeout_ms,
            connect_timeout_ms=min(CONNECT_MS, timeout_ms),
            request_timeout_ms=min(ANSWER_MS, timeout_ms),
        ) as client:
            try:
                async with asyncio.timeout(timeout_s + SPARE_S):
                    return await survey(client, timeout_ms)
            except TimeoutError:
                shown = ",".join(map(str, client.cluster.bootstrap))
                raise TimedOut(f"{shown} did not tell the cluster's state within {timeout_s:g} s") from None

    return asyncio.run(ask())
