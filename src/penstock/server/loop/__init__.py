"""The event loop of a node: the driver of steppers, pacing of long work, deadlines, waiters, stalls.

Invariants: no callback blocks the loop for long; a driver never runs a step inside a step.
"""
