"""The table of the documents' commands is whole: each is typed by a check."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.documents.commands import COMMANDS

DOCUMENTS = {
    "expanding": "check_expanding_a_cluster.py",
    "growing": "check_growing_topics.py",
    "service": "check_brokers_in_and_out_of_service.py",
}
"""[how the names of its commands begin] -> its check."""


def test_every_command_is_typed() -> None:
    """Its name stands in the check of its document."""
    folder = Path(__file__).parent
    for document, check in DOCUMENTS.items():
        text = (folder / check).read_text()
        names = [name for name in COMMANDS if name.startswith(f"{document}: ")]
        assert names
        assert [name for name in names if f'.type("{name}"' not in text and f'site, "{name}"' not in text] == []
