"""`penstock produce`: lines of input become records, and deliveries are reported by partition."""
