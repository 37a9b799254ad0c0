"""Inventories of machines are parsed or refused with the fix; the results of a run become one page."""

from pathlib import Path

import pytest

import benchmarks.machines
from benchmarks.machines.cluster import MARK, Cluster, Sample
from benchmarks.machines.inventory import Inventory, Machine, WrongInventory, properties_of, read
from benchmarks.machines.shells import Failed, LocalShell, SshShell, shell_of
from benchmarks.machines.table import Round, page

GOOD = """
directory = "/data/bench"
[topic]
replicas = 3
[[machine]]
name = "a"
address = "10.0.0.1"
ssh = "bench@a"
brokers = 2
controller = true
[[machine]]
name = "b"
address = "10.0.0.2"
ssh = "bench@b"
brokers = 1
[[machine]]
name = "load"
address = "10.0.0.3"
generators = 2
"""


def inventory_of(text: str, tmp_path: Path) -> Inventory:
    path = tmp_path / "inventory.toml"
    path.write_text(text)
    return read(path)


def test_brokers_are_numbered_over_machines_and_a_machine_is_a_rack(tmp_path: Path) -> None:
    inventory = inventory_of(GOOD, tmp_path)
    nodes = inventory.nodes()
    assert [(node.node_id, node.address, node.controller_port) for node in nodes] == [
        (1, "10.0.0.1:19092", 19093),
        (2, "10.0.0.1:19094", None),
        (3, "10.0.0.2:19092", None),
    ]
    assert inventory.bootstrap == "10.0.0.1:19092,10.0.0.2:19092"
    settings = dict(line.split("=", 1) for line in properties_of(nodes[2], nodes, inventory).splitlines())
    assert settings["broker.rack"] == "b"
    assert settings["controller.quorum.voters"] == "1@10.0.0.1:19093"
    assert settings["process.roles"] == "broker"
    assert settings["log.dirs"] == "/data/bench/b/node-3/data"


def test_the_inventory_that_ships_can_be_read() -> None:
    path = Path(benchmarks.machines.__path__[0]) / "local.toml"
    assert len(read(path).nodes()) == 3


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("brokers = 2", "broker = 2", "nobody knows broker"),
        ("controller = true", "controller = false", "nobody is a controller"),
        ("generators = 2", "generators = 0", "nobody makes a load"),
        ("replicas = 3", "replicas = 4", "4 replicas need as many brokers, and there are 3"),
        ('name = "b"', 'name = "a"', "the same name"),
        ('name = "b"', 'name = "b; rm"', "names no machine"),
        ('address = "10.0.0.2"', "", "has no address"),
        ('"/data/bench"', '"/data"', "will be removed"),
        ("[topic]", "[topic", "is no TOML"),
        ("replicas = 3", "replications = 3", r"\[topic\]: nobody knows replications"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_started(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(WrongInventory, match=told):
        inventory_of(GOOD.replace(old, new), tmp_path)


def test_a_machine_without_ssh_is_this_one() -> None:
    assert isinstance(shell_of(Machine("here", "127.0.0.1")), LocalShell)
    assert isinstance(shell_of(Machine("there", "10.0.0.1", ssh="-p 2222 bench@there")), SshShell)


def test_a_script_that_fails_tells_where_and_what() -> None:
    with pytest.raises(Failed, match=r"^here: no such thing: "):
        LocalShell("here").run("echo no such thing >&2; exit 3")
    with pytest.raises(Failed, match="did not answer within"):
        LocalShell("here").run("sleep 10", timeout_s=0.1)
    assert LocalShell("here").run("cat", given="something") == "something"


def test_a_directory_that_nobody_made_is_left_alone(tmp_path: Path) -> None:
    """A start does not take the directory over, and a stop does not remove it."""
    (tmp_path / "precious").write_text("mine")
    machine = Machine("here", "127.0.0.1", brokers=1, is_controller=True)
    cluster = Cluster(Inventory((machine,), directory=str(tmp_path)))
    cluster.stop()
    assert (tmp_path / "precious").read_text() == "mine"
    with pytest.raises(Failed, match="is there already"):
        cluster.start()


def test_what_another_run_is_using_is_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "bench"
    machines = tuple(Machine(name, "127.0.0.1", brokers=1, is_controller=True) for name in "ab")
    first, second = (Cluster(Inventory(machines, directory=str(directory))) for _ in range(2))
    for machine in machines:
        first._make_directory(machine, first.shells[machine.name])
    with pytest.raises(Failed, match="is there already"):
        second.start()
    second.stop()
    assert sorted(path.name for path in directory.iterdir()) == ["a", "b", MARK]
    first.stop()
    assert not directory.exists()


def test_all_that_was_found_is_one_page(tmp_path: Path) -> None:
    produced = {"mb_per_s": 100.0, "records_per_s": 1e6, "seconds": 10.0, "ack_p50_ms": 1.5, "ack_p99_ms": None}
    rounds = [
        Round(
            "produce",
            [("load", produced), ("load", produced)],
            {"a": Sample(10.0, 80.0, 100.0), "b": Sample(5.0, 40.0, 50.0)},
            {"a": Sample(22.0, 90.0, 4_100.0), "b": Sample(11.0, 45.0, 2_050.0)},
        )
    ]
    text = page(inventory_of(GOOD, tmp_path), {"a": "penstock 1"}, rounds)
    assert "3 brokers on 2 machines, 2 generators" in text
    assert "| produce | load | 100.0 | 1,000,000 | 1.50 | – |" in text
    assert "| produce | **all** | **200.0** |" in text
    assert "| produce | a | 1.20 | 90 | 4,000 |" in text
    assert "produce: 9.00 CPU seconds of the brokers per GB." in text, "18 s for 2 GB"
    assert "`penstock size` supposes" in text
