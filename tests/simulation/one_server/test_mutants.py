"""The worlds detect bugs: each safeguard removed from node, log or client is noticed within 200, most within five."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.producer import outbox as outbox_module
from penstock.client.producer.outbox import Outbox
from penstock.host.lossy import LossyDisk
from penstock.log import manifest as manifest_module
from penstock.log import recovery as recovery_module
from penstock.log.log import Log, SyncTicket
from penstock.log.producers import ProducerStates
from penstock.metadata import events
from penstock.metadata.runtime import ControllerRuntime
from penstock.model.errors import ErrorCode
from penstock.model.ports import Disk
from penstock.replication.fetch_sessions import RequestedPartition
from penstock.server.connections.response_order import Order
from penstock.server.connections.serving import Answer
from penstock.server.loop.timing import Timing
from penstock.server.loop.waiters import Watchers
from penstock.server.partitions.partition import Partition
from penstock.server.replicas.log_reconciler import LogReconciler
from tests.simulation.one_server.world import run_seed

SEEDS_MAX = 200
FIRST_SEEDS = {"replies_before_the_metadata_is_durable": 40, "shows_a_new_start_before_it_is_durable": 59}
"""If many worlds pass before one notices the mutant, the run begins shortly before that one."""


def acknowledges_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "durable_end", property(lambda self: self.written_end))


def shows_records_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark runs ahead of the disk; acknowledgements still wait for it."""
    advance = Partition.advance

    def runs_ahead(self: Partition) -> None:
        self.log.advance_high_watermark(self.log.written_end)
        self.watchers.notify()
        advance(self)

    monkeypatch.setattr(Partition, "advance", runs_ahead)


def forgets_producers_at_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_module, "_load_producers", lambda *_: ProducerStates())
    monkeypatch.setattr(recovery_module._TailScan, "_finish", _and_forget(recovery_module._TailScan._finish))


def _and_forget(finish: Callable[..., None]) -> Callable[..., None]:
    def finish_and_forget(self: Any, *rest: Any) -> None:
        finish(self, *rest)
        self.log.producers = ProducerStates()

    return finish_and_forget


def takes_what_it_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """No deduplication: a batch that is sent again is appended again."""
    monkeypatch.setattr(ProducerStates, "check", lambda *_: None)


def forgets_new_names(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Log.begin_sync

    def without_names(self: Log) -> SyncTicket | None:
        ticket = begin(self)
        return ticket._replace(has_new_names=False) if ticket is not None else None

    monkeypatch.setattr(Log, "begin_sync", without_names)


def syncs_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_self: LossyDisk, _path: str) -> None:
        return None

    monkeypatch.setattr(LossyDisk, "sync_dir", nothing)


def answers_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response that is ready does not wait for those before it."""
    add = Order.add

    def at_once(
        self: Order, answer: Answer, cost_bytes: int, timing: Timing, began_s: float, give: Callable[[int], None]
    ) -> None:
        if isinstance(answer, list | tuple) and len(self):
            asyncio.get_running_loop().create_task(self._send(answer))  # type: ignore[arg-type]
            answer = None
        add(self, answer, cost_bytes, timing, began_s, give)

    monkeypatch.setattr(Order, "add", at_once)


def forgets_to_wake_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watchers, "notify", lambda _: None)


def adopts_all_but_the_last_log(monkeypatch: pytest.MonkeyPatch) -> None:
    start = LogReconciler.start

    async def overlooks_one(self: LogReconciler) -> None:
        logs = self._directory.logs
        if len(logs) > 3:
            logs.pop(max(name for name in logs if not name.startswith("__")))
        await start(self)

    monkeypatch.setattr(LogReconciler, "start", overlooks_one)


def replies_before_the_metadata_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: ControllerRuntime) -> None:
        self._publish(self.controller.image)
        replies, _ = self._replies.leave(1 << 62)
        self._effects += [events.Answer(ticket, reply) for ticket, reply in replies]

    monkeypatch.setattr(ControllerRuntime, "_leave", at_once)


def trusts_the_page_cache_after_a_failed_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_module._TailScan, "_write_again", lambda *_: None)


def shows_a_new_start_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    write = manifest_module.write

    async def shows_first(log: Log, disk: Disk, settled: int, reserve: Any = None, front: Any = None) -> None:
        if front is not None:
            log.start_offset = front.start_offset
        await write(log, disk, settled, reserve, front)

    monkeypatch.setattr(manifest_module, "write", shows_first)


def sends_a_batch_that_may_have_arrived_as_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the client: after a lost connection a batch is assumed not to have arrived, and gets a new sequence."""
    answered, not_appended = Outbox.answered, outbox_module._NOT_APPENDED
    monkeypatch.setattr(outbox_module, "_NOT_APPENDED", (*not_appended, ErrorCode.NETWORK_EXCEPTION))

    def starts_anew(self: Outbox, batch: Any, code: ErrorCode, *rest: Any) -> Any:
        if code is ErrorCode.NETWORK_EXCEPTION:
            self._wants_reset = True
        return answered(self, batch, code, *rest)

    monkeypatch.setattr(Outbox, "answered", starts_anew)


def leaves_news_out_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session's reader is sent records only when the log start moves as well."""
    monkeypatch.setattr(
        RequestedPartition, "is_news", lambda self, found: found.log_start_offset != self.told_log_start
    )


def keeps_a_deleted_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    async def leaves_it(self: LogReconciler, name: str, index: int) -> None:
        del self._logs[name][index]
        await asyncio.sleep(0)

    monkeypatch.setattr(LogReconciler, "_remove", leaves_it)


@pytest.mark.parametrize(
    "mutant",
    [
        acknowledges_before_the_sync,
        shows_records_before_the_sync,
        forgets_producers_at_a_start,
        takes_what_it_has_seen,
        forgets_new_names,
        syncs_no_directory,
        answers_out_of_order,
        forgets_to_wake_readers,
        adopts_all_but_the_last_log,
        replies_before_the_metadata_is_durable,
        trusts_the_page_cache_after_a_failed_sync,
        shows_a_new_start_before_it_is_durable,
        sends_a_batch_that_may_have_arrived_as_a_new_one,
        leaves_news_out_of_a_session,
        keeps_a_deleted_topic,
    ],
)
def test_the_worlds_notice(
    mutant: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    mutant(monkeypatch)
    for seed in range(FIRST_SEEDS.get(mutant.__name__, 0), SEEDS_MAX):
        try:
            run_seed(seed)
        except Exception:
            record_property("seeds_needed", seed + 1)
            return
    raise AssertionError(f"{mutant.__name__} went unnoticed in {SEEDS_MAX} worlds")
