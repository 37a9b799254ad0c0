"""What Spark keeps of a query: its id, the offsets of each micro-batch, and which of them are done. Only read here.

metadata     {"id": …}
offsets/N    v1, then Spark's own notes, then a line for each source: where batch N ends
commits/N    there when batch N is done
"""

import json
from pathlib import Path

from penstock.spark.offsets import Stored

VERSION = "v1"


class CheckpointError(ValueError):
    """A checkpoint that is not what Spark writes; the sentence says what to do."""


class Checkpoint:
    """One query's. It may not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def query_id(self) -> str | None:
        """None before the query has run for the first time."""
        try:
            found = json.loads((self.path / "metadata").read_text())
            return str(found["id"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise self._error("metadata") from None

    @property
    def last_planned(self) -> int | None:
        """The newest batch whose offsets are fixed."""
        return self._last("offsets")

    @property
    def last_done(self) -> int | None:
        """The newest batch that has been through."""
        return self._last("commits")

    def ends(self, batch: int) -> Stored:
        """Where a batch ends."""
        name = f"offsets/{batch}"
        try:
            lines = (self.path / name).read_text().splitlines()
            version, _, ends = lines
            found: Stored = json.loads(ends)
        except (OSError, ValueError):
            raise self._error(name) from None
        if version != VERSION or not isinstance(found, dict):
            raise self._error(name)
        return found

    def position(self) -> Stored | None:
        """How far the query is; None if no batch is done."""
        done = self.last_done
        return None if done is None else self.ends(done)

    def _last(self, kind: str) -> int | None:
        try:
            names = [each.name for each in (self.path / kind).iterdir()]
        except FileNotFoundError:
            return None
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def _error(self, name: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path / name} is not what Spark writes there. Restore the checkpoint; or, to go on where the table "
            "ends, move it away and run again with --adopt."
        )
