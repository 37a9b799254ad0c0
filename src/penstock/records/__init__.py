"""Record batches, format v2: header view, checks, compression, rows, builder."""
