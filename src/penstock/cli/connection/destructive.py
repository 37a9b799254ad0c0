"""Commands that destroy something name the cluster first, and do not trust a weak rule."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import Misused

if TYPE_CHECKING:
    from penstock.client.bootstrap import FoundCluster

YesOption = Annotated[bool, typer.Option("-y", "--yes", help="Do it although neither -b nor --context is given.")]

_DELETING = re.compile(r"(log\.)?(retention\..+|cleanup\.policy)")
"""Settings of topics, and their defaults in brokers, that decide which records are deleted."""


def decides_on_deletion(names: Iterable[str]) -> bool:
    """Whether a change of one of these settings may have records deleted."""
    return any(_DELETING.fullmatch(name) for name in names)


def announce(found: "FoundCluster", *, yes: bool) -> "FoundCluster":
    """Prints the cluster and the rule that found it; fails if the rule needs --yes."""
    from penstock.client.bootstrap import Rule

    typer.echo(found.sentence, err=True)
    if yes:
        return found
    if found.rule is Rule.DEFAULT:
        raise Misused(f"nothing names a cluster: give -b or --context, or --yes if {found.bootstrap} is meant")
    if found.rival is not None:
        raise Misused(
            f"the context in use, {found.rival}, is another cluster: give -b or --context, "
            f"or --yes if {found.bootstrap} is meant"
        )
    return found
