"""Worlds of three whole servers that coordinate groups of real clients.

Checked: a fetched offset is that of the last acknowledged commit, or a later one; a generation assigns a partition to
one member.
"""
