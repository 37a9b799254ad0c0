"""What worlds share: virtual time, the port of drivers, campaigns, mutants, invariants.

Invariant: every choice is drawn from the seed; a failure names its seed and the invariant that was broken.
"""
