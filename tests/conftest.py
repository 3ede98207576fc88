"""What all tests share: hypothesis profiles, and the promise that no test leaves a process behind."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Parallel workers on two busy cores make single examples slow now and then; the examples are what counts.
settings.register_profile("tidelog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidelog")
