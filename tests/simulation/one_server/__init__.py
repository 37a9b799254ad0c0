"""Worlds of one whole server on a lossy disk, with several real clients.

Checked: every acknowledged record is there once and in order; `penstock.verify` checks the histories of clients.
"""
