"""The file `boot`: which boot of the machine wrote this directory last, and which losses are not reported yet.

A killed process leaves the page cache whole: what it wrote is there, synced or not. A machine that crashed or lost its
power has a new page cache. The boot id (`Disk.boot_id`) tells the two apart. It is recorded durably before anything is
written under it, so a directory never carries the id of a boot that did not write its last bytes.

States of `loss`, which outlives restarts of the process:

    none            the directory holds all that its lives wrote
    unregistered    acknowledged records of topics with durability=replicated may be missing; the controller must learn
                    of it before the broker may lead or be in sync
    damaged         the same of all topics: what the ledger promised cannot be read any more
    unreported      the controller knows; the broker has not yet reported every partition that it leads regardless

Every failure to write the file errs towards distrust: an id that is not recorded does not match later, and a state that
is not replaced is the worse one.
"""

from contextlib import suppress
from typing import Final

from penstock.log import checked
from penstock.log.space import Reserve
from penstock.model.errors import DiskFull
from penstock.model.ports import Disk

BOOT: Final = "boot"
NONE: Final = "none"
UNREGISTERED: Final = "unregistered"
DAMAGED: Final = "damaged"
UNREPORTED: Final = "unreported"
VERSION: Final = 1
_LOSS_CHARS: Final = len(UNREGISTERED)
"""All states take the same room: a full disk that has one of them has room for the others."""


class Boot:
    """The record of one data directory."""

    def __init__(self, disk: Disk, reserve: Reserve) -> None:
        self._disk = disk
        self._reserve = reserve
        self.boot_id = disk.boot_id
        self.is_kept = False
        """Whether everything that the last life wrote is still there, synced or not."""
        self.loss = NONE
        """What this life has to report."""
        self.has_failed = False
        """Whether a write or a sync has failed in this life: the next life of the same boot vouches for nothing."""
        self._owes_mark = False

    async def begin(self, *, is_clean: bool) -> None:
        """Compares the recorded boot with the present one and records the present one, durably."""
        found = self._read()
        is_same_boot = found.get("boot_id") == self.boot_id
        loss = found.get("loss", UNREGISTERED)
        self.is_kept = is_clean or (is_same_boot and loss not in (UNREGISTERED, DAMAGED))
        if is_clean and loss != NONE and found:
            loss = UNREPORTED  # a clean shutdown leaves its marker only once the controller knows
        if self.is_kept:
            self.loss = loss if found else NONE
        else:
            self.loss = DAMAGED if loss == DAMAGED else UNREGISTERED
        if not is_same_boot or found.get("loss") != self.loss:
            await self._replace(self.loss)

    async def note(self, loss: str) -> None:
        """What is left to report. A mark that a sync has failed stays."""
        if self.loss != loss and not self.has_failed and await self._replace(loss):
            self.loss = loss

    async def found_damage(self) -> None:
        """Nobody knows what was promised: noted durably, because the next start will not find it any more."""
        self.is_kept = False
        self.loss = DAMAGED
        await self._replace(DAMAGED)

    def found_gap(self) -> None:
        """A log ends in a way that no killed process leaves: a part of the page cache is gone, whatever the boot id."""
        if self.is_kept:
            self.is_kept = False
            self.loss = UNREGISTERED
            self._mark()

    def fail(self) -> None:
        """A write or a sync failed. The kernel may have dropped the pages, so the next life must not vouch for them.

        The mark needs no sync: after a power cut the boot id differs anyway.
        """
        if not self.has_failed:
            self.has_failed = True
            self._mark()

    def keep_mark(self) -> None:
        """Writes the mark that could not be written before, if there is one."""
        if self._owes_mark:
            self._mark()

    def _mark(self) -> None:
        aside = BOOT + ".failed"
        try:
            content = self._encode(DAMAGED if self.loss == DAMAGED else UNREGISTERED)
            self._reserve.spend(lambda: checked.write_now(self._disk, aside, content)).close()
            self._disk.rename(aside, BOOT)
            self._owes_mark = False
        except (DiskFull, OSError):
            self._remove()

    def _remove(self) -> None:
        """Without a record the next life distrusts as well; removing takes no room."""
        try:
            if self._disk.exists(BOOT):
                self._disk.unlink(BOOT)
            self._owes_mark = False
        except OSError:
            self._owes_mark = True  # a disk that takes no change at all; see `keep_mark`

    def _read(self) -> dict[str, str]:
        with suppress(checked.Damaged, OSError):
            found = checked.read(self._disk, BOOT, BOOT, VERSION).value
            return {"boot_id": found["boot_id"], "loss": found["loss"].strip()}
        return {}

    async def _replace(self, loss: str) -> bool:
        aside = BOOT + ".new"
        with suppress(DiskFull, OSError):  # what stands there leads to distrust
            await checked.write_whole(self._disk, aside, self._encode(loss), self._reserve)
            if not self.has_failed:  # else the mark, which was written meanwhile, stays
                self._disk.rename(aside, BOOT)
                await self._disk.sync_dir("")
                return True
        return False

    def _encode(self, loss: str) -> bytes:
        return checked.encode(BOOT, VERSION, {"boot_id": self.boot_id, "loss": loss.ljust(_LOSS_CHARS)})
