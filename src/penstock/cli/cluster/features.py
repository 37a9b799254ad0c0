"""`penstock cluster features`: shows, raises and lowers feature levels; shows the levels that each node supports.

A level binds the whole cluster: a node that does not support it is not admitted. So raising levels is the last step of
an upgrade, once every node has the new version and no downgrade is planned.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.cluster.location import AnyDirOption, find_at, run_at
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption
from penstock.cli.connection.destructive import YesOption, announce
from penstock.cli.connection.majority import with_majority
from penstock.cli.errors import Failed, Misused
from penstock.cli.output import Output, OutputOption, show_json, show_table
from penstock.cli.sandbox_place import HOME

if TYPE_CHECKING:
    from penstock.client.admin.features import FeaturesDescription
    from penstock.client.client import Client

ALL = "all"
PAUSE_S = 0.1
KNOWN_S = 10.0
COMMAND = "penstock cluster features"


def features(
    raised: Annotated[
        list[str] | None,
        typer.Option("--raise", metavar="NAME[=LEVEL]", help="As far as every node goes, or to a level; `all`: each."),
    ] = None,
    lowered: Annotated[
        list[str] | None, typer.Option("--lower", metavar="NAME=LEVEL", help="To a lower level; 0 turns it off.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only ask whether it would be done.")] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    directory: AnyDirOption = HOME,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show feature levels of the cluster and its nodes.

    --raise and --lower change those of the cluster.
    """
    if raised and lowered:
        raise Misused("--raise and --lower are two things: do one after the other")
    if dry_run and not raised and not lowered:
        raise Misused("--dry-run goes with --raise or --lower")

    async def work(client: "Client") -> "tuple[FeaturesDescription, dict[str, int]]":
        found = await client.admin.describe_features()
        if not raised and not lowered:
            return found, {}
        wanted = levels_to_raise(raised, found) if raised else levels_to_lower(lowered or [], found)
        if wanted:
            await _change(client, found, wanted, is_up=bool(raised), is_rehearsal=dry_run)
        return found, wanted

    place = find_at(bootstrap, directory)
    if (raised or lowered) and not dry_run:
        announce(place, yes=yes)
    found, wanted = run_at(place, timeout, with_majority(timeout, work) if raised or lowered else work)
    if not raised and not lowered:
        _show(found, output)
        return
    if output is Output.JSON:
        before = {name: found.in_force.get(name, 0) for name in wanted}
        show_json({"is_done": bool(wanted) and not dry_run, "before": before, "levels": wanted})
        return
    for name, level in wanted.items():
        done = "could be at" if dry_run else "is now at"
        typer.echo(f"{name} {done} level {level}; it was at {found.in_force.get(name, 0)}.")
    if not wanted:
        typer.echo("Nothing is to be done: every level is where it should be.")


# --- requested levels -------------------------------------------------------------------------------------------------


def levels_to_raise(texts: list[str], found: "FeaturesDescription") -> dict[str, int]:
    """The levels to set, without those in force. Raises Failed if a node does not support one."""
    wanted: dict[str, int] = {}
    for text in found.names if texts == [ALL] else texts:
        name, level = _parsed(text)
        _require_known(name, found)
        current, common = found.in_force.get(name, 0), found.common(name)
        if level is None:
            level = max(current, common.most) if common is not None else current
        elif level < current:
            raise Failed(f"{name} is at level {current} already: `{COMMAND} --lower {name}={level}` lowers it")
        if level > current:
            _require_support(name, level, found)
            wanted[name] = level
    return wanted


def levels_to_lower(texts: list[str], found: "FeaturesDescription") -> dict[str, int]:
    """The levels to set, without those in force. Raises Failed if a node does not support one."""
    wanted: dict[str, int] = {}
    for text in texts:
        name, level = _parsed(text)
        if level is None:
            raise Misused(f"--lower {text!r} does not say to which level: {name}=LEVEL")
        _require_known(name, found)
        current = found.in_force.get(name, 0)
        if level > current:
            raise Failed(f"{name} is at level {current}: `{COMMAND} --raise {name}={level}` raises it")
        if level < current:
            _require_support(name, level, found)
            wanted[name] = level
    return wanted


def _parsed(text: str) -> tuple[str, int | None]:
    name, equals, level = text.partition("=")
    if not name or (equals and not (level.isascii() and level.isdigit())):
        raise Misused(f"{text!r} is not NAME=LEVEL, as metadata.version=29")
    return name, int(level) if equals else None


def _require_known(name: str, found: "FeaturesDescription") -> None:
    if name not in found.names:
        raise Failed(f"no node knows a feature {name!r}; there are {', '.join(found.names)}")


def _require_support(name: str, level: int, found: "FeaturesDescription") -> None:
    for node_id, node in sorted(found.nodes.items()):
        known = node.known.get(name)
        if known is None and level == 0:
            continue
        if known is None:
            raise Failed(f"node {node_id} does not know {name} at all; upgrade it first")
        if level > known.most:
            highest = max(each.known[name].most for each in found.nodes.values() if name in each.known)
            advice = "upgrade it first" if level <= highest else f"no node knows a level above {highest}"
            raise Failed(f"node {node_id} supports {name} only up to level {known.most}; {advice}")
        if level < known.least:
            raise Failed(f"node {node_id} supports {name} only from level {known.least} on; choose a higher one")


# --- changing levels --------------------------------------------------------------------------------------------------


async def _change(
    client: "Client", found: "FeaturesDescription", wanted: Mapping[str, int], *, is_up: bool, is_rehearsal: bool
) -> None:
    from penstock.client.errors import Refused
    from penstock.model.errors import ErrorCode

    change = client.admin.raise_features if is_up else client.admin.lower_features
    try:
        await change(wanted, validate_only=is_rehearsal)
    except Refused as error:
        if error.code is not ErrorCode.INVALID_UPDATE_VERSION or not found.silent:
            raise
        raise Failed(f"{str(error).rstrip('.')}. {_silent(found)}: it counts as it was when it last ran") from None
    if not is_rehearsal:
        await _until_known(client, wanted)


async def _until_known(client: "Client", wanted: Mapping[str, int]) -> None:
    """Waits until every node has applied the committed levels, so that any node reports them afterwards."""
    import asyncio

    try:
        async with asyncio.timeout(KNOWN_S):
            while True:
                nodes = (await client.admin.describe_features()).nodes.values()
                if all(node.in_force.get(name, 0) == level for node in nodes for name, level in wanted.items()):
                    return
                await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        typer.echo(
            "It is done, though not every node has heard of it yet; `penstock quorum status` shows who lags.", err=True
        )


# --- showing ----------------------------------------------------------------------------------------------------------


def _show(found: "FeaturesDescription", output: Output) -> None:
    rows = feature_rows(found)
    if output is Output.JSON:
        show_json({"features": rows, "silent": sorted(found.silent)})
        return
    show_table([row | {"nodes": _grouped(row["nodes"])} for row in rows])
    for line in advice(found):
        typer.echo(line)


def feature_rows(found: "FeaturesDescription") -> list[dict[str, Any]]:
    """A row per feature: its level, the levels that all nodes support, and those that each supports."""
    return [
        {
            "feature": name,
            "level": found.in_force.get(name, 0),
            "all_know": str(found.common(name) or "nothing in common"),
            "nodes": {
                str(node_id): str(node.known[name]) if name in node.known else None
                for node_id, node in sorted(found.nodes.items())
            },
        }
        for name in found.names
    ]


def advice(found: "FeaturesDescription") -> Iterator[str]:
    """Sentences on levels that can be raised, and on nodes that prevent higher ones."""
    can = {}
    for name in found.names:
        common = found.common(name)
        if common is not None and common.most > found.in_force.get(name, 0):
            can[name] = common.most
        highest = max((each.known[name].most for each in found.nodes.values() if name in each.known), default=0)
        late = [
            str(node_id)
            for node_id, each in sorted(found.nodes.items())
            if name not in each.known or each.known[name].most < highest
        ]
        if late:
            whom = f"nodes {', '.join(late)} do" if len(late) > 1 else f"node {late[0]} does"
            yield f"{name} could be at level {highest}, which {whom} not know: upgrade first, then raise it."
    if found.silent:
        yield f"{_silent(found)}: start what is down before you raise anything."
    for name, level in can.items():
        how = f"`{COMMAND} --raise {name}={level}`"
        yield f"{name} can be raised to level {level}, once nobody wants to go back: {how}"


def _silent(found: "FeaturesDescription") -> str:
    names = ", ".join(map(str, sorted(found.silent)))
    return f"Nodes {names} do not answer" if len(found.silent) > 1 else f"Node {names} does not answer"


def _grouped(nodes: Mapping[str, str | None]) -> str:
    groups: dict[str, list[str]] = {}
    for node_id, known in nodes.items():
        groups.setdefault(known or "unknown", []).append(node_id)
    return "; ".join(f"{known} on {','.join(ids)}" for known, ids in groups.items())
