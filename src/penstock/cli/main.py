"""The entry point. It stays light: every command imports what it needs when it runs."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import (
    bench,
    cluster,
    config,
    consume,
    dev,
    doctor,
    group,
    produce,
    quorum,
    reader,
    reassign,
    sizing,
    spark,
    topic,
    verify,
)
from penstock.cli.failing import Failed, sentence
from penstock.cli.help import examples
from penstock.cli.output import escape_what_cannot_be_shown

DEBUG = "PENSTOCK_DEBUG"
INTERRUPTED = 130

app = typer.Typer(
    name="penstock",
    help="Penstock: a durable partitioned log that speaks Apache Kafka's wire protocol.",
    epilog=examples(
        "penstock dev", "echo '{\"id\": 1}' | penstock produce orders", "penstock consume orders --from start"
    )
    + "\n\nThe broker is found by -b, PENSTOCK_BOOTSTRAP, .penstock/endpoint, or at localhost:9092. "
    "Exit codes: 0 all well, 1 failed, 2 misused.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
dev.add_to(app)
cluster.add_to(app)
topic.add_to(app)
group.add_to(app)
produce.add_to(app)
consume.add_to(app)
quorum.add_to(app)
reassign.add_to(app)
config.add_to(app)
doctor.add_to(app)
bench.add_to(app)
sizing.add_to(app)
verify.add_to(app)
spark.add_to(app)


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line and exits."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line; its exit code."""
    escape_what_cannot_be_shown()
    try:
        try:
            app(args=None if arguments is None else list(arguments), prog_name="penstock")
        finally:
            sys.stdout.flush()
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):
            reader.abandon()
            return 0  # whoever reads has seen enough
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        reader.abandon()
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
