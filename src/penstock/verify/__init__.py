"""Histories of client operations, and the checks that decide whether a log kept its guarantees."""
