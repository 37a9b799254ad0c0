"""Kafka's command-line tools, run in one Java process (`tools/`) that calls their main methods."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness import maven
from harness.answerer import Answerer
from harness.kafka.oracle import binary, text

PROJECT = Path(__file__).parent / "tools"
# For a fast start on a small machine.
JAVA = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
ALONE_TIMEOUT_S = 60

CLASSES: Mapping[str, str] = {
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
"""The class that each script starts."""


class ToolFailed(Exception):
    """A tool ended with an error, or logged one; the text is its output."""


def run_alone(tool: str, *arguments: str) -> str:
    """Runs a tool in a process of its own and returns its output, for callers that need the process to end."""
    return subprocess.run(
        command_of(tool, *arguments), check=True, stdout=subprocess.PIPE, text=True, timeout=ALONE_TIMEOUT_S
    ).stdout


def command_of(tool: str, *arguments: str) -> list[str]:
    """The command line that starts a tool in a process of its own."""
    return [*_java(), CLASSES[tool], *arguments]


def _java() -> list[str]:
    target = maven.build(PROJECT)
    return ["java", *JAVA, "-cp", f"{target / 'classes'}:{target / 'lib'}/*"]


class KafkaTools:
    """The running process; `close` it."""

    def __init__(self) -> None:
        self._process = Answerer([*_java(), "penstock.Tools"])

    def run(self, tool: str, *arguments: str, stdin: bytes = b"") -> bytes:
        """Runs a tool and returns its output."""
        done = self._process.ask(tool, tool=CLASSES[tool], arguments=arguments, input=text(stdin))
        output = binary(done["output"])
        # Some tools end with code 0 after a failure and report it only in their log.
        if done["code"] or "ERROR" in done["errors"]:
            raise ToolFailed(f"{tool} ended with {done['code']}: {done['errors']}{output.decode(errors='replace')}")
        return output

    def close(self) -> None:
        """Ends the process."""
        self._process.close()
