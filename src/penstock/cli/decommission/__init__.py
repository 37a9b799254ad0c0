"""`penstock cluster decommission`: empties a broker of any cluster, so that it can be stopped for good.

Invariant: everything known about the progress is in the cluster, so another run continues where one has ended.
"""
