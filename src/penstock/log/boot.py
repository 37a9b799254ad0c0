"""The file `boot`: the boot id under which this directory was last written, and the loss that is not reported yet.

A killed process leaves the page cache intact: everything it wrote is there, synced or not. After a machine crash or a
power cut the page cache is new. The boot id (`Disk.boot_id`) distinguishes the two. It is recorded durably before
anything is written under it, so a directory never carries the id of a boot that did not write its last bytes.

States of `loss`, which survives restarts of the process:

    none            the directory holds everything that earlier runs wrote
    unregistered    acknowledged records of topics with durability=replicated may be missing; the controller must learn
                    of it before the broker may lead or be in sync
    damaged         the same for all topics: ledger entries are damaged, so the promised log ends are unknown
    unreported      the controller is informed; the broker has not yet reported every partition that it leads anyway

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
"""All states are padded to the same size: a full disk that holds one of them has space for the others."""


class Boot:
    """The boot record of one data directory."""

    def __init__(self, disk: Disk, reserve: Reserve) -> None:
        self._disk = disk
        self._reserve = reserve
        self.boot_id = disk.boot_id
        self.is_kept = False
        """Whether everything that the previous run wrote is still there, synced or not."""
        self.loss = NONE
        """The loss that this run has to report."""
        self.has_failed = False
        """Whether a write or sync failed in this run; then the next run of the same boot distrusts the page cache."""
        self._owes_mark = False

    async def begin(self, *, is_clean: bool) -> None:
        """Compares the recorded boot id with the current one and records the current one durably."""
        found = self._read()
        is_same_boot = found.get("boot_id") == self.boot_id
        loss = found.get("loss", UNREGISTERED)
        self.is_kept = is_clean or (is_same_boot and loss not in (UNREGISTERED, DAMAGED))
        if is_clean and loss != NONE and found:
            loss = UNREPORTED  # the clean-shutdown marker is written only once the controller is informed
        if self.is_kept:
            self.loss = loss if found else NONE
        else:
            self.loss = DAMAGED if loss == DAMAGED else UNREGISTERED
        if not is_same_boot or found.get("loss") != self.loss:
            await self._replace(self.loss)

    async def note(self, loss: str) -> None:
        """Records the loss that is left to report. The mark of a failed write or sync is kept."""
        if self.loss != loss and not self.has_failed and await self._replace(loss):
            self.loss = loss

    async def found_damage(self) -> None:
        """Records durably that the promised ends are unknown: the next start would not find the damage again."""
        self.is_kept = False
        self.loss = DAMAGED
        await self._replace(DAMAGED)

    def found_gap(self) -> None:
        """Records that cached pages are lost, whatever the boot id: no killed process leaves such a log end."""
        if self.is_kept:
            self.is_kept = False
            self.loss = UNREGISTERED
            self._mark()

    def fail(self) -> None:
        """Records that a write or sync failed: the kernel may have dropped the pages, so the next run distrusts them.

        The mark needs no sync: after a power cut the boot id differs anyway.
        """
        if not self.has_failed:
            self.has_failed = True
            self._mark()

    def keep_mark(self) -> None:
        """Writes the mark again if an earlier attempt failed."""
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
        """Removes the record: without it the next run distrusts as well, and removing needs no space."""
        try:
            if self._disk.exists(BOOT):
                self._disk.unlink(BOOT)
            self._owes_mark = False
        except OSError:
            self._owes_mark = True  # the disk accepts no change at all; see `keep_mark`

    def _read(self) -> dict[str, str]:
        with suppress(checked.Damaged, OSError):
            found = checked.read(self._disk, BOOT, BOOT, VERSION).value
            return {"boot_id": found["boot_id"], "loss": found["loss"].strip()}
        return {}

    async def _replace(self, loss: str) -> bool:
        aside = BOOT + ".new"
        with suppress(DiskFull, OSError):  # the old content leads to distrust
            await checked.write_whole(self._disk, aside, self._encode(loss), self._reserve)
            if not self.has_failed:  # otherwise the mark written meanwhile stays
                self._disk.rename(aside, BOOT)
                await self._disk.sync_dir("")
                return True
        return False

    def _encode(self, loss: str) -> bytes:
        return checked.encode(BOOT, VERSION, {"boot_id": self.boot_id, "loss": loss.ljust(_LOSS_CHARS)})
