"""`penstock produce`: lines of input become records, and deliveries are reported by partition.

Invariant: a delivery that failed makes the command fail, with the offsets of the records that were delivered.
"""
