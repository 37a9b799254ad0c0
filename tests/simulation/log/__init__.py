"""Random histories of logs on a lossy disk: power cuts, disk faults, overlapping operations.

Checked: what was acknowledged is read again, and damage is reported.
"""
