"""Runs a node until a signal stops it. The only file of the command line that imports the server."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import typer

from penstock.cli.errors import Failed
from penstock.cli.serve.log_format import LogFormat
from penstock.cli.serve.log_lines import write_log
from penstock.cli.settings.listeners import Listener
from penstock.cli.settings.startup import Plan, Role
from penstock.client.bootstrap import write_endpoint
from penstock.host.garbage import PatientCollector
from penstock.host.process import HostProcess
from penstock.log.checked import Damaged, NewerFormat
from penstock.log.directory import FORMAT_VERSION, WrongDirectory
from penstock.metadata.reports import SETTINGS_WITHOUT_EFFECT
from penstock.metadata.settings.effects import listed
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ProtocolError
from penstock.model.setting_gap import SettingGap
from penstock.server.host_ports import host_ports
from penstock.server.node import Node
from penstock.server.settings import (
    SUPPORTED_FEATURES,
    CannotStart,
    ListenerSettings,
    Membership,
    NodeSettings,
    UpkeepSettings,
)
from penstock.version import __version__

__all__ = ["FORMAT_VERSION", "serve", "settings_of"]

_IMPORTED_AT_S = time.monotonic()
PATIENCE_S = 1.0
"""After this time the user is informed what the node waits for."""
NOTHING: Mapping[str, SettingGap] = {}


def serve(plan: Plan, without_effect: Mapping[str, SettingGap] = NOTHING) -> None:
    """Starts a node, prints its addresses, waits for a signal, and stops it. Warns of settings without effect."""
    write_log(plan.log_level, LogFormat(plan.log_format))
    if without_effect:
        _warn(plan.node_id, without_effect)
    try:
        plan.data_path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(f"cannot make {plan.data_path}: {error.strerror}; choose another directory") from error
    try:
        asyncio.run(_serve(plan))
    except (CannotStart, Damaged, NewerFormat, WrongDirectory, ProtocolError) as error:
        raise Failed(str(error)) from error


def _warn(node_id: int, without_effect: Mapping[str, SettingGap]) -> None:
    """Logs one line that names all these settings, however long it gets."""
    report = SETTINGS_WITHOUT_EFFECT(
        resource=f"node {node_id}", named=listed(without_effect), count=len(without_effect)
    )
    extra = {"event": report.kind.name, "fields": dict(report.fields)}
    logging.getLogger("penstock.settings").warning("%s", report.sentence, extra=extra)


async def _serve(plan: Plan) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    failures: list[str] = []

    def fail(sentence: str) -> None:
        failures.append(sentence)
        stopping.set()

    process, collector = HostProcess(), PatientCollector()
    ports = host_ports(plan.data_path)
    ports.workers.switch_quickly()
    try:
        node = Node(ports, settings_of(plan), on_failure=fail, footprint=process)
        await node.start()
        try:
            with _endpoint(plan.endpoint_path, node.address), ExitStack() as serving:
                if await _is_ready(node, plan, stopping):
                    _tell_ready(plan, node)
                    collector.start()
                    serving.callback(collector.stop)
                await stopping.wait()
                typer.echo("Stopping.", err=True)
        finally:
            with suppress(OSError) if failures else nullcontext():  # a disk that failed may well fail again
                await node.stop()
    finally:
        ports.close()
    if failures:
        raise Failed(failures[0])


async def _is_ready(node: Node, plan: Plan, stopping: asyncio.Event) -> bool:
    """Waits until the node serves or must stop; whether it serves."""
    waiting = [asyncio.ensure_future(node.ready()), asyncio.ensure_future(stopping.wait())]
    try:
        done, _ = await asyncio.wait(waiting, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            typer.echo(f"Waiting for the metadata quorum: {plan.role.quorum}.", err=True)
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return waiting[0].done() and not waiting[0].cancelled() and waiting[0].exception() is None
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def settings_of(plan: Plan) -> NodeSettings:
    """The settings of the node for a plan."""
    broker = BrokerSettings(plan.static)
    return NodeSettings(
        cluster_id=plan.cluster_id,
        node_id=plan.node_id,
        listeners=[_listener(each) for each in plan.listeners],
        inter_broker_listener=plan.inter_broker,
        metrics=plan.metrics,
        allow_plaintext_beyond_loopback=plan.allows_plaintext,
        features=SUPPORTED_FEATURES,
        membership=_membership(plan.role),
        broker=broker,
        data_path=str(plan.data_path),
        upkeep=UpkeepSettings(retention_ms=broker.number("log.retention.check.interval.ms")),
    )


def _listener(listener: Listener) -> ListenerSettings:
    return ListenerSettings(listener.name, listener.host, listener.port, listener.advertised, listener.is_advertised)


def _membership(role: Role) -> Membership:
    return Membership(
        is_broker=role.is_broker,
        is_controller=role.is_controller,
        listener=None if role.listener is None else _listener(role.listener),
        voters=role.voters,
        bootstrap_servers=role.bootstrap_servers,
    )


@contextmanager
def _endpoint(path: Path | None, address: str) -> Iterator[None]:
    """Keeps the address in the file where other commands find it, as long as the node runs."""
    if path is None:
        yield
        return
    write_endpoint(path.parent.parent, address)
    try:
        yield
    finally:
        try:
            if path.read_text(encoding="utf-8").strip() == address:  # else another node has started since
                path.unlink()
        except OSError:
            logging.getLogger("penstock.cli").debug("%s was gone already", path)


def _tell_ready(plan: Plan, node: Node) -> None:
    kept = "forgotten at the end" if plan.is_ephemeral else "kept"
    if plan.role.is_broker:
        places = node.listeners.client_addresses
        rows = [("Kafka", _shown(place), plan.note if len(places) == 1 else name) for name, place in places.items()]
    else:
        rows = [("Quorum", _shown(node.address), plan.note)]
    if node.metrics_address:
        rows.append(("Metrics", f"http://{_shown(node.metrics_address)}/metrics", plan.metrics_note))
    rows.append(("Data", str(plan.data_path), f"({kept})"))
    if plan.endpoint_path is not None:
        rows.append(("Try", """echo '{"id": 1}' | penstock produce orders; penstock consume orders""", None))
    typer.echo(f"Penstock {__version__}  ready in {_age_s():.1f} s  (pid {os.getpid()})")
    for name, what, note in rows:
        typer.echo(f"{name:<7}  {what}  {note or ''}".rstrip())
    sys.stdout.flush()


def _shown(address: str) -> str:
    return address.replace("127.0.0.1", "localhost")


def _age_s() -> float:
    """Seconds since the process started, imports included; since this file was imported if that is unknown."""
    try:
        ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic() - _IMPORTED_AT_S
