"""Runs a `penstock` command line, and writes the seconds that it took to a file.

    python -m tests.system.timed_command FILE topic create orders

What a busy machine adds is left out: the start of the interpreter and all imports, and the time in which the command
could have run and other processes had the processors.
"""

import importlib
import sys
import time
from pathlib import Path
from typing import Final

from penstock.cli.main import run

LATE_IMPORTS: Final = (
    "penstock.client.client",
    "penstock.client.admin.quorum_probe",
    "penstock.cli.cluster.checkups",
    "penstock.cli.doctor.network",
    "penstock.cli.doctor.self_report",
    "penstock.cli.reassign.throttle",
    "penstock.cli.reassign.watch",
)
"""Modules that commands import when they run."""
SCHEDULER: Final = Path("/proc/thread-self/schedstat")
"""Nanoseconds on a processor, nanoseconds that it waited for one, and how often it ran."""


def waited_s() -> float:
    """How long this thread has waited for a processor; 0 where the system does not count that."""
    try:
        return int(SCHEDULER.read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def main() -> int:
    for name in LATE_IMPORTS:
        importlib.import_module(name)
    file, *arguments = sys.argv[1:]
    began_s = time.monotonic() - waited_s()
    code = run(arguments)
    Path(file).write_text(f"{time.monotonic() - waited_s() - began_s}")
    return code


if __name__ == "__main__":
    sys.exit(main())
