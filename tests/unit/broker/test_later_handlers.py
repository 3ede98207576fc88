"""Handlers that are loaded when their API is first asked for."""

from __future__ import annotations

import importlib
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker import handlers
from tidelog.broker.handlers import load_handlers
from tidelog.broker.handlers._later import LATER
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol.apis import ApiKey


@pytest.mark.parametrize("name", sorted(LATER))
def test_what_is_advertised_at_once_is_what_the_file_says(name: str) -> None:
    """Key and versions that are known before a handler is loaded are its file's, and it has no way besides `handle`."""
    module = importlib.import_module(f"{handlers.__name__}.{name}")
    assert module.KEY is ApiKey[name.upper()]
    assert LATER[name] == module.VERSIONS
    assert not {"handle_body", "ordinary", "frames"} & set(vars(module))


def test_the_first_call_imports_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever function of the handler is called; once."""
    imported: list[str] = []
    module = SimpleNamespace(handle=lambda *_: "answer", error_response=lambda *_: "refusal")

    def load(name: str) -> Any:
        imported.append(name)
        return module

    monkeypatch.setattr(handlers.importlib, "import_module", load)
    handler = handlers._later("describe_quorum", LATER["describe_quorum"])
    assert handler.key == ApiKey.DESCRIBE_QUORUM
    assert imported == []
    assert handler.error_response(None, 0, KafkaError(ErrorCode.INVALID_REQUEST)) == "refusal"
    assert handler.handle(None, None, None) == "answer"
    assert handler.handle(None, None, None) == "answer"
    assert imported == ["tidelog.broker.handlers.describe_quorum"]


def test_a_request_is_split_only_where_the_file_says_how() -> None:
    """Nothing is refused before the controller has the request where the file has no `preprocess`."""
    without = load_handlers()[ApiKey.CREATE_TOPICS]
    assert without.preprocess is not None
    assert without.preprocess(None, None, None) is None


def test_a_handler_that_is_not_used_leaves_no_garbage() -> None:
    """Those of telemetry are dropped by each broker that offers none."""
    handler = handlers._later("describe_quorum", LATER["describe_quorum"])
    gone = weakref.ref(handler.handle)
    del handler
    assert gone() is None
