"""Generates docs/scale.md: plans for four sizes of cluster, computed by the model behind `penstock size`."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.cli.size import known_as, notes
from penstock.sizing.coefficients import COEFFICIENTS
from penstock.sizing.demand import Durability, Hardware, Load
from penstock.sizing.limits import Limit, requirements_of
from penstock.sizing.plan import Plan, plan
from penstock.sizing.quantities import parse_bytes, parse_rate, parse_seconds, show_bytes, shown

ONE_NODE = "--write 20MB/s --read-fanout 2 --replication-factor 1 --partitions 100"
GIGABYTE = "--write 1GB/s --read-fanout 3 --partitions 3000 --retention 1d"
TEN = "--write 10GB/s --read-fanout 3 --partitions 30000 --retention 1d --network 25Gbit/s --disk-write 1GB/s"
MILLION = "--write 1GB/s --read-fanout 3 --partitions 1000000 --retention 1d"
SIZES = {"One node": ONE_NODE, "1 GB/s": GIGABYTE, "10 GB/s": TEN, "1,000,000 partitions": MILLION}
FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "--write": ("write_bytes_s", parse_rate),
    "--read-fanout": ("read_fanout", float),
    "--replication-factor": ("replication_factor", int),
    "--partitions": ("partitions", int),
    "--retention": ("retention_s", parse_seconds),
    "--network": ("network_bytes_s", parse_rate),
    "--disk-write": ("disk_write_bytes_s", parse_rate),
}
BATCHES = (1_000.0, parse_bytes("4KiB"), parse_bytes("16KiB"), parse_bytes("64KiB"))


def page() -> str:
    """The whole page."""
    plans = {name: planned(arguments) for name, arguments in SIZES.items()}
    return "".join(
        [
            INTRODUCTION,
            "## Where the first limit lies\n\n",
            *_overview(plans),
            "\n## One node\n\n",
            *_one_node(plans["One node"]),
            *_section("1 GB/s", plans["1 GB/s"], GIGABYTE_TEXT),
            *_section("10 GB/s", plans["10 GB/s"], TEN_TEXT),
            *_section("1,000,000 partitions", plans["1,000,000 partitions"], MILLION_TEXT),
            WHAT_WAS_RUN,
            *_runs(),
            "## What the plan works with\n\n",
            *_coefficients(),
            CLOSING,
        ]
    )


def planned(arguments: str) -> Plan:
    """The plan that `penstock size` computes for these arguments."""
    words = shlex.split(arguments)
    given = {FIELDS[name][0]: FIELDS[name][1](text) for name, text in zip(words[::2], words[1::2], strict=True)}
    of_hardware = {name: given.pop(name) for name in ("network_bytes_s", "disk_write_bytes_s") if name in given}
    return plan(Load(**given), Hardware(**of_hardware))


# --- parts ------------------------------------------------------------------------------------------------------------


def _overview(plans: dict[str, Plan]) -> Iterator[str]:
    yield "| Asked for | Brokers | First limit | Next limit | With `durability=replicated` | Known |\n"
    yield "|---|--:|---|---|---|---|\n"
    for name, found in plans.items():
        second = found.requirements[1]
        other = requirements_of(replace(found.load, durability=Durability.REPLICATED), found.hardware)[0]
        yield (
            f"| {name} | {found.brokers:,} | {found.first_limit.value} | {second.limit.value}, at {second.brokers:,} "
            f"| {other.brokers:,}, then {other.limit.value} | {known_as(found.figures[0])} |\n"
        )


def _one_node(found: Plan) -> Iterator[str]:
    yield ONE_NODE_TEXT
    yield "| What a producer sends at once | `durability=fsync`, the default | `durability=replicated` | Known |\n"
    yield "|--:|--:|--:|---|\n"
    for batch_bytes in BATCHES:
        fsync, replicated = (_most(batch_bytes, each) for each in Durability)
        yield f"| {show_bytes(batch_bytes)} | {show_bytes(fsync)}/s | {show_bytes(replicated)}/s | extrapolated |\n"
    yield f"\n{ONE_NODE_MORE}"
    yield from _figures(ONE_NODE, found)


def _most(batch_bytes: float, durability: Durability) -> float:
    """Write throughput of one node, each byte written once and read once, with the headroom that a plan keeps."""
    load = Load(1e6, replication_factor=1, batch_bytes=batch_bytes, durability=durability)
    cpu = next(each for each in requirements_of(load, Hardware()) if each.limit is Limit.CPU)
    return load.write_bytes_s / cpu.exact


def _section(name: str, found: Plan, text: str) -> Iterator[str]:
    yield f"## {name}\n\n{text}\n"
    yield from _figures(SIZES[name], found)


def _figures(arguments: str, found: Plan) -> Iterator[str]:
    yield f"```sh\npenstock size {arguments}\n```\n\n| What | Value | Known | From |\n|---|--:|---|---|\n"
    for figure in found.figures:
        yield (
            f"| {figure.name} | {shown(figure.value, figure.unit)} | {known_as(figure)} | {_links(figure.pages)} |\n"
        )
    if found.brokers > 1:
        asked = ", ".join(f"{each.limit.value} {each.brokers:,}" for each in found.requirements if each.brokers > 1)
        yield f"\nBrokers that each limit asks for: {asked}.\n"
    if found.levers:
        moves = "; ".join(f"{each.change}: {each.brokers:,}, then {each.then.value}" for each in found.levers)
        yield f"What would take fewer: {moves}.\n"
    for note in notes(found):
        yield f"\n> {note[0].upper()}{note[1:]}.\n"
    yield "\n"


def _links(pages: tuple[str, ...]) -> str:
    return ", ".join(f"[{each.removesuffix('.md')}](results/{each})" for each in pages) or "–"


def _runs() -> Iterator[str]:
    def said(key: str) -> str:
        return shown(COEFFICIENTS[key].value, COEFFICIENTS[key].unit)

    def row(what: str, key: str, text: str) -> str:
        each = COEFFICIENTS[key]
        return f"| {what} | {said(key)} | {each.tag.value} | {text} ({_links((each.page,))}) |\n"

    yield row("one broker under full load", "most.fsync", "most that it took, from stable storage, on one core")
    served = f"all let in after {said('thirty.serve')}; one lost: led again after {said('thirty.led_again')}"
    cost = f"idle, each takes {said('thirty.idle')} and {said('thirty.memory')}"
    yield row("real processes on one machine", "thirty.nodes", f"{served}; {cost}")
    yield row(
        "brokers simulated on a real quorum", "big.brokers", f"a rack lost: all led again after {said('big.rack')}"
    )
    yield row(
        "replicas on a broker", "density.replicas", f"one of three lost: led again after {said('density.led_again')}"
    )
    loaded = f"loaded in {said('controller.load')}, {said('controller.memory')}"
    yield row("partitions in one controller", "controller.partitions", loaded)
    yield "\n"


def _coefficients() -> Iterator[str]:
    yield "| Coefficient | Value | Known | Where it stands |\n|---|--:|---|---|\n"
    for key, each in COEFFICIENTS.items():
        value = shown(each.value, each.unit)
        link = f"[{each.page.removesuffix('.md')}](results/{each.page})"
        yield f"| `{key}` | {value} | {each.tag.value} | {link}: {each.where} |\n"


# --- prose ------------------------------------------------------------------------------------------------------------

INTRODUCTION = """# From one node to many

Made by `./dev pages` from the model behind `penstock size`; a test holds this page and every number that the model
uses against the pages of results.

A figure is **measured** when it was seen on real processes at that size, **simulated** when it was seen in virtual time
with the real cores, **extrapolated** when it was worked out from another size (and the plan says how far away that
is), and plain **arithmetic** when nothing had to be measured. All measuring was done on one machine of two shared
cores. So whatever is said here of many machines is extrapolated: a plan to test, not a promise.

A broker is one Python process. It makes use of one core; a second one brings next to nothing. So a larger load takes
more brokers and not larger ones: on a machine of 16 cores, eight brokers with an eighth of its disk and network each,
and the machine as their `broker.rack`, so that no two replicas of a partition share it.

"""

ONE_NODE_TEXT = """\
Most logs fit on one node, and one node is simpler in every way: nothing to elect, nothing to copy, one directory to
back up. With the default, `durability=fsync`, what it has acknowledged is on stable storage: a crash or a power cut
loses nothing ([fault model](fault-model.md)). What one node cannot do is go on while its machine is down, or survive
the loss of its disk. Who can wait until a machine is back, or restored from a [backup](operating/backup.md), needs no
more; who cannot takes three nodes, whatever the load is.

What one node takes, each byte read once, with 40 % of its core kept free:

"""

ONE_NODE_MORE = """\
Small requests are the expensive ones, so producers that wait a few milliseconds (`linger.ms`) and compress are the
first thing to look at, on one node and on a hundred. A moderate load looks like this:

"""

GIGABYTE_TEXT = """\
The first limit is the Python of the brokers: with three replicas every byte is written three times.
Each broker's network and disk have room. Retention is what costs most in money: a day of this is a quarter of a
petabyte, and old segments cannot move to an object store yet.
"""

TEN_TEXT = """\
Ten times as much is ten times as many brokers, as long as partitions are many and evenly loaded. The extrapolation
is long here: nobody has seen so many brokers under load, and what they may meet (a switch between racks, one partition
that is larger than all others, a client that opens connections to all of them) is in no figure. Brokers are given
faster disks and networks, because with these of the last plan the disks would be next.
"""

MILLION_TEXT = """\
The first limit is how many replicas a broker has been seen to hold; all else would fit on far fewer. One
controller holds a million partitions: that was measured, with the metadata of 300 brokers. Controllers should be
processes of their own here: brokers that are controllers, too, were measured with 10,000 partitions. Written evenly,
so many partitions leave little for each of them, and requests become small: the plan takes `--batch-bytes` as given.
"""

WHAT_WAS_RUN = """\
## What was run

| What | How many | Known | What was seen |
|---|--:|---|---|
"""

CLOSING = """
## What the plan does not know

- Latency: it plans how much, not how soon. With 40 % kept free queues stay short; what a network or a disk adds to
  every acknowledgement is yours to measure.
- Your disk's syncs: these were measured on a virtual disk, which may answer a sync from a cache.
- TLS, consumer groups and transactions: nothing that was measured here used them.
- Readers that are far behind: they read from disks instead of from memory, and push out what others need there
  (row `cold-replay` of [side-by-side](results/side-by-side.md)).
- Loads that are uneven: a partition is led by one broker, and a topic with one busy key has one busy partition.
- `record.validation=full`, in which a broker opens every record.
- What a network adds that is not loopback: on loopback the kernel's work of receiving is charged to the sender.
- A newer Python, another processor: measure yours. `penstock bench` measures one cluster from one machine,
  [benchmarks/machines](../benchmarks/machines/README.md) several machines from several.
"""
