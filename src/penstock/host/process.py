"""Resource usage of this process."""

import os
import resource
import time

from penstock.model.ports import Footprint

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class HostProcess:
    """Created when the process starts; each call measures."""

    def __init__(self) -> None:
        self._began_s = round(time.time(), 3)

    def __call__(self) -> Footprint:
        """The current usage."""
        try:
            with open("/proc/self/statm", encoding="ascii") as file:
                resident_bytes = int(file.read().split()[1]) * _PAGE_BYTES
            open_files = len(os.listdir("/proc/self/fd"))
        except OSError:  # where there is no /proc
            resident_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            open_files = 0
        files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return Footprint(time.process_time(), resident_bytes, open_files, files_max, self._began_s)
