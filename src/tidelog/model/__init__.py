"""Identifiers, error codes and small values that every other package speaks in. Pure."""
