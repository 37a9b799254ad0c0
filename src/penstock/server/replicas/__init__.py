"""The replicas of this node: carries out the effects of their core, keeps logs in line with the image, reports losses.

Invariants: work on the segments of a log holds the storage lock; a replica that is damaged or may lack records is
reported before it can be elected.
"""
