"""asyncio, uvloop and ZooKeeper's client, without OpenSSL where nothing speaks TLS.

They import `ssl` whether they need it or not, and `hashlib` takes OpenSSL's functions where they are there. OpenSSL and
what belongs to it take 4.5 MiB of a process. A broker whose settings name no TLS, no SASL and no delegation tokens has
no use for it: while these modules are imported, a stand-in takes the place of `ssl`. It is removed afterwards, so that
an import of `ssl` then finds the real one.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidelog.config.broker_config import BrokerConfig

PLAINTEXT: Final = "PLAINTEXT"
SECURING: Final = ("delegation.token.secret.key", "zookeeper.ssl.client.enable")
"""Settings of a broker that has a use for OpenSSL, whatever its listeners speak: thousands of hashes, or TLS."""
EVENT_LOOP: Final = ("asyncio", "uvloop", "hashlib", "hmac")
"""What imports OpenSSL where it is there, and can do without. Requests need hashes, and must not need files."""
ZOOKEEPER: Final = "tidelog.store.zookeeper"
"""The same, where the metadata store is elsewhere."""
SSL: Final = "ssl"
OPENSSL_HASHES: Final = "_hashlib"
"""The two modules that load it."""
OWN_HASHES: Final = (
    *("_md5", "_sha1", "_sha3", "_blake2"),
    *(("_sha2",) if sys.version_info >= (3, 12) else ("_sha256", "_sha512")),
)
"""Python's own, which `hashlib` falls back to. Fedora and Red Hat build Python without most of them."""


class _StandIn(ModuleType):
    """Has whatever name is asked for: an exception, which is a class as well, or 0 for a constant.

    Event loops look up the classes, exceptions and constants that their transports for TLS use. Nothing opens such a
    transport here, and if something did, the loop would refuse its context, which is none of the stand-in's class.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = 0 if name.isupper() else type(name, (Exception,), {})
        setattr(self, name, found)
        return found


def needs_openssl(config: BrokerConfig) -> bool:
    """Whether a broker may ever speak TLS, or check a password. Settings that are altered later open no listener."""
    return any(each.security_protocol != PLAINTEXT for each in config.listeners) or any(map(config.get, SECURING))


def load_event_loop(config: BrokerConfig | None) -> None:
    """Imports what an event loop needs, for a process of brokers with such settings; None: with any.

    To be called before anything else imports it.
    """
    modules = (*EVENT_LOOP, ZOOKEEPER) if config is not None and config.zookeeper_connect else EVENT_LOOP
    is_first = sys.modules.keys().isdisjoint((SSL, OPENSSL_HASHES, *modules))
    if is_first and config is not None and not needs_openssl(config):
        load_without_openssl(modules)
    else:
        for name in modules:
            importlib.import_module(name)


def load_without_openssl(modules: tuple[str, ...]) -> None:
    """Imports them while nothing loads OpenSSL; they are to be able to do without, as those of EVENT_LOOP are."""
    sys.modules[SSL] = _StandIn(SSL)
    if hides_hashes := _has_own_hashes():
        sys.modules[OPENSSL_HASHES] = None  # type: ignore[assignment]  # An import of it fails.
    try:
        for name in modules:
            importlib.import_module(name)
    finally:
        del sys.modules[SSL]
        if hides_hashes:
            del sys.modules[OPENSSL_HASHES]


def _has_own_hashes() -> bool:
    try:
        for name in OWN_HASHES:
            importlib.import_module(name)
    except ImportError:
        return False
    return True
