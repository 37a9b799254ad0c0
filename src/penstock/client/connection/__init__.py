"""Connections to brokers: frames in order, logins, and the pool of open connections.

Invariants: responses arrive in the order of requests; a connection whose response is late is closed, never reused.
"""
