"""Kafka's messages, one class each: `messages.MetadataRequest(topics=None)`, structs as attributes of their message.

Classes come into being when they are first asked for. Their types are in `messages.pyi`, which is generated from the
same table (`python -m tidelog.protocol.stubs`).
"""

from functools import cache

from tidelog.protocol import catalogue
from tidelog.protocol.apis import ApiKey, name
from tidelog.protocol.classes import Message, Structure, build

__all__ = ["Message", "Structure", "request_class", "response_class"]


def __getattr__(attribute):
    if attribute not in catalogue.places():
        raise AttributeError(f"Kafka has no message {attribute!r}")
    globals()[attribute] = found = build(catalogue.schema(attribute))
    return found


def __dir__():
    return sorted({*globals(), *catalogue.places()})


@cache
def request_class(key):
    """The request of an API."""
    return getattr(_this_module(), f"{name(ApiKey(key))}Request")


@cache
def response_class(key):
    """The response of an API."""
    return getattr(_this_module(), f"{name(ApiKey(key))}Response")


def _this_module():
    import sys

    return sys.modules[__name__]
