"""`penstock reassign …`: moves replicas between brokers by a plan, at a bounded rate, and watches until it is done."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.cluster.location import AnyDirOption, find_at, run_at, run_with_cluster
from penstock.cli.connection.completion import complete_topics
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption
from penstock.cli.connection.destructive import YesOption, announce
from penstock.cli.connection.majority import with_majority
from penstock.cli.errors import Failed, Misused
from penstock.cli.help import examples
from penstock.cli.output import Changes, Output, OutputOption, show_json, show_table
from penstock.cli.reassign.cancel import cancel
from penstock.cli.sandbox_place import HOME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cli.reassign.plan import Move, Placement, Racks
    from penstock.cli.reassign.watch import Pace, Standing
    from penstock.client.client import Client
    from penstock.client.metadata import TopicPartition

PLAN = Path("reassignment.json")
BALANCE = "auto.balance.enable"
SAMPLE_S = 1.0
ROWS_MAX = 20


def plan(
    to: Annotated[
        str | None, typer.Option("--to", metavar="IDS", help="Spread replicas evenly over these brokers: 1,2,3.")
    ] = None,
    drain: Annotated[int | None, typer.Option("--drain", metavar="ID", help="Move everything off a broker.")] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Only this one; repeatable.", autocompletion=complete_topics),
    ] = None,
    file: Annotated[Path, typer.Option("-f", "--file", help="Where the plan goes.")] = PLAN,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    directory: AnyDirOption = HOME,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Work out which replicas have to move, and how much that copies. Nothing moves yet."""
    from penstock.cli.reassign.plan import write_plan

    if (to is None) == (drain is None):
        raise Misused("say where replicas shall be: --to 1,2,3, or --drain 3")
    work = with_majority(timeout, lambda client: _planned(client, to, drain, topics))
    moves = run_with_cluster(bootstrap, directory, timeout, work)
    if moves:
        back = file.with_name(f"{file.stem}-before{file.suffix}")
        write_plan(file, {each.partition: each.after for each in moves})
        write_plan(back, {each.partition: each.before for each in moves})
    if output is Output.JSON:
        show_json({"file": str(file) if moves else None, **_summary(moves), "moves": list(map(_row, moves))})
    elif not moves:
        typer.echo("Nothing has to move.")
    else:
        _show_rows(list(map(_row, moves)))
        typer.echo(f"\n{_sentence(moves)}")
        typer.echo(f"`penstock reassign apply {file}` begins it; `penstock reassign apply {back}` is the way back.")


def apply(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A plan of ours or of kafka-reassign-partitions.")
    ] = PLAN,
    throttle: Annotated[
        str | None,
        typer.Option("--throttle", metavar="RATE", help="Per broker: 50MB, none. As the cluster is set, or 50 MiB/s."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Watch until everything is there.")] = True,
    balance: Annotated[
        bool | None,
        typer.Option("--balance/--no-balance", help="Whether Penstock may even out by itself from now on."),
    ] = None,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    directory: AnyDirOption = HOME,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Let replicas move as planned. May be repeated: what is there already stays, what moves goes on."""
    from penstock.cli.reassign.plan import read_plan
    from penstock.cli.reassign.throttle import parse_rate

    wanted, rate = read_plan(file), None if throttle is None else parse_rate(throttle)

    async def work(client: "Client") -> None:
        await _set_balance(client, is_on=balance)
        await _apply(client, wanted, rate, changes, waits=wait)

    found = announce(find_at(bootstrap, directory), yes=yes)
    with Changes(output) as changes:
        run_at(found, timeout, with_majority(timeout, work, is_long=True))


def status(
    wait: Annotated[bool, typer.Option("--wait", help="Watch until everything is there.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    directory: AnyDirOption = HOME,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show which partitions move, and how long the rest takes."""
    work = with_majority(timeout, _watched if wait else _sampled, is_long=wait)
    found, pace = run_with_cluster(bootstrap, directory, timeout, work)
    summary = _progress(found, pace)
    if output is Output.JSON:
        show_json({**summary, "partitions": [_standing(each) for each in found]})
    elif not found:
        typer.echo("No partition moves.")
    else:
        _show_rows([_standing(each) for each in found])
        typer.echo(f"\n{_how_far(summary)}")


# --- planning ---------------------------------------------------------------------------------------------------------


async def _planned(client: "Client", to: str | None, drain: int | None, topics: list[str] | None) -> "list[Move]":
    from penstock.cli.reassign.plan import Move, plan_moves
    from penstock.cli.reassign.watch import partition_bytes

    if await client.admin.list_reassignments():
        raise Failed("partitions are on the move already: `penstock reassign status --wait` waits for them")
    placed = await _placed(client, topics)
    after = plan_moves(placed, _allowed(client, to, drain), evens=to is not None)
    sizes = await partition_bytes(client, list(after)) if after else {}
    return [Move(each, placed[each], after[each], max(sizes.get(each, {0: 0}).values())) for each in after]


async def _placed(client: "Client", topics: list[str] | None) -> "Placement":
    from penstock.client.metadata import TopicPartition

    found = {each.name: each for each in await client.admin.list_topics(with_internal=True)}
    if missing := [name for name in topics or () if name not in found]:
        raise Failed(f"there is no topic {missing[0]}; `penstock topic list` shows what there is")
    return {
        TopicPartition(name, each.index): each.replicas
        for name, topic in found.items()
        for each in topic.partitions
        if topics is None or name in topics
    }


def _allowed(client: "Client", to: str | None, drain: int | None) -> "Racks":
    here = client.cluster.view.brokers
    if to is None:
        assert drain is not None
        return {each: broker.rack for each, broker in here.items() if each != drain}
    try:
        wanted = [int(each) for each in to.split(",")]
    except ValueError:
        raise Misused(f"--to {to!r} is no list of broker ids: give 1,2,3") from None
    if absent := [each for each in wanted if each not in here]:
        known = ", ".join(map(str, sorted(here)))
        raise Failed(f"broker {absent[0]} is not there; those that are: {known}")
    return {each: here[each].rack for each in wanted}


def _row(move: "Move") -> dict[str, Any]:
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "from": list(move.before),
        "to": list(move.after),
        "bytes": move.copied_bytes,
    }


def _summary(moves: "Sequence[Move]") -> dict[str, int]:
    return {
        "partitions": len(moves),
        "replicas": sum(len(each.adding) for each in moves),
        "bytes": sum(each.copied_bytes for each in moves),
    }


def _sentence(moves: "Sequence[Move]") -> str:
    from penstock.cli.progress import bytes_text

    total = _summary(moves)
    return (
        f"{_count(total['partitions'], 'partition')}, {_count(total['replicas'], 'replica')} to copy, "
        f"{bytes_text(total['bytes'])} in all."
    )


# --- moving -----------------------------------------------------------------------------------------------------------


async def _apply(client: "Client", wanted: "Placement", rate: int | None, changes: Changes, *, waits: bool) -> None:
    from penstock.cli.reassign.throttle import throttle_for

    moves = await _differences(client, wanted)
    if not moves:
        changes.tell("Nothing to do: everything is where the plan has it.")
        return
    throttle = await throttle_for(client, moves, rate)
    if not waits and throttle.trace is not None:
        raise Misused(f"with --no-wait, {throttle.trace}")
    await throttle.set()
    try:
        await _begin(client, {each.partition: each.after for each in moves})
        if not waits:
            changes.tell(f"{_sentence(moves)} `penstock reassign status` tells how far it is.")
            for each in moves:
                changes.note(**_row(each), result="begun")
            return
        await _watched(client)
    except BaseException:  # Ctrl-C included
        if throttle.trace is not None:
            typer.echo(
                "What moves goes on, throttled. The same command again watches it, and takes the throttle back.",
                err=True,
            )
        raise
    await throttle.take_back()
    changes.tell(f"Done: {_sentence(moves)}")
    for each in moves:
        changes.note(**_row(each), result="done")


async def _set_balance(client: "Client", *, is_on: bool | None) -> None:
    """Turns automatic balancing on or off; warns if it is on, because it may move replicas away from the plan."""
    from penstock.cli.reassign.throttle import settings_of_any_broker
    from penstock.client.admin.configs import ConfigKind

    found = (await settings_of_any_broker(client, [BALANCE])).get(BALANCE)
    if found is None:
        if is_on is not None:
            raise Misused("this cluster does not even itself out: leave out --balance and --no-balance")
    elif is_on is not None:
        await client.admin.alter_configs(ConfigKind.BROKER, "", {BALANCE: None if is_on else "false"})
    elif found.value == "true":
        typer.echo(
            "This cluster evens itself out, and may move replicas again; --no-balance keeps it from that.", err=True
        )


async def _differences(client: "Client", wanted: "Placement") -> "list[Move]":
    """Partitions that differ from the plan, and those that move already: they are watched and throttled, too."""
    from penstock.cli.reassign.plan import Move
    from penstock.cli.reassign.watch import partition_bytes

    placed = await _placed(client, None)
    if unknown := [each for each in wanted if each not in placed]:
        raise Failed(f"the plan has {unknown[0]}, which is not there; plan again")
    moving = {each.partition: each for each in await client.admin.list_reassignments()}
    changed = [each for each, after in wanted.items() if placed[each] != after or each in moving]
    sizes = await partition_bytes(client, changed) if changed else {}
    before = {
        each: tuple(broker for broker in placed[each] if each not in moving or broker not in moving[each].adding)
        for each in changed
    }
    return [Move(each, before[each], wanted[each], max(sizes.get(each, {0: 0}).values())) for each in changed]


async def _begin(client: "Client", targets: "Mapping[TopicPartition, tuple[int, ...]]") -> None:
    done = await client.admin.alter_reassignments(targets)
    refused = [each for each in done.values() if each is not None]
    if refused:
        raise Failed(f"{len(refused)} of {len(done)} moves were refused, the others go on: {refused[0]}")


async def _watched(client: "Client") -> "tuple[list[Standing], Pace]":
    from penstock.cli.progress import ByteBar
    from penstock.cli.reassign.watch import Pace, watch

    largest = 0
    with ByteBar("copied") as bar:

        def show(found: "Sequence[Standing]", pace: "Pace") -> None:
            nonlocal largest
            left = sum(each.left_bytes for each in found)
            largest = max(largest, sum(each.total_bytes for each in found), left)
            bar.show(largest - left, largest, pace.bytes_per_second, pace.eta_s)

        await watch(client, show)
    return [], Pace([(0.0, 0)])


async def _sampled(client: "Client") -> "tuple[list[Standing], Pace]":
    import asyncio
    import time

    from penstock.cli.reassign.watch import Pace, standings

    pace, found = Pace(), await standings(client)
    pace.note(sum(each.left_bytes for each in found), time.monotonic())
    if found:
        await asyncio.sleep(SAMPLE_S)
        found = await standings(client)
        pace.note(sum(each.left_bytes for each in found), time.monotonic())
    return found, pace


def _standing(each: "Standing") -> dict[str, Any]:
    return {
        "topic": each.moving.partition.topic,
        "partition": each.moving.partition.partition,
        "to": list(each.moving.target),
        "adding": list(each.moving.adding),
        "removing": list(each.moving.removing),
        "copied_bytes": each.copied_bytes,
        "bytes": each.total_bytes,
    }


def _progress(found: "Sequence[Standing]", pace: "Pace") -> dict[str, Any]:
    return {
        "moving": len(found),
        "copied_bytes": sum(each.copied_bytes for each in found),
        "bytes": sum(each.total_bytes for each in found),
        "bytes_per_second": round(pace.bytes_per_second),
        "eta_seconds": None if pace.eta_s is None else round(pace.eta_s, 1),
    }


def _how_far(summary: dict[str, Any]) -> str:
    from penstock.cli.progress import bytes_text, pace_text

    done, total = summary["copied_bytes"], summary["bytes"]
    percent = 100 * done // total if total else 100
    pace = pace_text(summary["bytes_per_second"], summary["eta_seconds"])
    return (
        f"{_count(summary['moving'], 'partition')} on the move: {bytes_text(done)} of {bytes_text(total)} copied "
        f"({percent} %), {pace}."
    )


def _show_rows(rows: list[dict[str, Any]]) -> None:
    show_table(rows[:ROWS_MAX])
    if len(rows) > ROWS_MAX:
        typer.echo(f"… and {len(rows) - ROWS_MAX} more (-o json has them all)")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(help="Move replicas between brokers.", no_args_is_help=True, rich_markup_mode=None)
    group.command(
        epilog=examples(
            "penstock reassign plan --drain 3",
            "penstock reassign plan --to 1,2,3,4 --topic orders -f orders.json",
            "penstock reassign plan --to 1,2,3 -o json -b broker:9092",
        )
    )(plan)
    group.command(
        epilog=examples(
            "penstock reassign apply",
            "penstock reassign apply orders.json --throttle 20MB",
            "penstock reassign apply orders.json --no-balance --no-wait --dir ./my-cluster",
        )
    )(apply)
    group.command(
        epilog=examples(
            "penstock reassign status",
            "penstock reassign status --wait --dir ./my-cluster",
            "penstock reassign status -o json -b broker:9092",
        )
    )(status)
    group.command(epilog=examples("penstock reassign cancel", "penstock reassign cancel --topic orders --yes"))(cancel)
    app.add_typer(group, name="reassign")
