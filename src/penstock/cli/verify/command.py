"""`penstock verify`: runs a load against any cluster that speaks the protocol, and checks the cluster's guarantees.

The checker is `penstock.verify`, the same that fault campaigns use. It is meant for runs in which brokers are killed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection.completion import complete_topics
from penstock.cli.connection.connecting import (
    TIMEOUT_S,
    BootstrapOption,
    TimeoutOption,
    find,
    parse_pairs,
    run_with_client,
)
from penstock.cli.errors import Misused
from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption
from penstock.cli.produce.command import Acks

if TYPE_CHECKING:
    from penstock.cli.verify.clients import Clients, ClientSettings
    from penstock.cli.verify.outcome import Account, VerifyOutcome
    from penstock.cli.verify.run import Load
    from penstock.cli.verify.topic import TopicWish
    from penstock.client.client import Client

RECORDS_MAX = 2_000_000
"""The checker keeps about half a kilobyte for each record."""


class ClientName(StrEnum):
    """The client that drives the load."""

    PENSTOCK = "penstock"
    LIBRDKAFKA = "librdkafka"


def verify(
    topic: Annotated[
        str | None,
        typer.Option("--topic", help="A new one with a name of its own if not given.", autocompletion=complete_topics),
    ] = None,
    seconds: Annotated[float, typer.Option("-s", "--seconds", min=0.5, help="How long to write.")] = 30.0,
    rate: Annotated[float, typer.Option("--rate", min=1.0, help="Records in a second.")] = 1000.0,
    producers: Annotated[int, typer.Option("--producers", min=1, max=100, help="How many write.")] = 3,
    record_bytes: Annotated[int, typer.Option("--record-bytes", min=40, max=10_000, help="Of each value.")] = 100,
    partitions: Annotated[int, typer.Option("-p", "--partitions", min=1, help="Of the topic that is made.")] = 6,
    replicas: Annotated[
        int | None,
        typer.Option("-r", "--replicas", "--replication-factor", min=1, help="Three, or as many as brokers if fewer."),
    ] = None,
    in_sync: Annotated[
        int | None, typer.Option("--min-insync", min=1, help="How many must be in sync: one less than replicas.")
    ] = None,
    configs: Annotated[
        list[str] | None, typer.Option("-c", "--config", metavar="K=V", help="Of the topic that is made; repeatable.")
    ] = None,
    acks: Annotated[
        Acks, typer.Option("--acks", help="all, with idempotent producers; 1 promises less, and breaks rules.")
    ] = Acks.ALL,
    client: Annotated[
        ClientName, typer.Option("--client", help="librdkafka needs the package confluent-kafka.")
    ] = ClientName.PENSTOCK,
    settle: Annotated[
        float, typer.Option("--settle", min=1.0, help="Seconds that the cluster has for each step after the load.")
    ] = 60.0,
    history: Annotated[
        Path | None, typer.Option("--history", readable=False, help="Keep what was asked and answered in a new file.")
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", metavar="FILE", readable=False, help="Only check a history again.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the topic there.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Write to a topic that exists already.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Write and read records; report what was lost or reordered.

    It reports records that were lost, doubled, reordered, or unlike for two readers.

    It works on Penstock, Apache Kafka and whatever else speaks the protocol, in a topic of its own that it removes in
    the end. Kill brokers while it runs: that is what it is for. Exit codes: 0 all rules kept, 1 a rule broken, 2 it
    could not be told.
    """
    if acks is Acks.NONE:
        raise Misused("without acks nothing is promised, so nothing can be broken: use --acks all or --acks 1")
    if seconds * rate > RECORDS_MAX:
        raise Misused(
            f"{seconds:g} s at {rate:g} records/s are more than the {RECORDS_MAX:,} that the checker takes: lower "
            "--rate or --seconds"
        )
    with _two_if_it_cannot_run():
        if check is not None:
            outcome = _check(check)
        else:
            from penstock.cli.verify.run import Load
            from penstock.cli.verify.topic import TopicWish

            wish = TopicWish(topic, partitions, replicas, in_sync, parse_pairs(configs, "-c"), keep, yes)
            load = Load(seconds, rate, producers, record_bytes, settle)
            outcome = _run(wish, load, acks, client, history, bootstrap, timeout)
    outcome.show(output)


@contextmanager
def _two_if_it_cannot_run() -> Iterator[None]:
    """Exit code 1 means that a rule was broken, so all other failures end with 2."""
    from penstock.cli.errors import sentence

    try:
        yield
    except Misused:
        raise
    except Exception as error:
        told = sentence(error)
        if told is None:
            raise
        raise Misused(told) from error


def _check(path: Path) -> "VerifyOutcome":
    from penstock.cli.verify.history_file import judge
    from penstock.cli.verify.outcome import VerifyOutcome

    report, rules = judge(path)
    question = None if rules.ends_with_full_read else "the run was cut short before everything was read"
    return VerifyOutcome(report, question, None)


def _run(
    wish: "TopicWish",
    load: "Load",
    acks: Acks,
    client: ClientName,
    history: Path | None,
    bootstrap: str | None,
    timeout_s: float,
) -> "VerifyOutcome":
    from penstock.cli.verify.history_file import judge
    from penstock.cli.verify.outcome import VerifyOutcome

    with _history_path(history) as path:
        account = _drive(wish, load, acks, client, path, bootstrap, timeout_s)
        report, _ = judge(path)
        outcome = VerifyOutcome(report, account.driven.open_question, path, account)
        if history is None and outcome.word == "kept":
            path.unlink()
            return VerifyOutcome(report, None, None, account)
    return outcome


@contextmanager
def _history_path(wanted: Path | None) -> Iterator[Path]:
    """The path of a new file. A temporary file is removed if the run fails."""
    if wanted is not None:
        if wanted.exists():
            raise Misused(f"{wanted} exists: give another name to --history, or --check it")
        yield wanted
        return
    import os
    import tempfile

    descriptor, name = tempfile.mkstemp(prefix="penstock-verify-", suffix=".jsonl")
    os.close(descriptor)
    try:
        yield Path(name)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _drive(
    wish: "TopicWish",
    load: "Load",
    acks: Acks,
    client_name: ClientName,
    path: Path,
    bootstrap: str | None,
    timeout_s: float,
) -> "Account":
    import time
    from dataclasses import replace

    from penstock.cli.progress import RunBar
    from penstock.cli.verify.clients import ClientSettings, PenstockLister
    from penstock.cli.verify.history_file import HistoryFile
    from penstock.cli.verify.outcome import Account
    from penstock.cli.verify.run import Run
    from penstock.cli.verify.topic import a_topic
    from penstock.verify.recorder import Recorder

    number = 1 if acks is Acks.LEADER else -1
    found = find(bootstrap)

    async def work(client: "Client") -> Account:
        async with a_topic(client, wish) as topic:
            known = [each.address for each in client.cluster.view.brokers.values()]
            addresses = ",".join(map(str, dict.fromkeys([*client.cluster.bootstrap, *known])))
            everywhere = replace(found, bootstrap=addresses)
            settings = ClientSettings(everywhere, topic.name, number, load.seconds + 2 * load.settle_s)
            clients = _clients(client_name, settings)
            lister = PenstockLister(everywhere, topic.name)
            file = HistoryFile(path)
            recorder = Recorder(time.monotonic_ns, file.write)
            with RunBar(load.seconds) as bar:
                try:
                    driven = await Run(topic, load, clients, lister, recorder, bar.show).drive()
                finally:
                    file.close()
            return Account(topic, load, "1" if number == 1 else "all", driven)

    return run_with_client(found, timeout_s, work)


def _clients(name: ClientName, settings: "ClientSettings") -> "Clients":
    if name is ClientName.LIBRDKAFKA:
        from penstock.cli.verify.rdkafka import RdkafkaClients

        return RdkafkaClients(settings)
    from penstock.cli.verify.clients import PenstockClients

    return PenstockClients(settings)


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(
        epilog=examples(
            "penstock verify -b broker-1:9092,broker-2:9092",
            "penstock verify -b broker:9092 --seconds 300 --client librdkafka --history run.jsonl",
            "penstock verify --check run.jsonl -o json",
        )
    )(verify)
