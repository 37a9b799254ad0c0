"""deploy/compose-cluster.yaml: three nodes and Prometheus from its fields, clients inside and outside of its network.

Nothing here runs containers: see `compose.py` for what takes their place. Grafana is not among what CI can install; the
test sends Prometheus every query of the dashboard from Grafana's place in the network, and checks Grafana's files.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from penstock import Client
from penstock.client.errors import Refused
from tests.compatibility import debian
from tests.system.commands import ENVIRONMENT, PENSTOCK
from tests.system.compose import COMPOSE_CLUSTER, OURS, Composed, services_of
from tests.system.containerfile import DEPLOY, last, variables
from tests.system.dashboard import FOUND_S, TOPICS, queries, traffic, watch
from tests.system.prometheus import PACKAGE, Questions

pytestmark = pytest.mark.xdist_group("prometheus")

NODES: Final = ("penstock-1", "penstock-2", "penstock-3")
INSIDE: Final = {f"penstock-{number}:9092" for number in (1, 2, 3)}
OUTSIDE: Final = {"localhost:19092", "localhost:29092", "localhost:39092"}
PROVISIONING: Final = DEPLOY / "grafana" / "provisioning"
ASK_ALL: Final = """
import json, sys
from tests.system.prometheus import Questions
found = Questions(sys.argv[1])
print(json.dumps([title for title, query in json.load(sys.stdin).items() if not found.query(query)]))
"""


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.fixture(scope="module")
def source() -> dict[str, Any]:
    """Grafana's data source."""
    (found,) = read(PROVISIONING / "datasources" / "prometheus.yml")["datasources"]
    return dict(found)


# --- files ------------------------------------------------------------------------------------------------------------


def test_its_nodes_agree_with_the_image() -> None:
    services = services_of(COMPOSE_CLUSTER)
    command = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    assert [name for name, each in services.items() if each["image"] == OURS] == list(NODES)
    for name in NODES:
        service = services[name]
        assert service["healthcheck"]["test"] == ["CMD", *command]
        assert [each.partition(":")[2] for each in service["volumes"]] == [last("VOLUME")]
        assert service["build"] == {"context": "..", "dockerfile": "deploy/Containerfile"}
    for service in services.values():
        assert all(each.startswith("127.0.0.1:") for each in service["ports"]), "there are no logins"


def test_prometheus_and_grafana_agree_with_the_nodes(source: dict[str, Any]) -> None:
    services = services_of(COMPOSE_CLUSTER)
    settings = read(DEPLOY / "prometheus" / "compose-cluster.yml")
    _, _, port = variables()["PENSTOCK_METRICS_LISTENER"].partition(":")
    assert port in last("EXPOSE").split()
    assert settings["scrape_configs"][0]["static_configs"][0]["targets"] == [f"{name}:{port}" for name in NODES]
    assert source["type"] == "prometheus"
    assert source["jsonData"]["timeInterval"] == settings["global"]["scrape_interval"]
    mounts = dict(each.split(":")[:2] for each in services["grafana"]["volumes"])
    assert mounts["./grafana/provisioning"] == "/etc/grafana/provisioning"
    dashboard = Path(mounts["./grafana/penstock.json"])
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    (provider,) = read(PROVISIONING / "dashboards" / "penstock.yml")["providers"]
    assert (home, provider["type"], provider["options"]["path"]) == (str(dashboard), "file", str(dashboard.parent))


# --- running ----------------------------------------------------------------------------------------------------------


def until(is_so: Any, composed: Composed) -> None:
    deadline = time.monotonic() + FOUND_S
    while not is_so():
        for name, process in composed.running.items():
            assert process.poll() is None, composed.log(name)[-4000:]
        assert time.monotonic() < deadline
        time.sleep(0.2)


async def brokers(bootstrap: str) -> set[str]:
    """The addresses that the cluster describes."""
    async with Client(bootstrap, timeout_ms=60_000) as client:
        return {str(each.address) for each in (await client.admin.describe_cluster()).brokers}


async def create(bootstrap: str) -> None:
    async with Client(bootstrap, timeout_ms=60_000) as client:
        await client.admin.create_topic("defaults", partitions=1)
        found = (await client.admin.describe_topics(["defaults"]))["defaults"]
        assert not isinstance(found, Refused)
        assert len(found.partitions[0].replicas) == 3, "the default of the file"
        for name, least, replicas in TOPICS:
            configs = {"min.insync.replicas": str(least)}
            await client.admin.create_topic(name, partitions=6, replication_factor=replicas, configs=configs)


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_clients_on_both_sides_and_a_dashboard_without_gaps(tmp_path: Path, source: dict[str, Any]) -> None:
    try:
        programs = {"prom/prometheus": lambda: debian.unpacked("prometheus", PACKAGE)}
        programs["prom/prometheus"]()
    except debian.Missing as missing:
        pytest.skip(str(missing))
    asked = queries(f"{4 * int(source['jsonData']['timeInterval'].removesuffix('s'))}s")
    with Composed(COMPOSE_CLUSTER, tmp_path, programs, others=["elsewhere"]) as composed:
        assert composed.running.keys() == {*NODES, "prometheus"}

        def inside(place: str, *command: str, given: bytes = b"") -> str:
            line = [*composed.prefix(place), *command]
            done = subprocess.run(line, input=given, capture_output=True, env=ENVIRONMENT, timeout=300, check=False)
            assert done.returncode == 0, done.stderr.decode()
            return done.stdout.decode()

        composed.network.enter()
        until(lambda: all(composed.is_healthy(name) for name in NODES), composed)
        until(lambda: asyncio.run(brokers("localhost:19092")) == OUTSIDE, composed)
        assert asyncio.run(brokers("localhost:39092")) == OUTSIDE
        asyncio.run(create("localhost:29092"))
        told = json.loads(inside("elsewhere", *PENSTOCK, "broker", "list", "-o", "json", "-b", "penstock-2:9092"))
        assert {each["address"] for each in told} == INSIDE
        with traffic("localhost:19092,localhost:29092") as written:
            records = b"".join(b"%d\n" % number for number in range(60))
            inside("elsewhere", *PENSTOCK, "produce", "strict", "-b", "penstock-3:9092", given=records)
            prometheus = Questions("http://localhost:9090")
            until(lambda: prometheus.get("/-/ready") is not None, composed)
            watch(prometheus, asked)
        assert [value for _, value in prometheus.query("count(up == 1)")] == [3]
        total = 'sum(kafka_topic_partition_current_offset{topic=~"orders|strict"})'
        prometheus.until(lambda: [value for _, value in prometheus.query(total)] == [written[0] + 60], FOUND_S)
        ask = (sys.executable, "-c", ASK_ALL, source["url"])
        assert json.loads(inside("grafana", *ask, given=json.dumps(asked).encode())) == []
        assert composed.stop() == dict.fromkeys(composed.running, 0), [composed.log(each)[-500:] for each in NODES]
