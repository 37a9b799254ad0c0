"""Hypothesis settings for all tests."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("anywhere", deadline=None, suppress_health_check=[HealthCheck.too_slow])
if "CI" not in os.environ:  # in CI, Hypothesis sets the same by itself, and is derandomized
    settings.load_profile("anywhere")
