"""Subtle bugs, planted one at a time, and the test that notices each of them.

Checked: a bug is noticed for its reason, and its test passes without it.
"""
