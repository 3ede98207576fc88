"""Checks against what others made: kcat, Kafka's own tools. `make conformance` runs them; the test command does not.

Files are called check_*.py so that pytest finds them only when they are named.
"""
