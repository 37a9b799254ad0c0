"""Reports of a broker's replicas to its operator."""

from typing import Final

from penstock.model.report import Kind, Level

LEADS: Final = Kind(
    "replica-leads",
    "Leads {partition} in epoch {epoch}, from offset {start_offset} on.",
    "The controller has made this broker the leader; clients find it by themselves.",
    of_each="partition",
)
FOLLOWS: Final = Kind(
    "replica-follows",
    "Follows broker {leader} for {partition} in epoch {epoch}.",
    "The controller has made another broker the leader.",
    of_each="partition",
    alike=("leader",),
)
STOPPED: Final = Kind(
    "replica-without-leader",
    "Nobody leads {partition} in epoch {epoch}.",
    "Records can be neither written nor read until a replica that has all committed records is up.",
    of_each="partition",
)
LOG_FAILED: Final = Kind(
    "replica-log-failed",
    "The log of {partition} can be neither read nor written here any more, in epoch {epoch}.",
    "Its disk failed, or what is on it is damaged: the log says more before this. Another replica takes over if there "
    "is one.",
    Level.WARNING,
    of_each="partition",
)
LATE: Final = Kind(
    "replica-late",
    "Goes on without broker {late} in {partition}: it has not caught up for {lag_ms} ms. In sync then: {isr}.",
    "See [a follower lags](follower-lags.md). The controller tells when it is so (isr-changed).",
    of_each="partition",
    alike=("late",),
)
CAUGHT_UP: Final = Kind(
    "replica-caught-up",
    "Broker {caught_up} has caught up in {partition}. In sync then: {isr}.",
    "A replica is back. The controller tells when it is so (isr-changed).",
    of_each="partition",
    alike=("caught_up",),
)
LOG_CUT: Final = Kind(
    "replica-log-cut",
    "Cuts {partition} at offset {end_offset} (it ended at {was}): broker {leader}, which leads epoch {epoch}, has it "
    "otherwise.",
    "What is cut was not committed, unless `replica-records-lost` says otherwise.",
    of_each="partition",
)
RECORDS_LOST: Final = Kind(
    "replica-records-lost",
    "{partition} is cut back to offset {end_offset}, {lost} records that were committed are gone: its leader does not "
    "have them.",
    "After an unclean election, or more failures at once than are promised. See [records were lost](records-lost.md).",
    Level.WARNING,
)
LOG_RESTARTED: Final = Kind(
    "replica-log-restarted",
    "Begins {partition} anew at offset {offset}: the log of broker {leader}, leader of epoch {epoch}, begins there.",
    "This replica was further behind than the leader's log goes back; it is copied.",
    of_each="partition",
)

KINDS: Final = (LEADS, FOLLOWS, STOPPED, LOG_FAILED, LATE, CAUGHT_UP, LOG_CUT, RECORDS_LOST, LOG_RESTARTED)
