"""Worlds of three and four whole servers that replicate, with writers of acks=all.

Checked: what is committed never changes; in the end all replicas are equal and hold every acknowledged record.
"""
