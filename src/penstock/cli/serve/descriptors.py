"""Open files: every connection and every open segment takes a descriptor."""

import resource
from contextlib import suppress


def take_all() -> None:
    """Raises the soft limit, which shells set low, to the hard limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems reject the hard limit that they report
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
