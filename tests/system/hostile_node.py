"""A node that measures itself: `python -m tests.system.hostile_node DIR`.

Prints the addresses of its listeners. Each line on standard input is a command: `begin` resets the measurement and
returns freed memory to the system; `end` prints the cost since then; `rest` ends measuring, which itself takes time.
The node stops when standard input ends.
"""

import asyncio
import ctypes
import gc
import json
import logging
import os
import sys
import threading
import time
from asyncio import events
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from penstock.host.garbage import PatientCollector
from penstock.log.settings import Durability
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.limits import DEFAULT_LIMITS
from penstock.server.host_ports import host_ports
from penstock.server.node import Node
from penstock.server.settings import ListenerSettings, Membership, NodeSettings

STATUS: Final = Path("/proc/self/status")
CLEAR: Final = Path("/proc/self/clear_refs")


class Meter:
    """Measures the longest callback of the event loop, and the peak memory of the process."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0
        self.stall_s = 0.0
        """Excludes the time in which the loop's thread was runnable but other processes had the CPU."""
        self.where = ""
        self.began_bytes = 0
        self.began_cpu_s = 0.0
        self.collection_s = 0.0
        self._collects_since_s = 0.0
        self._original = events.Handle._run

    def begin(self) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        CLEAR.write_text("5")
        self.began_bytes = status("VmRSS")
        self.began_cpu_s = time.process_time()
        self.wall_s = self.cpu_s = self.stall_s = self.collection_s = 0.0
        self.where = ""

    def end(self) -> dict[str, Any]:
        return {
            "stall_ms": round(self.stall_s * 1000, 1),
            "stall_wall_ms": round(self.wall_s * 1000, 1),
            "stall_cpu_ms": round(self.cpu_s * 1000, 1),
            "cpu_ms": round((time.process_time() - self.began_cpu_s) * 1000, 1),
            "collection_ms": round(self.collection_s * 1000, 1),
            "where": self.where[:200],
            "grown_bytes": max(0, status("VmHWM") - self.began_bytes),
            "kept_bytes": status("VmRSS") - self.began_bytes,
        }

    def on_collection(self, phase: str, _info: dict[str, Any]) -> None:
        """Measures garbage collections; the collecting thread holds the interpreter meanwhile."""
        if phase == "start":
            self._collects_since_s = time.thread_time()
        else:
            self.collection_s = max(self.collection_s, time.thread_time() - self._collects_since_s)

    def watch(self) -> None:
        """Measures every callback from now on."""
        gc.callbacks.append(self.on_collection)
        original = self._original
        schedule = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)

        def waited_s() -> float:
            return int(os.pread(schedule, 80, 0).split()[1]) / 1e9

        def run(handle: events.Handle) -> None:
            began_s, began_cpu_s, began_waited_s = time.perf_counter(), time.thread_time(), waited_s()
            original(handle)
            took_s, took_cpu_s = time.perf_counter() - began_s, time.thread_time() - began_cpu_s
            self.wall_s = max(self.wall_s, took_s)
            self.stall_s = max(self.stall_s, took_s - (waited_s() - began_waited_s))
            if took_cpu_s > self.cpu_s:
                self.cpu_s, self.where = took_cpu_s, name_of(handle)

        events.Handle._run = run  # type: ignore[method-assign,assignment]

    def rest(self) -> None:
        """Stops measuring."""
        gc.callbacks.remove(self.on_collection)
        events.Handle._run = self._original  # type: ignore[method-assign]


def name_of(handle: events.Handle) -> str:
    """The name of the callback; its representation would show whole requests."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine: Any = task.get_coro()
        return str(getattr(coroutine, "__qualname__", "a task"))
    return str(getattr(callback, "__qualname__", type(callback).__name__))


def status(name: str) -> int:
    """A value from this process's status file, in bytes."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


async def main(path: str) -> None:
    ports = host_ports(path)
    ports.workers.switch_quickly()
    broker = {"log.durability": Durability.REPLICATED.value, "offsets.topic.num.partitions": "4"}
    settings = NodeSettings(
        "system-test",
        node_id=1,
        listeners=(ListenerSettings(port=0),),
        limits=replace(
            DEFAULT_LIMITS,
            connection_rate_max=100_000,
            request_elements_max=int(os.environ.get("HOSTILE_NODE_ELEMENTS", DEFAULT_LIMITS.request_elements_max)),
            request_memory_bytes_max=int(
                os.environ.get("HOSTILE_NODE_MEMORY_BYTES", DEFAULT_LIMITS.request_memory_bytes_max)
            ),
        ),
        membership=Membership(listener=ListenerSettings("CONTROLLER", "127.0.0.1", 0)),
        broker=BrokerSettings(broker),
    )
    node = Node(ports, settings)
    await node.start()
    await node.ready()
    collector = PatientCollector()
    collector.start()
    meter, ended = Meter(), asyncio.Event()

    def obey() -> None:
        order = sys.stdin.readline().strip()
        if not order:
            ended.set()
        elif order == "begin":
            meter.begin()
            print("ready", flush=True)
        elif order == "end":
            print(json.dumps(meter.end()), flush=True)
        elif order == "rest":
            meter.rest()

    print(node.address, node.controller_address or node.address, flush=True)
    meter.watch()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), obey)
    await ended.wait()
    collector.stop()
    await node.stop()
    ports.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    asyncio.run(main(sys.argv[1]))
