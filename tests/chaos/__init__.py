"""Chaos on real processes: brokers are killed, paused and starved under a load whose every value is checked.

`python -m tests.chaos --help` says how; `make chaos CYCLES=n` runs it.
"""
