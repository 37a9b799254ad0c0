"""Schemas of JSON documents: parsed from Spark's DDL, and inferred from records."""
