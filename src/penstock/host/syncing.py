"""Syncing several files, for disks that have no better way than one after the other."""

from collections.abc import Sequence

from penstock.model.ports import File


async def sync_in_turn(files: Sequence[File]) -> list[OSError | None]:
    """Syncs each file once, whatever happened to the others; for each, what went wrong."""
    outcomes: list[OSError | None] = []
    for file in files:
        try:
            await file.sync()
            outcomes.append(None)
        except OSError as error:
            outcomes.append(error)
    return outcomes
