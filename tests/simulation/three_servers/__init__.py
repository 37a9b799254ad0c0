"""Worlds of three whole servers, each broker and controller, and two operators.

Checked: one active controller per epoch; what was acknowledged to an operator lasts.
"""
