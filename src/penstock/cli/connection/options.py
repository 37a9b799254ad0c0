"""The options `--context`, `--command-config` and `-X`, which every command with `-b` has.

They are added where the program is composed, so that no command can lack them; `connecting.find` reads them.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.connection.completion import complete_contexts
from penstock.cli.connection.connecting import ConnectionOptions, given, parse_pairs

OPTIONS = {
    "context": Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            help="Instead of -b: see `penstock context`.",
            autocompletion=complete_contexts,
        ),
    ],
    "command_config": Annotated[
        Path | None,
        typer.Option("--command-config", readable=False, help="A file of Kafka client properties: login, TLS."),
    ],
    "x_properties": Annotated[
        list[str] | None, typer.Option("-X", metavar="K=V", help="One such property; repeatable.")
    ],
}


def add_to_all(app: typer.Typer) -> None:
    """Adds the options to each command of the program that has -b, in all groups."""
    for command in app.registered_commands:
        if command.callback is not None and "bootstrap" in inspect.signature(command.callback).parameters:
            command.callback = _with_options(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_to_all(group.typer_instance)


def _with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def run(
        *arguments: Any,
        context: str | None = None,
        command_config: Path | None = None,
        x_properties: list[str] | None = None,
        **options: Any,
    ) -> Any:
        token = given.set(ConnectionOptions(context, command_config, parse_pairs(x_properties, "-X")))
        try:
            return command(*arguments, **options)
        finally:
            given.reset(token)

    signature = inspect.signature(command)
    parameters = dict(signature.parameters)
    added = {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in OPTIONS.items()
    }
    run.__signature__ = signature.replace(parameters=[*parameters.values(), *added.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, **OPTIONS}
    return run
