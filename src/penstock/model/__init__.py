"""Shared types: error codes, epochs, limits, reports, ports. Imports no other room and does no I/O of its own."""
