"""Log lines as JSON: one line each, whatever is in them."""

import json
import logging
import sys
from typing import Any

import pytest

from tidelog.launcher.json_logs import JsonFormatter


def line(message: str, *arguments: object, **more: Any) -> dict[str, Any]:
    record = logging.LogRecord("tidelog.x", logging.WARNING, "f", 1, message, arguments, more.get("exc_info"))
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_an_event_has_its_fields() -> None:
    """A value may have blanks; the message stays whole."""
    found = line("isr: partition=%s isr=%s error=%s", "t-0", [0, 1], "no such file: x")
    assert (found["level"], found["logger"], found["event"]) == ("WARNING", "tidelog.x", "isr")
    assert found["fields"] == {"partition": "t-0", "isr": "[0, 1]", "error": "no such file: x"}
    assert found["message"] == "isr: partition=t-0 isr=[0, 1] error=no such file: x"
    assert found["time"].endswith("Z")


@pytest.mark.parametrize("message", ["plain words", "two\nlines: a", 'quotes " and \\ and \x00', "ключ: значение"])
def test_any_text_is_one_line(message: str) -> None:
    """And no event where there are no fields."""
    found = line("%s", message)
    assert found["message"] == message
    assert "event" not in found


def test_a_traceback_is_in_the_line() -> None:
    """Collectors that take lines lose nothing of it."""
    try:
        raise ZeroDivisionError("here")
    except ZeroDivisionError:
        found = line("failed", exc_info=sys.exc_info())
    assert "ZeroDivisionError: here" in found["exception"]
