"""A broker that is killed beside a run: what the run reports, how it goes on, and how it ends when it is stopped."""

import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client.blocking import SyncClient
from tests.spark.lake.pipelines import KEPT, Driver, Pipeline
from tests.system.empty_environment import share_of_the_machine
from tests.system.victim import Victim

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]
SHOWN_S_MAX, REFUSED_S_MAX = 5.0, 15.0
RECORDS = 300
BAD = RECORDS // 100


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Victim]:
    with Victim(tmp_path / "broker") as victim:
        victim.data.parent.mkdir(parents=True)
        victim.start()
        victim.wait_ready()
        yield victim


def test_a_run_waits_for_its_broker_goes_on_and_does_not_end_well_without_it(
    tmp_path: Path, broker: Victim, record_property: Callable[[str, object], None]
) -> None:
    with SyncClient(broker.address) as client:
        client.create_topic("orders", 3, configs=KEPT)
        lake = Pipeline(tmp_path, broker.address, "orders", client)
        lake.describe()
        lake.fill(range(RECORDS))
        driver = lake.start("orders_lake")
        try:
            driver.wait_for(RECORDS - BAD)
            broker.end(signal.SIGKILL)
            waiting_s = shown_s(driver)
            broker.start()
            broker.wait_ready()
            lake.fill(range(RECORDS, 2 * RECORDS))
            driver.wait_for(2 * (RECORDS - BAD))
            broker.end(signal.SIGKILL)
            shown_s(driver)
            assert driver.end(signal.SIGINT) == 1, driver.log
        finally:
            driver.kill()
        assert "orders_lake: it was stopped while it waited for the broker (" in driver.log
        assert not [each for each in driver.said if each["state"] == "waiting for broker" and each["percent"] == 100]

        began_s = time.monotonic()
        refused = lake.run("run", "orders_lake")
        refused_s = time.monotonic() - began_s
        assert refused.returncode == 1
        assert refused_s <= REFUSED_S_MAX * share_of_the_machine()
        assert refused.stderr.startswith("penstock: cluster: no connection to"), refused.stderr

        broker.start()
        broker.wait_ready()
        assert lake.run("run", "orders_lake", "--once").returncode == 0
        lake.assert_table_is_topic()
    record_property("waiting_s", waiting_s)
    record_property("refused_s", refused_s)
    print(
        f"the outage was shown after {waiting_s:.1f} s; a start without the broker was refused after {refused_s:.1f} s"
    )


def test_a_start_against_a_broker_that_says_nothing_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, SyncClient("127.0.0.1:1") as nobody:
        lake = Pipeline(tmp_path, f"127.0.0.1:{silent.getsockname()[1]}", "orders", nobody)
        lake.describe()
        began_s = time.monotonic()
        refused = lake.run("run", "orders_lake")
        taken_s = time.monotonic() - began_s
    assert refused.returncode == 1
    assert "took the connection but did not answer within" in refused.stderr, refused.stderr
    assert taken_s <= REFUSED_S_MAX * share_of_the_machine()


def shown_s(driver: Driver) -> float:
    """How long it takes until the run reports that it waits for its broker."""
    began_s = time.monotonic()
    report = driver.wait_until("waiting for broker")
    taken_s = time.monotonic() - began_s
    assert report["reading"]["lag"] is None
    assert taken_s <= SHOWN_S_MAX * share_of_the_machine()
    return taken_s
