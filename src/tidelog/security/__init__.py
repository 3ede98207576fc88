"""Principals, authentication mechanisms, access decisions. Pure."""
