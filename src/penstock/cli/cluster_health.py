"""`penstock cluster health`: whether a cluster is well, for people, for programs, and for scripts that wait for it."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.cluster_place import CONNECT_MS, HOME, AnyDirOption, whereabouts
from penstock.cli.output import Output, OutputOption, show_findings
from penstock.cli.running import BootstrapOption

if TYPE_CHECKING:
    from penstock.cli.cluster_nodes import LocalCluster
    from penstock.cli.cluster_state import ClusterState
    from penstock.model.findings import Finding

PAUSE_S = 0.5
UNREACHED = 2


def health(
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    directory: AnyDirOption = HOME,
    wait: Annotated[float, typer.Option("--wait", min=0, help="Seconds that it has to become well.")] = 0.0,
) -> None:
    """Tell what is wrong with a cluster, and what to do. Exit codes: 0 well, 1 something wrong, 2 nobody answers."""
    place, local = whereabouts(bootstrap, directory)
    deadline = time.monotonic() + wait
    while True:
        found, is_reached = look(place, local)
        if all(each.is_well for each in found) or time.monotonic() >= deadline:
            break
        time.sleep(PAUSE_S)
    show_findings(found, output, exit_code=1 if is_reached else UNREACHED)


def look(bootstrap: str | None, local: "LocalCluster | None" = None) -> "tuple[list[Finding], bool]":
    """What there is to say now, and whether anybody answered."""
    from penstock.cli.cluster_checkups import START, health_findings
    from penstock.client.errors import ClientError
    from penstock.model.findings import wrong

    start = START if local is None else f"`penstock cluster up --dir {local.path}` starts what is down"
    try:
        return health_findings(state_of(bootstrap), start), True
    except (ClientError, OSError) as error:
        fix = start if local is not None else "start its brokers, or say with -b where it is"
        return [wrong("reach", f"nobody answers: {error}", fix)], False


def state_of(bootstrap: str | None) -> "ClusterState":
    """What a cluster says of itself; raises if nobody answers."""
    import asyncio

    from penstock.cli.cluster_state import ANSWER_MS, ClusterState, survey
    from penstock.client.client import Client

    async def ask() -> ClusterState:
        async with Client(
            bootstrap,
            client_id="penstock-cli",
            timeout_ms=2 * ANSWER_MS,
            connect_timeout_ms=CONNECT_MS,
            request_timeout_ms=ANSWER_MS,
        ) as client:
            return await survey(client)

    return asyncio.run(ask())
