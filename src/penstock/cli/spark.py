"""`penstock spark …`: pipelines from topics into tables, as `penstock.yml` describes them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failing import Failed, Misused
from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show, show_findings, show_json
from penstock.cli.running import BootstrapOption

if TYPE_CHECKING:
    from penstock.client.blocking import SyncClient
    from penstock.spark.project.plan import Lake, Project

FILE = Path("penstock.yml")
NEEDED = ("yaml", "pyarrow", "deltalake", "pyspark")
FileOption = Annotated[Path, typer.Option("-f", "--file", readable=False, help="The file with the pipelines.")]
NamesArgument = Annotated[list[str] | None, typer.Argument(metavar="[PIPELINE...]", help="Without any: all.")]


def init(
    topic: Annotated[str, typer.Option("-t", "--topic", help="The sample topic; filled if it is empty.")] = "orders",
    records: Annotated[int, typer.Option("-n", "--records", min=0, help="How many to fill it with.")] = 100_000,
    file: FileOption = FILE,
    bootstrap: BootstrapOption = None,
) -> None:
    """Write a penstock.yml and fill a sample topic: the next command can be `penstock spark run`."""
    import time

    from penstock.client.blocking import SyncClient
    from penstock.spark.running.sample import fill, template, write_file

    with SyncClient(bootstrap, client_id="penstock-cli", timeout_ms=10_000) as client:
        count = fill(client, topic, records, time.time_ns() // 1_000_000)
    typer.echo(f"{topic}: {f'{count} sample records written' if count else 'has records already, left as it is'}.")
    try:
        write_file(file, template(topic, bootstrap))
        typer.echo(f"{file} written: it takes {topic} into a Delta table in lake/{topic}.")
    except FileExistsError:
        typer.echo(f"{file} is there already, left as it is.")
    typer.echo("Next: penstock spark run")


def check(file: FileOption = FILE, output: OutputOption = Output.TABLE) -> None:
    """Look for what is usually wrong before a run, on the machine and in the cluster. Exit code 1 if something is."""
    project = _project(file)
    from penstock.spark.running.checks import findings

    found = list(findings(project))
    show_findings(found, output)


def run(
    names: NamesArgument = None,
    once: Annotated[bool, typer.Option("--once", help="Read what there is now, then end.")] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Go on where a table ends that another checkpoint has written.")
    ] = False,
    file: FileOption = FILE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run pipelines until Ctrl-C, each from where it was. A second Ctrl-C does not wait for batches under way."""
    project = _project(file)
    chosen = [project.pipeline(name) for name in names or project.pipelines]
    from penstock.cli.spark_run import run_pipelines

    run_pipelines(project, chosen, is_once=once, may_adopt=adopt, output=output)


def status(names: NamesArgument = None, file: FileOption = FILE, output: OutputOption = Output.TABLE) -> None:
    """Show how far pipelines are, whether they run or not."""
    project = _project(file)
    lakes = list(_lakes(project, names))
    from dataclasses import asdict

    from penstock.spark.running.standing import standing_of

    with _client(project) as client:
        show([asdict(standing_of(project, each, client)) for each in lakes], output)


def explain(
    name: Annotated[str, typer.Argument(metavar="PIPELINE")],
    file: FileOption = FILE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say in plain words what a pipeline does, where it begins, and what it writes."""
    project = _project(file)
    lake = project.lake(name)
    from penstock.spark.running.explaining import explained

    with _client(project) as client:
        found = explained(project, lake, client)
    if output is Output.JSON:
        show_json(found)
        return
    width = max(map(len, found))
    for key, value in found.items():
        typer.echo(f"{key:<{width}}  {value}")


# --- what they share


def _project(file: Path) -> "Project":
    """The file, once the extra is there."""
    import importlib.util

    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise Failed(
            f"Spark pipelines need more than is installed ({missing[0]} is missing): "
            'pip install ".[spark]" in a checkout of Penstock'
        )
    from penstock.spark.project.plan import read_project

    return read_project(file)


def _lakes(project: "Project", names: list[str] | None) -> "Iterator[Lake]":
    from penstock.spark.project.plan import Lake

    for name in names or project.pipelines:
        found = project.pipeline(name)
        if isinstance(found, Lake):
            yield found
        elif names:
            raise Misused(f"{name} is no lake")


def _client(project: "Project") -> "SyncClient":
    from penstock.spark.project.connecting import connect

    return connect(project.cluster, timeout_ms=10_000)


def add_to(app: typer.Typer) -> None:
    """Makes the commands known."""
    spark = typer.Typer(
        help="Run pipelines from topics into Delta tables.", no_args_is_help=True, rich_markup_mode=None
    )
    spark.command("init", epilog=examples("penstock spark init", "penstock spark init -t clicks -n 1000000"))(init)
    spark.command("check", epilog=examples("penstock spark check", "penstock spark check -f lake.yml -o json"))(check)
    spark.command(
        "run",
        epilog=examples(
            "penstock spark run", "penstock spark run orders_lake --once", "penstock spark run orders_lake --adopt"
        ),
    )(run)
    spark.command("status", epilog=examples("penstock spark status", "penstock spark status orders_lake -o json"))(
        status
    )
    spark.command(
        "explain", epilog=examples("penstock spark explain orders_lake", "penstock spark explain orders_lake -o json")
    )(explain)
    app.add_typer(spark, name="spark")
