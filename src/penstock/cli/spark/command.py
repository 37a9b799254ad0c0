"""`penstock spark …`: pipelines from topics into tables, as `penstock.yml` describes them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection.completion import complete_topics
from penstock.cli.connection.connecting import BootstrapOption, find, given, open_blocking_client
from penstock.cli.errors import Failed, Misused
from penstock.cli.help import examples
from penstock.cli.output import Changes, Output, OutputOption, show, show_findings, show_json

if TYPE_CHECKING:
    from penstock.client.blocking import SyncClient
    from penstock.client.bootstrap import FoundCluster
    from penstock.spark.project.plan import Lake, Project

FILE = Path("penstock.yml")
NEEDED = ("yaml", "pyarrow", "deltalake", "pyspark")
FileOption = Annotated[Path, typer.Option("-f", "--file", readable=False, help="The file with the pipelines.")]
NamesArgument = Annotated[list[str] | None, typer.Argument(metavar="[PIPELINE...]", help="Without any: all.")]


def init(
    topic: Annotated[
        str,
        typer.Option("-t", "--topic", help="The topic; filled with samples if empty.", autocompletion=complete_topics),
    ] = "orders",
    records: Annotated[int, typer.Option("-n", "--records", min=0, help="How many samples to fill it with.")] = 100_000,
    file: FileOption = FILE,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
) -> None:
    """Write a penstock.yml for a topic.

    The next command can be `penstock spark run`. An empty or missing topic is filled with sample records. The schema of
    any other topic is inferred from its first 1,000 records; a topic whose values are not JSON objects is refused.
    """
    _check_installed()
    with Changes(output) as changes:
        _init(topic, records, file, find(bootstrap), changes)


def _init(topic: str, records: int, file: Path, found: "FoundCluster", changes: Changes) -> None:
    import time

    from penstock.client.bootstrap import Rule
    from penstock.spark.running.sample import SCHEMA, create, fill, pipeline_name, template, write_file
    from penstock.spark.schemas.inference import inferred, sample_of

    with open_blocking_client(found, timeout_ms=10_000) as client:
        create(client, topic)
        sample = sample_of(client, topic)
        if sample:
            schema_found = inferred(topic, sample)
            schema = schema_found.ddl
            changes.tell(
                f"{topic}: has records already, left as it is. The schema of its first {schema_found.objects:,}:"
            )
            changes.tell(f"  {schema}")
            if schema_found.others:
                changes.tell(f"{schema_found.others:,} are not JSON objects: they will be bad records.")
            if schema_found.left_out:
                changes.tell(f"Left out, and not in the table: {', '.join(schema_found.left_out)}.")
        else:
            schema = SCHEMA
            fill(client, topic, records, time.time_ns() // 1_000_000)
            changes.tell(f"{topic}: {records} sample records written.", topic=topic, result="filled", records=records)
    pipeline = pipeline_name(topic)
    try:
        write_file(file, template(topic, found.bootstrap if found.rule is Rule.ADDRESS else None, schema))
        changes.tell(
            f"{file} written: {pipeline} takes {topic} into a Delta table in lake/{topic}.",
            file=str(file),
            result="written",
            pipeline=pipeline,
            schema=schema,
        )
    except FileExistsError:
        changes.tell(f"{file} is there already, left as it is.", file=str(file), result="exists")
    options = given.get()
    of_context = f"PENSTOCK_CONTEXT={options.context} " if options is not None and options.context else ""
    changes.tell(f"Next: {of_context}penstock spark run")


def check(file: FileOption = FILE, output: OutputOption = Output.TABLE) -> None:
    """Find common problems before a run.

    It looks at the machine and at the cluster. Exit code 1 if something is wrong.
    """
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
    from penstock.cli.spark.run import run_pipelines

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
    """Explain what a pipeline does, reads and writes."""
    project = _project(file)
    from penstock.spark.project.plan import Audit
    from penstock.spark.running.explaining import explained, explained_audit

    pipeline = project.pipeline(name)
    if isinstance(pipeline, Audit):
        found = explained_audit(project, pipeline)
    else:
        with _client(project) as client:
            found = explained(project, pipeline, client)
    if output is Output.JSON:
        show_json(found)
        return
    width = max(map(len, found))
    for key, value in found.items():
        typer.echo(f"{key:<{width}}  {value}")


# --- shared


def _project(file: Path) -> "Project":
    """Reads the file; fails if the extra `spark` is not installed."""
    _check_installed()
    from penstock.spark.project.plan import read_project

    return read_project(file)


def _check_installed() -> None:
    import importlib.util

    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise Failed(
            f"Spark pipelines need more than is installed ({missing[0]} is missing): "
            'pip install ".[spark]" in a checkout of Penstock'
        )


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
    """Registers the commands."""
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
