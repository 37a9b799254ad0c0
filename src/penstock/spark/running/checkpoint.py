"""Spark's checkpoint of a query: its id, the offsets of each micro-batch, and which are done. Only read here.

metadata     {"id": …}
offsets/N    v1, then Spark's own metadata, then a line for each source: the end offsets of batch N
commits/N    exists once batch N is done
"""

import json
from pathlib import Path

from penstock.spark.offsets import Stored

VERSION = "v1"


class CheckpointError(ValueError):
    """A checkpoint that is not in Spark's format; the message says what to do."""


class Checkpoint:
    """The checkpoint of one query. It may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def query_id(self) -> str | None:
        """The id of the query; None before its first run."""
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
        """The newest batch that is done."""
        return self._last("commits")

    def ends(self, batch: int) -> Stored:
        """The end offsets of a batch."""
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
        """The end offsets of the newest batch that is done; None if no batch is."""
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
