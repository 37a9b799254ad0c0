"""The parts of a bundle: findings, facts about this machine, settings, the cluster, and the logs of a sandbox."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.doctor.bundle import Bundle, hidden
from penstock.cli.errors import Failed
from penstock.client.contexts import properties_text
from penstock.model.findings import Finding
from penstock.version import __version__

if TYPE_CHECKING:
    from penstock.cli.sandbox_place import Sandbox
    from penstock.client.bootstrap import FoundCluster

LOG_BYTES_MAX = 4 << 20
"""Of each node's log: the newest part."""
_FACTS = ("/proc/meminfo", "/proc/loadavg", "/proc/mounts", "/proc/net/sockstat", "/proc/sys/vm/max_map_count")
_LEFT_OUT = (
    "Values and keys of records are not in it, nor are passwords; addresses, and names of topics, groups and clients "
    "are."
)


def fill(
    bundle: Bundle,
    findings: Sequence[Finding],
    config: Path | None,
    cluster: "FoundCluster | None",
    timeout_s: float,
) -> None:
    """Collects all parts; without a cluster, those of this machine."""
    import asyncio

    bundle.add("findings.json", [each._asdict() for each in findings])
    bundle.add("machine.json", machine_facts())
    if config is not None:
        _add_settings(bundle, "settings.properties", config)
    if cluster is not None:
        from penstock.cli.doctor.cluster_parts import add_cluster
        from penstock.cli.sandbox_place import sandbox_of

        asyncio.run(add_cluster(bundle, cluster, timeout_s))
        if (sandbox := sandbox_of(cluster)) is not None:
            _add_nodes(bundle, sandbox)
    bundle.add("README.txt", "".join(f"{line}\n" for line in _introduction(cluster)))


def _introduction(cluster: "FoundCluster | None") -> Iterator[str]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    yield f"Written by `penstock doctor --bundle`, version {__version__}, at {now}."
    yield _LEFT_OUT
    if cluster is None:
        yield "No cluster was asked: --offline."
        return
    yield cluster.sentence
    for name, value in hidden(cluster.properties).items():
        yield f"  {name}={value}"


# --- this machine -----------------------------------------------------------------------------------------------------


def machine_facts() -> dict[str, object]:
    """Versions, processors, memory, load, limits, mounts."""
    import platform
    import resource

    facts: dict[str, object] = {
        "penstock": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "time_s": time.time(),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    for path in _FACTS:
        try:
            facts[path] = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            facts[path] = f"({error.strerror})"
    return facts


def _add_settings(bundle: Bundle, name: str, path: Path) -> None:
    from penstock.cli.settings.settings_file import read_settings

    try:
        bundle.add(name, properties_text(hidden(read_settings(path))))
    except (Failed, ValueError) as error:
        bundle.lacks(name, error)


def _add_nodes(bundle: Bundle, sandbox: "Sandbox") -> None:
    """The settings and the newest log lines of each node of a sandbox."""
    from penstock.cli.sandbox.nodes import LocalCluster

    try:
        cluster = LocalCluster.open(sandbox.path)
    except Failed as error:
        bundle.lacks("nodes", error)
        return
    for node in cluster.nodes:
        home, name = cluster.home(node.node_id), f"nodes/{node.node_id}"
        _add_settings(bundle, f"{name}/server.properties", home / "server.properties")
        try:
            with (home / "log").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES_MAX))
                bundle.add(f"{name}/log", log.read())
        except OSError as error:
            bundle.lacks(f"{name}/log", error)
