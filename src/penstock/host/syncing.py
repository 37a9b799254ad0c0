"""Sequential sync of several files, for disks that cannot sync them concurrently."""

from collections.abc import Sequence

from penstock.model.ports import File


async def sync_in_turn(files: Sequence[File]) -> list[OSError | None]:
    """Syncs each file once, even if others fail; returns an error or None for each."""
    outcomes: list[OSError | None] = []
    for file in files:
        try:
            await file.sync()
            outcomes.append(None)
        except OSError as error:
            outcomes.append(error)
    return outcomes
