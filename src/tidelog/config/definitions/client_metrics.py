"""Settings of client metrics resources (KIP-714): which clients are to push which metrics, and how often."""

from typing import Final

from tidelog.config.table import settings

SETTINGS: Final = settings(
    """\
interval.ms | int | 300000 | | | How often a client pushes its metrics, from 100 to 3600000.
match | list | | members-not-empty | |
    The clients that are meant, `name=regex` for each of `client_instance_id`, `client_id`, `client_software_name`,
    `client_software_version`, `client_source_address` and `client_source_port` that counts; empty: all.
metrics | list | | members-not-empty | | Prefixes of the metrics' names; `*` is all of them, empty is none.
"""
)
