"""What commands say about settings that a cluster accepts and does not act on, as the cluster reports them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.model.setting_gap import SettingGap


async def gaps_of(client: "Client") -> "Mapping[str, SettingGap]":
    """The gaps that the cluster reports; none if it does not, as Apache Kafka."""
    from penstock.client.errors import ClientError

    try:
        return await client.admin.setting_gaps()
    except ClientError:  # the command itself has succeeded, or will fail with a better reason
        return {}


async def warn_of_gaps(client: "Client", settings: Mapping[str, str | None]) -> None:
    """Prints a sentence for each of these settings that has no effect with its value; None removes a setting."""
    given = {name: text for name, text in settings.items() if text is not None}
    gaps = await gaps_of(client) if given else {}
    for name, text in given.items():
        if name in gaps and gaps[name].concerns(text):
            typer.echo(f"{gaps[name].sentence(name)}.", err=True)


def effect_of(gaps: "Mapping[str, SettingGap]", name: str, value: str | None) -> str | None:
    """Whether a setting with this value has an effect, and what is true instead; None if the cluster does not say."""
    gap = gaps.get(name)
    if not gaps:
        return None
    return "yes" if gap is None or value is None or not gap.concerns(value) else str(gap)


def table_rows(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Rows of settings for people: without the column of effects where every setting has its effect."""
    if any(row["effect"] not in (None, "yes") for row in rows):
        return rows
    return [{name: value for name, value in row.items() if name != "effect"} for row in rows]
