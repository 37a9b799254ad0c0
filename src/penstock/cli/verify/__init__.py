"""`penstock verify`: runs a load against any Kafka cluster, and checks that the cluster kept its guarantees.

Invariants: every operation is recorded with its outcome; an undecided run is never reported as a success.
"""
