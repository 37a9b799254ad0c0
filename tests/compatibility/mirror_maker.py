"""MirrorMaker 2 between two clusters, both ways, in one Java process from Maven artifacts.

    with MirrorMaker(directory, settings(kafka, penstock, topics="orders-.*", groups="billing")): ...

The settings are those of docs/migrating.md, with intervals short enough for a test. Its log stays in the directory.
"""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from harness import maven

PROJECT: Final = Path(__file__).parent / "mirror"
STOP_S: Final = 20.0
# For a small machine, and a fast start.
JAVA: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=INFO")
LOG_TAIL: Final = 6_000
LOUD: Final = re.compile(r" (WARN|ERROR) |^\S*(Exception|Error)\b|^Caused by")
SOURCE, TARGET = "kafka", "penstock"
BACK: Final = f"{TARGET}."
"""The prefix of topic names on the way back."""
IDENTITY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
INTERNAL: Final = (
    "config.storage",
    "offset.storage",
    "status.storage",
    "offset-syncs.topic",
    "checkpoints.topic",
    "heartbeats.topic",  # created even if there are no heartbeats
)


def settings(kafka: str, penstock: str, *, topics: str, groups: str) -> dict[str, str]:
    """Topic names are kept on the way there; on the way back they get a prefix, so that there is no loop."""
    there, back = f"{SOURCE}->{TARGET}", f"{TARGET}->{SOURCE}"
    found = {
        "clusters": f"{SOURCE}, {TARGET}",
        f"{SOURCE}.bootstrap.servers": kafka,
        f"{TARGET}.bootstrap.servers": penstock,
        f"{there}.replication.policy.class": IDENTITY,
        "replication.factor": "1",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "refresh.topics.interval.seconds": "2",
        "refresh.groups.interval.seconds": "2",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "offset.lag.max": "0",
        "emit.heartbeats.enabled": "false",
        "sync.topic.acls.enabled": "false",
    }
    found |= {f"{name}.replication.factor": "1" for name in INTERNAL}
    for worker in (SOURCE, TARGET):  # worker settings, which apply only with the name of a cluster
        found |= {f"{worker}.offset.flush.interval.ms": "1000", f"{worker}.plugin.discovery": "service_load"}
    for flow in (there, back):
        found |= {f"{flow}.enabled": "true", f"{flow}.topics": topics, f"{flow}.groups": groups}
    return found


class MirrorMaker:
    """A MirrorMaker process that runs while the context is entered."""

    def __init__(self, directory: Path, configuration: Mapping[str, str]) -> None:
        self._file = directory / "mirror.properties"
        self.log_path = directory / "mirror.log"
        self._file.write_text("".join(f"{name} = {value}\n" for name, value in configuration.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        library = maven.build(PROJECT) / "lib"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *JAVA, "-cp", f"{library}/*", "org.apache.kafka.connect.mirror.MirrorMaker", str(self._file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Terminates the process, and kills it after a while."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def complaints(self) -> str:
        """The last warnings and errors in its log."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if LOUD.search(line))[-LOG_TAIL:]
