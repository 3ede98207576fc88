"""Log lines as JSON, an object a line, for what collects logs: `logging.format=json`.

isr: partition=t-0 isr=[0, 1]   -->   {"time": ..., "level": "INFO", "logger": ..., "message": the line,
                                       "event": "isr", "fields": {"partition": "t-0", "isr": "[0, 1]"}}
"""

from __future__ import annotations

import datetime
import json
import logging
import re
from typing import Any, Final

_EVENT: Final = re.compile(r"([a-z][a-z0-9_ -]*): (?=\w+=)")
_KEY: Final = re.compile(r"(?:^| )(\w+)=")


class JsonFormatter(logging.Formatter):
    """One record in one line, whatever is in it."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        found: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
        }
        event = _EVENT.match(message)
        if event is not None:
            found["event"] = event[1]
            found["fields"] = fields_of(message[event.end() :])
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            found["stack"] = self.formatStack(record.stack_info)
        return json.dumps(found, ensure_ascii=False)


def fields_of(text: str) -> dict[str, str]:
    """`key=value` pairs; a value goes on to the next key, and may have blanks."""
    keys = list(_KEY.finditer(text))
    ends = [key.start() for key in keys[1:]] + [len(text)]
    return {key[1]: text[key.end() : end] for key, end in zip(keys, ends, strict=True)}
