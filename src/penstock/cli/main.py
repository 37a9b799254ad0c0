"""The entry point. It stays light: every command imports its dependencies when it runs."""

import os
import sys
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import broken_pipe, config, context, old_names, size
from penstock.cli.bench import command as bench
from penstock.cli.broker import command as broker
from penstock.cli.cluster import command as cluster
from penstock.cli.connection import options
from penstock.cli.consume import command as consume
from penstock.cli.decommission import command as decommission
from penstock.cli.doctor import command as doctor
from penstock.cli.errors import Failed, sentence
from penstock.cli.group import command as group
from penstock.cli.help import examples
from penstock.cli.log import command as log
from penstock.cli.output import escape_what_cannot_be_shown
from penstock.cli.produce import command as produce
from penstock.cli.quorum import command as quorum
from penstock.cli.reassign import command as reassign
from penstock.cli.sandbox import command as sandbox
from penstock.cli.serve import command as serve
from penstock.cli.spark import command as spark
from penstock.cli.topic import command as topic
from penstock.cli.verify import command as verify
from penstock.version import __version__

if TYPE_CHECKING:
    from typer.models import CommandInfo

DEBUG = "PENSTOCK_DEBUG"
INTERRUPTED = 130
COMPLETE = "_PENSTOCK_COMPLETE"

app = typer.Typer(
    name="penstock",
    help="Penstock: a durable partitioned log that speaks Apache Kafka's wire protocol.",
    epilog=examples(
        "penstock dev", "echo '{\"id\": 1}' | penstock produce orders", "penstock consume orders --from start"
    )
    + "\n\nThe first of these names the cluster: -b, --context, PENSTOCK_CONTEXT, PENSTOCK_BOOTSTRAP, the nearest "
    ".penstock directory upwards (of `penstock dev` or `penstock sandbox up`), the context in use, localhost:9092. "
    "Exit codes: 0 all well, 1 failed, 2 misused.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
serve.add_to(app)
doctor.add_to(app)
verify.add_to(app)
bench.add_to(app)
size.add_to(app)
sandbox.add_to(app)
context.add_to(app)
decommission.add_to(cluster.add_to(app))
broker.add_to(app)
quorum.add_to(app)
topic.add_to(app)
produce.add_to(app)
consume.add_to(app)
group.add_to(app)
reassign.add_to(app)
config.add_to(app)
log.add_to(app)
spark.add_to(app)
options.add_to_all(app)
old_names.add_to_all(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Penstock: a durable partitioned log that speaks Apache Kafka's wire protocol."""


def reduced(whole: typer.Typer, arguments: Sequence[str]) -> typer.Typer:
    """The program without the commands that these arguments do not reach: to build all of them is slow.

    If they reach no single command, all names are kept that help and errors show.
    """
    words = [each for each in arguments if not each.startswith("-")]
    program = copy(whole)
    if command := [each for each in whole.registered_commands if each.callback and words[:1] == [_name(each)]]:
        program.registered_commands, program.registered_groups = command, []
        return program
    if any(words[:1] == [each.name] for each in whole.registered_groups):
        program.registered_commands = []
    program.registered_groups = []
    for each in whole.registered_groups:
        group, inner = copy(each), copy(each.typer_instance)
        assert inner is not None
        if words[:1] == [each.name]:
            command = [one for one in inner.registered_commands if words[1:2] == [_name(one)]]
            inner.registered_commands = command or inner.registered_commands
        elif words and not program.registered_commands:
            continue
        else:
            inner.registered_commands = []
        group.typer_instance = inner
        program.registered_groups.append(group)
    return program


def _name(command: "CommandInfo") -> str:
    assert command.callback is not None
    return command.name or command.callback.__name__.replace("_", "-")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line and exits."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line; returns its exit code."""
    escape_what_cannot_be_shown()
    try:
        try:
            given = sys.argv[1:] if arguments is None else list(arguments)
            program = app if COMPLETE in os.environ else reduced(app, given)
            program(args=given, prog_name="penstock")
        finally:
            sys.stdout.flush()
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):
            broken_pipe.abandon()
            return 0  # the reader has closed the pipe
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        broken_pipe.abandon()
        return 0
    except Exception as error:
        told = sentence(error)
        if os.environ.get(DEBUG):
            raise
        if told is None:
            told = f"a mistake of ours ({type(error).__name__}: {error}); {DEBUG}=1 shows where"
        told = told.rstrip(".")
        typer.echo(f"penstock: {told}{'' if told.endswith('?') else '.'}", err=True)
        return error.exit_code if isinstance(error, Failed) else 1
    return 0
