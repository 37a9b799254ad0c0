"""`penstock context …`: names for clusters, with what it takes to connect there."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.connection.completion import complete_contexts
from penstock.cli.connection.connecting import parse_pairs
from penstock.cli.errors import Misused
from penstock.cli.help import examples
from penstock.cli.output import Changes, Output, OutputOption, show, show_json, show_table

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of a context.", autocompletion=complete_contexts)
]


def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, dots, hyphens and underscores.")],
    address: Annotated[
        str | None,
        typer.Option("-b", "--bootstrap", "--bootstrap-server", "--brokers", help="host:port, several with commas."),
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option("--command-config", readable=False, help="A file of Kafka client properties; they are copied."),
    ] = None,
    pairs: Annotated[list[str] | None, typer.Option("-X", metavar="K=V", help="A property; repeatable.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a context of this name.")] = False,
    use_it: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Name a cluster. The context is kept in a file that only you can read."""
    from penstock.cli.connection.properties import properties_of
    from penstock.client.bootstrap import parse_addresses
    from penstock.client.contexts import BOOTSTRAP, Contexts

    properties = properties_of(command_config, parse_pairs(pairs, "-X"))
    address = address or properties.get(BOOTSTRAP)
    if address is None:
        raise Misused(f"where is the cluster {name}? give -b host:port")
    contexts = Contexts()
    if name in contexts.names() and not replace:
        raise Misused(f"there is a context {name} already: --replace replaces it")
    addresses = ",".join(map(str, parse_addresses(address)))
    contexts.add(name, {BOOTSTRAP: addresses, **{key: each for key, each in properties.items() if key != BOOTSTRAP}})
    with Changes(output) as changes:
        path = contexts.path(name)
        changes.tell(f"Context {name} is in {path}.", context=name, result="added", path=str(path))
        if use_it:
            _use(name, changes)


def use(name: NameArgument, output: OutputOption = Output.TABLE) -> None:
    """Use a context where nothing else names a cluster."""
    with Changes(output) as changes:
        _use(name, changes)


def _use(name: str, changes: Changes) -> None:
    from penstock.client.contexts import Contexts

    Contexts().use(name)
    changes.tell(
        f"{name} is the context in use. -b, --context, PENSTOCK_… variables and .penstock directories go first.",
        context=name,
        result="in use",
    )


def list_contexts(output: OutputOption = Output.TABLE) -> None:
    """List your contexts."""
    from penstock.client.contexts import BOOTSTRAP, Contexts

    contexts = Contexts()
    in_use = contexts.in_use()
    rows = []
    for name in contexts.names():
        try:
            address = contexts.load(name)[BOOTSTRAP]
        except ValueError:
            address = None
        rows.append({"name": name, "bootstrap": address, "in_use": name == in_use})
    show(rows, output, "There are no contexts: `penstock context add NAME -b host:port` makes one.")


def show_context(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Without one: the cluster that commands find.", autocompletion=complete_contexts
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a context, or which cluster commands find here, and why."""
    from penstock.cli.connection.properties import is_secret
    from penstock.client.bootstrap import find_cluster
    from penstock.client.contexts import BOOTSTRAP, Contexts

    if name is None:
        found = find_cluster()
        properties, source = {BOOTSTRAP: found.bootstrap, **found.properties}, found.source
    else:
        properties, source = Contexts().load(name), str(Contexts().path(name))
    shown = {key: "(secret)" if is_secret(key) else value for key, value in properties.items()}
    if output is Output.JSON:
        show_json({"source": source, "properties": shown})
        return
    typer.echo(f"{source}:" if name is not None else f"Commands find this cluster here: {source}.")
    show_table([{"property": key, "value": value} for key, value in shown.items()])


def remove(name: NameArgument, output: OutputOption = Output.TABLE) -> None:
    """Remove a context. The cluster stays as it is."""
    from penstock.client.contexts import Contexts

    with Changes(output) as changes:
        Contexts().remove(name)
        changes.tell(f"Context {name} is removed.", context=name, result="removed")


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(help="Name clusters, and choose the one to use.", no_args_is_help=True, rich_markup_mode=None)
    group.command(
        "add",
        epilog=examples(
            "penstock context add staging -b staging:9092",
            "penstock context add prod -b broker-1:9092,broker-2:9092 --command-config client.properties",
            "penstock context add prod -b broker:9093 -X security.protocol=SSL --use",
        ),
    )(add)
    group.command("use", epilog=examples("penstock context use prod", "penstock context use staging"))(use)
    group.command("list", epilog=examples("penstock context list", "penstock context list -o json"))(list_contexts)
    group.command("show", epilog=examples("penstock context show", "penstock context show prod -o json"))(show_context)
    group.command("remove", epilog=examples("penstock context remove prod", "penstock context remove staging"))(remove)
    app.add_typer(group, name="context")
