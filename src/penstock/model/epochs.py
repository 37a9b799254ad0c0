"""Ends of epochs. An epoch is a number on the wire and in logs; the next one is computed here and nowhere else."""

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
    """The epoch after this one; EpochsExhausted, with `what` it belongs to, at the end."""
    if epoch >= INT32_EPOCH_MAX:
        raise EpochsExhausted(f"{what} has reached the last epoch, {INT32_EPOCH_MAX}")
    return epoch + 1
