"""A broker that cannot continue stops, reports the reason in one sentence, and exits with 1."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.cli.errors import Failed
from penstock.cli.serve import run as serving
from penstock.cli.settings.listeners import Listener
from penstock.cli.settings.startup import Plan
from penstock.host.lossy import LossyDisk
from penstock.metadata.commands import CreateTopics, NewTopic
from penstock.server.host_ports import HostPorts, host_ports
from penstock.server.node import Node

METADATA = "logs/__cluster_metadata-0/00000000000000000000-0.log"


@dataclass
class FailingPorts:
    """The host's ports, with a disk that fails on request."""

    ports: HostPorts

    def __post_init__(self) -> None:
        self.disk = LossyDisk(self.ports.disk, Random(1))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ports, name)


def test_a_failed_metadata_log_ends_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FailingPorts] = []

    def failing_ports(path: Path) -> FailingPorts:
        made.append(FailingPorts(host_ports(path)))
        return made[-1]

    def is_ready(_plan: Plan, _node: Node) -> None:
        """Creates a topic while the next sync of the metadata log fails."""
        node = nodes[-1]
        made[-1].disk.fail_next("sync", METADATA)
        asking = asyncio.get_running_loop().create_task(node.member.controller.ask(CreateTopics((NewTopic("t"),))))
        asking.add_done_callback(lambda done: errors.append(done.exception()))

    nodes: list[Any] = []
    errors: list[BaseException | None] = []

    class KnownNode(Node):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            nodes.append(self)

    monkeypatch.setattr(serving, "host_ports", failing_ports)
    monkeypatch.setattr(serving, "Node", KnownNode)
    monkeypatch.setattr(serving, "_tell_ready", is_ready)
    listener = Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0)
    plan = Plan(cluster_id="c", data_path=tmp_path / "data", listeners=(listener,))
    with pytest.raises(
        Failed, match=r"no part in the metadata quorum.*See to the disk, then start the node again"
    ) as failed:
        serving.serve(plan)
    assert failed.value.exit_code == 1
    assert "the controller is offline" in str(errors[0])
