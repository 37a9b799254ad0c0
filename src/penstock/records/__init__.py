"""Record batches, format v2: header view and checks, builder, row iteration, compression."""
