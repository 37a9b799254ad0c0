"""Errors of a run, as opposed to errors that the code under test handles."""


class SimulationError(RuntimeError):
    """The run itself failed."""


class Deadlock(SimulationError):
    """Nothing is ready, no timer is set, and the run is not over."""


class TooManyEvents(SimulationError):
    """The run, or one instant of it, does not end."""


class Unhandled(SimulationError):
    """An unhandled exception, which is the cause of this one."""


class Forbidden(SimulationError):
    """A call that is not allowed in a simulation."""
