"""Runs every story of the shell in both environments: on virtual time, and on real sockets."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.model.limits import DEFAULT_LIMITS, Limits
from penstock.server.host_ports import host_ports
from penstock.simulator.node import Ports
from penstock.simulator.options import FaultOptions
from penstock.simulator.world import World
from tests.unit.server.shell import Story, tell

Drive = Callable[..., None]


def on_virtual_time(
    story: Story,
    limits: Limits = DEFAULT_LIMITS,
    *,
    seed: int = 1,
    options: FaultOptions | None = None,
    **settings: Any,
) -> str:
    """Returns the hash of the world's trace."""
    ends: list[str] = []

    async def main(ports: Ports) -> None:
        await tell(story, ports, limits, **settings)
        ends.append("well")

    with World(seed, options) as world:
        world.add("a", main)
        world.start("a")
        for _ in range(100):
            world.run(30.0)
            if ends:
                return world.trace_hash
        raise AssertionError("the story has no end")


def on_real_sockets(tmp_path: Path, story: Story, limits: Limits = DEFAULT_LIMITS, **settings: Any) -> None:
    async def main() -> None:
        ports = host_ports(tmp_path)
        try:
            async with asyncio.timeout(60):
                await tell(story, ports, limits, **settings)
        finally:
            ports.close()

    asyncio.run(main())


@pytest.fixture(params=["virtual", "host"])
def drive(request: pytest.FixtureRequest, tmp_path: Path) -> Drive:
    """Runs a story: `drive(story, requests_under_way_max=3)`; fields of Limits and other settings go by name."""

    def run(story: Story, **settings: Any) -> None:
        names = [name for name in settings if hasattr(DEFAULT_LIMITS, name)]
        limits = replace(DEFAULT_LIMITS, **{name: settings.pop(name) for name in names})
        if request.param == "virtual":
            on_virtual_time(story, limits, **settings)
        else:
            on_real_sockets(tmp_path, story, limits, **settings)

    return run
