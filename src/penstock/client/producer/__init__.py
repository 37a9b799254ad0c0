"""Producer: chooses partitions, buffers records within bounds, sends batches to their leaders in order.

Invariants: a record is delivered or its sender gets an error; batches of a partition keep their order.
"""
