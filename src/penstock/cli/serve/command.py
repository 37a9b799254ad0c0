"""`penstock dev` and `penstock server`: their options; `serve` runs the node."""

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.errors import Failed, Misused
from penstock.cli.help import examples
from penstock.cli.serve.log_format import LogFormat

PORT = 9092
METRICS_PORT = 9644
PORTS_TRIED = 100
HOME = Path(".penstock")
PROMPT = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
}
"""Groups in development and tests have few members, and a user waits for each of them."""


def dev(
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="9092 or the next free one; 0 takes any.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", min=0, max=65535, help="9644 or the next free one; 0 takes any.")
    ] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Where records are kept: .penstock/data.")] = None,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="Forget everything at the end.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Log what the broker does.")] = False,
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="Lines of text, or JSON.")] = LogFormat.TEXT,
) -> None:
    """Run a broker for development, on this machine only. Other commands started below this directory find it."""
    import tempfile

    from penstock.cli.serve import descriptors
    from penstock.cli.serve.run import serve
    from penstock.cli.settings.listeners import Listener
    from penstock.cli.settings.startup import Plan
    from penstock.client.bootstrap import Address

    if ephemeral and data is not None:
        raise Misused("--data keeps what --ephemeral forgets: choose one of them")
    descriptors.take_all()
    chosen, note = _chosen(port, PORT, "--port")
    # With --port 0 the metrics port is arbitrary as well, to avoid conflicts with other programs.
    metrics_chosen, metrics_note = _chosen(0 if metrics_port is None and port == 0 else metrics_port, METRICS_PORT)
    with tempfile.TemporaryDirectory(prefix="penstock-") if ephemeral else _kept(data) as path:
        serve(
            Plan(
                cluster_id="penstock-dev",
                data_path=Path(path),
                listeners=(Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", chosen),),
                note=note,
                metrics=Address("127.0.0.1", metrics_chosen),
                metrics_note=metrics_note,
                is_ephemeral=ephemeral,
                endpoint_path=HOME / "endpoint",
                log_level=logging.INFO if verbose else logging.WARNING,
                log_format=log_format,
                static=PROMPT | ({"metrics.listener": f"127.0.0.1:{metrics_chosen}"} if metrics_chosen else {}),
            )
        )


class _kept:  # noqa: N801 - stands where TemporaryDirectory stands
    """A directory that is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path or HOME / "data"

    def __enter__(self) -> str:
        self._path.mkdir(parents=True, exist_ok=True)
        return str(self._path)

    def __exit__(self, *_: object) -> None:
        """Removes nothing."""


def _chosen(asked: int | None, usual: int, option: str = "--metrics-port") -> tuple[int, str | None]:
    """The requested port, or the first free one from the usual port up; and a note if it is not the usual one."""
    port = asked if asked is not None else _free_port(usual, option)
    return port, None if asked is not None or port == usual else f"(port {usual} is taken)"


def _free_port(first: int, option: str) -> int:
    import socket

    for port in range(first, first + PORTS_TRIED):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Failed(f"ports {first} to {first + PORTS_TRIED - 1} are all taken: choose one with {option}, 0 takes any")


def server(
    file: Annotated[
        Path | None,
        typer.Option("--config", "-c", readable=False, help="server.properties, or TOML if it ends in .toml."),
    ] = None,
    allows_plaintext: Annotated[
        bool,
        typer.Option(
            "--allow-plaintext-beyond-loopback", help="Let other machines in, unencrypted: for trusted networks."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Log details of requests, too.")] = False,
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="Lines of text, or JSON.")] = LogFormat.TEXT,
) -> None:
    """Run a broker by its settings.

    They come from a file, and from KAFKA_… and PENSTOCK_… variables, which are stronger. The broker does not start with
    settings that must not be ignored and are not there yet; it logs a warning about others that have no effect.
    """
    from penstock.cli.serve import descriptors
    from penstock.cli.serve.run import serve
    from penstock.cli.settings.settings_file import from_environment, read_settings
    from penstock.cli.settings.startup import plan_of
    from penstock.cli.settings.validation import validate

    settings = (read_settings(file) if file is not None else {}) | from_environment(os.environ)
    found = validate(settings, allows_plaintext=allows_plaintext)
    if not found.is_usable:
        raise Failed(_unusable(file, [*found.errors, *found.refusals]))
    descriptors.take_all()
    log_level = logging.DEBUG if verbose else logging.INFO
    plan = plan_of(settings, allows_plaintext=allows_plaintext, log_level=log_level, log_format=log_format)
    serve(plan, without_effect=found.without_effect)


def _unusable(file: Path | None, sentences: list[str]) -> str:
    """One sentence, or a line for each of several."""
    where = f"{file or 'the environment'} cannot be used as it is:"
    return f"{where} {sentences[0]}" if len(sentences) == 1 else "\n  ".join([where, *sentences])


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    app.command(
        epilog=examples("penstock dev", "penstock dev --ephemeral --port 0", "penstock dev --data ./orders-data")
    )(dev)
    app.command(
        epilog=examples(
            "penstock server --config server.properties",
            "penstock server -c broker.toml",
            "KAFKA_NODE_ID=1 KAFKA_LOG_DIRS=/var/lib/penstock penstock server",
        )
    )(server)
