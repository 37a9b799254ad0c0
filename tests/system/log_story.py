"""The logs of a cluster of three whose leader is killed: `python -m tests.system.log_story --record` writes the page.

The killed node leads the metadata quorum and some partitions of every topic; it comes back a little later.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harness.ports import free_port
from tests.system.commands import Shell

PAGE: Final = Path(__file__).parents[2] / "docs" / "results" / "killed-leader.md"
PARTITIONS: Final = 12
LINES_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class Story:
    """The nodes' log lines from the kill on."""

    killed: int
    without: dict[int, list[str]]
    """Until the others lead."""
    after: dict[int, list[str]]
    """From the restart of the node on."""

    @property
    def lines(self) -> int:
        """Number of lines of all nodes until the others lead."""
        return sum(map(len, self.without.values()))

    def events(self, node: int) -> list[str]:
        """Names of the events that a node logged until the others lead."""
        return [line.rpartition("[")[2].rstrip("]") for line in self.without[node] if line.endswith("]")]


def tell(folder: Path) -> Story:
    """Starts a cluster, kills its leader, waits, restarts it, and stops all nodes."""
    shell = Shell(folder)
    try:
        said = shell("sandbox", "up", "--nodes", "3", "--port", str(free_port()))
        bootstrap = said.rpartition("bootstrap: ")[2].strip()
        shell("topic", "create", "orders", "-p", str(PARTITIONS), "-r", "3", "-b", bootstrap)
        time.sleep(2)
        killed = int(json.loads(shell("quorum", "status", "-o", "json"))["leader"])
        before = logs_of(folder)
        shell("sandbox", "kill", str(killed))
        time.sleep(6)
        without = logs_of(folder)
        shell("sandbox", "up")
        time.sleep(6)
        after = logs_of(folder)
    finally:
        shell.run("sandbox", "down")
    return Story(killed, since(before, without), since(without, after))


def logs_of(folder: Path) -> dict[int, list[str]]:
    """Lines that each node of a local cluster has logged so far."""
    found = {}
    for path in sorted((folder / ".penstock" / "cluster").glob("node-*/log")):
        lines = path.read_text(encoding="utf-8").splitlines()
        found[int(path.parent.name.removeprefix("node-"))] = [line for line in lines if line[:2] == "20"]
    return found


def since(before: dict[int, list[str]], now: dict[int, list[str]]) -> dict[int, list[str]]:
    """Lines that were added since then."""
    return {node: lines[len(before[node]) :] for node, lines in now.items()}


REMARKS: Final = {
    "quorum-leader-silent": "the connections to the leader broke, and it was not heard any more",
    "quorum-candidate": "a majority would elect this node, so it asks for votes in a new epoch",
    "quorum-vote": "one vote per epoch, on disk before it is told",
    "quorum-leader": "a majority has voted; from here on this node appends to the metadata log",
    "quorum-follows": "the other voter has learned who leads",
    "controller-active": "everything before its epoch is committed and applied: it decides",
    "broker-gone": "it looked where the broker was, and nobody listens: no need to wait for the session to end",
    "broker-fenced": "nothing is led there any more",
    "leaders-changed": "replicas that were in sync lead now; no acknowledged record is missing there",
    "isr-changed": "from now on acks=all waits for these replicas",
    "replica-leads": "a broker takes over what it was given",
    "replica-follows": "the other follower fetches from the new leader",
    "broker-registered": "the node is back, in a new epoch",
    "broker-unfenced": "it has the metadata log again",
    "replica-caught-up": "a leader found it in sync, and tells the controller",
    "group-shard-loading": "groups of the killed coordinator are read from their log",
    "group-shard-active": "and served again",
}


def page(story: Story) -> str:
    """The text of the page."""
    what = (
        f"Three nodes, one topic with {PARTITIONS} partitions and three replicas. Node {story.killed} led the metadata "
        "quorum and some of the partitions, and was killed (SIGKILL). All that the nodes logged, at INFO, with "
        f"remarks: {story.lines} lines until the others led everything."
    )
    made = (
        f"Made by `python -m tests.system.log_story --record` on {datetime.now(UTC):%Y-%m-%d}; "
        "`tests/system/test_log_story.py` does the same in CI. [All events](../operating/logs.md)."
    )
    lines = ["# The logs of a killed leader", "", what, "", made]
    for title, logs in (("Until the others lead", story.without), ("The node is started again", story.after)):
        lines += ["", f"## {title}"]
        for node, entries in logs.items():
            if not entries:
                continue
            lines += ["", f"Node {node}:", "", "```", *entries, "```"]
            told = dict.fromkeys(entry.rpartition("[")[2].rstrip("]") for entry in entries)
            lines += ["", *(f"- `{name}`: {REMARKS[name]}." for name in told if name in REMARKS)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Runs the story once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        story = tell(Path(folder))
    text = page(story)
    if options.record:
        PAGE.write_text(text, encoding="utf-8")
    print(text)
    return 0 if story.lines <= LINES_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
