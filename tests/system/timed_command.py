"""Runs a `penstock` command line, and writes the seconds that it took after all imports to a file.

    python -m tests.system.timed_command FILE topic create orders

The start of an interpreter takes seconds on a busy machine, and is no part of a command's time limit.
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


def main() -> int:
    for name in LATE_IMPORTS:
        importlib.import_module(name)
    file, *arguments = sys.argv[1:]
    began_s = time.monotonic()
    code = run(arguments)
    Path(file).write_text(f"{time.monotonic() - began_s}")
    return code


if __name__ == "__main__":
    sys.exit(main())
