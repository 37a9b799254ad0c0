"""Worlds of the metadata quorum as it is deployed: three quorum runners on lossy disks.

Checked: one leader per epoch; all nodes apply the same numbers, and agree when the faults end.
"""
