"""Which run writes the batches of a checkpoint: the run that took the claim last.

Spark's checkpoint cannot tell two runs apart, and the table refuses only a batch that does not follow its last one. A
driver that was suspended and then resumed could therefore go on beside its successor, and win the race for the next
batch. A run takes the claim when its first batch begins; a run that finds the claim of another run stops for good.
"""

import json
import os
import socket
import uuid
from datetime import UTC, datetime
from pathlib import Path

FILE = "penstock-run.json"


class Claim:
    """The claim of one run on one checkpoint."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._run = uuid.uuid4().hex
        self._is_taken = False

    def take(self) -> None:
        """Takes the claim, unless this run has had it already: a run never takes it back."""
        if self._is_taken:
            return
        found = {
            "run": self._run,
            "process": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        fresh = self._path.with_name(f".{FILE}.{self._run}")
        fresh.write_text(json.dumps(found), encoding="utf-8")
        fresh.replace(self._path)
        self._is_taken = True

    @property
    def is_held(self) -> bool:
        """Whether this run has taken the claim and no other run has since."""
        return self._is_taken and self.successor() is None

    def successor(self) -> str | None:
        """Describes the run that has taken the claim after this one; None if there is none."""
        if not self._is_taken:
            return None
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            if found["run"] == self._run:
                return None
            return f"process {found['process']} on {found['host']}, since {found['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return None  # the checkpoint was moved away, or cannot be read: another error will report that
