"""Logs with one rule removed at a time, in overlapping histories.

`python -m tests.simulation.log.overlap_mutants` measures how many histories each mutant takes, five times; with
`--record` it writes docs/results/overlap-mutants.md.
"""

import sys
from typing import Final

import pytest

from penstock.log import recovery, truncation, upkeep
from penstock.log.directory import DataDirectory
from penstock.log.ledger import Ledger
from penstock.log.log import Log
from tests.simulation.kit.mutants import Measured, Mutants
from tests.simulation.log.overlaps import run_overlaps
from tests.simulation.planted.planting import Edit, plant

SEEDS_MAX = 5_000
FALSE_DAMAGE: Final = "FalseDamage"
CONTENTS: Final = "Contents"
LOST: Final = "Lost"

MUTANTS = Mutants("overlap", run_overlaps, SEEDS_MAX, each="a history of 120 steps")
caught_by = MUTANTS.caught_by

# --- commit beside truncation -----------------------------------------------------------------------------------------


@caught_by(FALSE_DAMAGE)
def records_a_round_that_a_cut_overtook(patch: pytest.MonkeyPatch) -> None:
    """The ledger then covers batches that the truncation has removed."""
    plant(patch, Edit(DataDirectory.commit, "t.cuts == t.log.cuts and ", ""))


@caught_by("Promised", LOST, "AssertionError")
def promises_what_a_cut_took(patch: pytest.MonkeyPatch) -> None:
    """A round that began before the truncation reports the old end as durable."""
    plant(patch, Edit(Log.finish_sync, " and ticket.cuts == self.cuts", ""))


@caught_by(FALSE_DAMAGE, LOST)
def restarts_with_syncs_under_way(patch: pytest.MonkeyPatch) -> None:
    plant(patch, Edit(truncation._restart, "log.void_syncs()", "pass"))


@caught_by(CONTENTS, "Offline")
def cuts_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    """The sync of a truncation after a failed sync reports success without making anything durable."""
    plant(patch, Edit(truncation.truncate, "    _require_online(log)  # our", "    # our"))


@caught_by(FALSE_DAMAGE)
def trusts_the_ledger_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    """The sync of a round fails; the sync of a concurrent truncation reports success, and the file is cut."""
    plant(patch, Edit(Ledger._sync, "if self._failed is file:", "if False:"))


@caught_by(FALSE_DAMAGE)
def lowers_the_ledger_after_the_cut(patch: pytest.MonkeyPatch) -> None:
    plant(patch, Edit(truncation._truncate, "    if is_promised:  # else", "    if False:  # else"))


@caught_by(CONTENTS, FALSE_DAMAGE)
def lets_removed_segments_come_back(patch: pytest.MonkeyPatch) -> None:
    plant(patch, Edit(truncation._restart, "    await disk.sync_dir(log.path)  # else", "    # else"))


# --- commit beside sealing, deletion, replacement ---------------------------------------------------------------------


@caught_by(FALSE_DAMAGE, "CorruptBatch")
def seals_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    """A segment is sealed by a sync that follows one that failed."""
    plant(patch, Edit(upkeep.settle, "    if log.offline_reason is not None:  # our", "    if False:  # our"))


@caught_by(FALSE_DAMAGE, "CorruptBatch")
def seals_beside_a_sync_that_fails(patch: pytest.MonkeyPatch) -> None:
    """A concurrent round syncs the same segment, and has not yet reported its failure."""
    plant(patch, Edit(upkeep.settle, "if any(segment.base_offset in log.syncing for", "if any(False for"))


@caught_by("Start", FALSE_DAMAGE)
def deletes_before_it_is_written_down(patch: pytest.MonkeyPatch) -> None:
    """The manifest keeps the old front: after a crash the log starts at it, or a segment listed there is missing."""
    front = "Front(offset, len(gone))"
    written = f"        await manifest.write(log, disk, log.settled_segments, log.reserve, {front})\n"
    plant(patch, Edit(upkeep.delete_before, written, ""))


@caught_by(FALSE_DAMAGE)
def replaces_before_the_manifest_says_so(patch: pytest.MonkeyPatch) -> None:
    plant(
        patch,
        Edit(
            upkeep.replace_segments,
            "        log.segments[at : at + len(old)] = [new]\n",
            "        log.segments[at : at + len(old)] = [new]\n        remove_segments(log, disk, old)\n",
        ),
    )


@caught_by("Logs", CONTENTS)
def forgets_a_removal(patch: pytest.MonkeyPatch) -> None:
    """A removed log reappears after a power cut, or its records do, in a new log that was created under its name."""
    plant(patch, Edit(DataDirectory._rename, "await self.disk.sync_dir(LOGS)", "pass"))


# --- opening ----------------------------------------------------------------------------------------------------------


@caught_by("HighWatermark")
def keeps_a_high_watermark_beyond_the_end(patch: pytest.MonkeyPatch) -> None:
    plant(
        patch,
        Edit(
            recovery.open_log,
            "max(log.start_offset, min(log.high_watermark, log.written_end))",
            "max(log.start_offset, log.high_watermark)",
        ),
    )


@caught_by("HighWatermark", "Refused")
def gives_offsets_before_the_start(patch: pytest.MonkeyPatch) -> None:
    """A deletion reaches records that are not synced, and a power cut loses them."""
    plant(patch, Edit(upkeep.delete_before, "log.synced_end < offset", "False"))


@caught_by(CONTENTS)
def trusts_the_size_of_a_file(patch: pytest.MonkeyPatch) -> None:
    """A truncation whose sync failed is undone by a power cut."""
    patch.setattr(recovery._TailScan, "_lengthen", staticmethod(lambda _file, _size_bytes: None))


# --- damage -----------------------------------------------------------------------------------------------------------


@caught_by("Damage")
def vouches_for_damaged_headers(patch: pytest.MonkeyPatch) -> None:
    """A truncation reads damaged headers from the file, and the ledger covers them from then on."""
    plant(patch, Edit(truncation._shortened, "    if whole.header_sum != segment.header_sum:", "    if False:"))


@caught_by("Damage")
def takes_damage_for_a_torn_tail(patch: pytest.MonkeyPatch) -> None:
    plant(patch, Edit(recovery._TailScan.run, "if not self.has_reached_entry:", "if False:"))
    plant(patch, Edit(recovery._TailScan._refuse_or_drop, "if not self.has_reached_entry:", "if False:"))


@caught_by("CorruptBatch", "TornBatch")
def opens_no_log_beside_a_damaged_one(patch: pytest.MonkeyPatch) -> None:
    plant(patch, Edit(recovery._load_producers, "except CorruptBatch as error:", "except ZeroDivisionError as error:"))


@caught_by("Offline")
def goes_on_with_half_a_cut(patch: pytest.MonkeyPatch) -> None:
    plant(patch, Edit(truncation.truncate, "(OSError, DiskFull, CorruptBatch)", "(OSError, DiskFull)"))


# --- running them -----------------------------------------------------------------------------------------------------


def measure(name: str) -> Measured:
    return MUTANTS.measure(name)


TITLE = "Logs with one rule taken out, in overlapping histories"
ABOUT = "The log (`penstock.log`) in histories whose operations overlap (`tests/simulation/log/overlaps.py`)."

if __name__ == "__main__":
    sys.exit(MUTANTS.main(measure, TITLE, ABOUT))
