"""`penstock bench`: measures how fast a cluster, Penstock or Apache Kafka, accepts and serves records.

Invariant: no figure is reported unless the log has grown by as many records as were acknowledged.
"""
