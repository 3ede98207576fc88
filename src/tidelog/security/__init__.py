"""Principals, authentication mechanisms, access decisions, quotas. Pure."""
