"""Histories of what clients did and saw, and the checks that tell whether a log kept its promises."""
