"""This broker as a member of its cluster: registration, heartbeats, its lease, free disk space, just-lost brokers.

Invariant: a broker whose lease has expired does not claim to lead.
"""
