"""Open files: every connection and every open segment takes a descriptor."""

import resource
from contextlib import suppress


def take_all() -> None:
    """A shell gives a process fewer than it may have; a broker takes what it may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems call a number too large that they have named themselves
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
