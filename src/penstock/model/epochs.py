"""Bounds of epochs. Epochs are numbers on the wire and in logs; `next_epoch` checks that the next one fits."""

from typing import Final

from penstock.model.errors import ErrorCode, ProtocolError

INT32_EPOCH_MAX: Final = 2**31 - 1
"""The last leader epoch, quorum epoch, partition epoch and group epoch."""

INT64_EPOCH_MAX: Final = 2**63 - 1
"""The last broker epoch."""


class EpochsExhausted(ProtocolError):
    """The next epoch does not fit into its field. Nothing was changed."""

    code = ErrorCode.INVALID_REQUEST


def next_epoch(epoch: int, what: str) -> int:
    """Returns the epoch after this one; raises EpochsExhausted, naming `what`, if there is none."""
    if epoch >= INT32_EPOCH_MAX:
        raise EpochsExhausted(f"{what} has reached the last epoch, {INT32_EPOCH_MAX}")
    return epoch + 1
