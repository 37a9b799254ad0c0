"""How a run can go wrong, apart from what the code under test does."""


class SimulationError(RuntimeError):
    """The run itself went wrong."""


class Deadlock(SimulationError):
    """Nothing is ready, no timer is set, and the run is not over."""


class TooManyEvents(SimulationError):
    """The run, or one instant of it, does not end."""


class Unhandled(SimulationError):
    """An exception that nobody handled; it is the cause."""


class Forbidden(SimulationError):
    """Something that has no place in a simulation."""
