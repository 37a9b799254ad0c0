"""`penstock cluster …`: health and features of any cluster, and brokers that leave it."""

import typer

from penstock.cli.cluster.features import features
from penstock.cli.cluster.health import health
from penstock.cli.cluster.info import info
from penstock.cli.help import examples


def add_to(app: typer.Typer) -> typer.Typer:
    """Registers the commands; returns their group."""
    group = typer.Typer(
        help="Show a cluster's health and features; empty a broker.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.callback()(lambda: None)
    group.command(epilog=examples("penstock cluster info", "penstock cluster info -b broker:9092 -o json"))(info)
    group.command(
        epilog=examples(
            "penstock cluster health",
            "penstock cluster health -b broker:9092 -o json",
            "penstock cluster health -b broker:9092 --wait 300 && echo 'go on'",
        )
    )(health)
    group.command(
        epilog=examples(
            "penstock cluster features",
            "penstock cluster features -b broker:9092 -o json",
            "penstock cluster features --raise all --dry-run",
            "penstock cluster features --raise metadata.version=29",
            "penstock cluster features --lower eligible.leader.replicas.version=0",
        )
    )(features)
    app.add_typer(group, name="cluster")
    return group
