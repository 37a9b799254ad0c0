"""Simulated worlds by seed: `kit`, which they share, and a folder per kind of world.

Worlds named `…_core` run steppers on the heap of `kit`, those named `…_servers` whole nodes on the virtual event loop
of `penstock.simulator`. Invariant: the same seed gives the same world, in any process.
"""
