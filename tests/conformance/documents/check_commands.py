"""The table of the documents' commands is whole: each is typed by a check."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.documents.commands import COMMANDS


def test_every_command_is_typed() -> None:
    """Its name stands in the check of its document."""
    folder = Path(__file__).parent
    for document in ("001", "002", "004"):
        text = (folder / f"check_document_{document}.py").read_text()
        names = [name for name in COMMANDS if name.startswith(document)]
        assert names
        assert [name for name in names if f'.type("{name}"' not in text and f'site, "{name}"' not in text] == []
