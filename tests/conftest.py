"""What holds for every test."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("anywhere", deadline=None, suppress_health_check=[HealthCheck.too_slow])
if "CI" not in os.environ:  # there Hypothesis does the same by itself, and is not random
    settings.load_profile("anywhere")
