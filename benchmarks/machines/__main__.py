"""Measures a cluster on several machines under load from several: python -m benchmarks.machines inventory.toml."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.machines.cluster import Cluster
from benchmarks.machines.inventory import Inventory, WrongInventory, read
from benchmarks.machines.shells import Failed
from benchmarks.machines.table import Round, page

TOPIC = "penstock-machines"
KINDS = ("produce", "consume")


def measure(inventory: Inventory) -> tuple[str, list[Round]]:
    """Starts the cluster, applies the load and stops the cluster; returns the page and its rounds."""
    cluster = Cluster(inventory)
    versions = cluster.versions()
    try:
        say(f"starting {len(inventory.nodes())} brokers")
        cluster.start()
        cluster.make_topic(TOPIC)
        rounds = [one_round(cluster, kind) for kind in KINDS]
    finally:
        cluster.stop()
    return page(inventory, versions, rounds), rounds


def one_round(cluster: Cluster, kind: str) -> Round:
    before = cluster.sample()
    say(f"{kind}: {cluster.inventory.load.seconds:g} s")
    told = cluster.load(kind, TOPIC)
    return Round(kind, told, before, cluster.sample())


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines", description=__doc__)
    parser.add_argument("inventory", type=Path, help="a TOML file; benchmarks/machines/README.md tells what is in it")
    parser.add_argument("--output", type=Path, help="a folder for the page and its figures as JSON")
    options = parser.parse_args()
    try:
        text, rounds = measure(read(options.inventory))
    except (WrongInventory, Failed, OSError) as error:
        say(f"{error}.")
        return 1
    print(text)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "machines.md").write_text(text)
        (options.output / "machines.json").write_text(json.dumps([asdict(each) for each in rounds], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
