"""How bearer tokens of OAUTHBEARER are judged on a listener: by an issuer's keys, or, if so set, by themselves alone.

    sasl.oauthbearer.jwks.endpoint.url    https://..., http://... or file://...: the keys, as a JWKS (RFC 7517)
    sasl.oauthbearer.expected.issuer, .expected.audience, .clock.skew.seconds, .sub.claim.name

The keys are read before the broker listens, again each `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and soon after a
token came whose key is not known. Where they cannot be read then, those that were known hold.

Tokens without a signature are taken only where a setting says "unsecured" (`config.listener_security.unsecured`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from tidelog.broker.failure import BrokerFailed
from tidelog.config.listener_security import OAUTHBEARER, SASL_PROTOCOLS, unsecured_options
from tidelog.security.authorizer import one_line
from tidelog.security.oauthbearer import InvalidToken, Shown, Unsecured, Verifier, scope_of, verify_unsecured

if TYPE_CHECKING:
    from tidelog.broker.deferred import Deferred
    from tidelog.broker.shell import Shell
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.ports.clock import Clock

logger: Final = logging.getLogger(__name__)

FETCH_S_MAX: Final = 10.0
"""For an answer with keys."""
JWKS_SIZE_MAX: Final = 1 << 20
EXPEDITED_MS_MIN: Final = 10_000
"""Between two readings of the keys that unknown key ids cause: any client can name one."""
KEY_ID_LENGTH_MAX: Final = 1_000
_ALGORITHMS: Final[Mapping[tuple[str, str | None], tuple[str, ...]]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""[type and curve of a key] -> what it can sign with. Secrets that are shared (oct) are no keys of an issuer's."""


class Rules(NamedTuple):
    """What is asked of a signed token."""

    issuer: str | None
    audience: tuple[str, ...]
    """Any of them; empty: any audience."""
    skew_s: int
    principal_claim: str


class _Key(NamedTuple):
    key: Any
    algorithms: tuple[str, ...]


class IssuerKeys:
    """The keys of one JWKS."""

    def __init__(self, url: str, shell: Shell, clock: Clock, refresh_ms: int) -> None:
        self.url = url
        self._shell = shell
        self._clock = clock
        self._refresh_ms = refresh_ms
        self._keys: dict[str | None, _Key] = {}
        self._read_ms = 0
        self._reading = False

    def open(self) -> Deferred[None]:
        """Reads the keys; fails with BrokerFailed."""
        from tidelog.broker.deferred import Deferred

        outcome: Deferred[None] = Deferred()

        def done(settled: Deferred[dict[str | None, _Key]]) -> None:
            try:
                self._keys = settled.result()
            except Exception as error:  # Of the network, of JSON, of a key: the broker says that it cannot read them.
                outcome.fail(BrokerFailed(f"the keys of bearer tokens cannot be read: {self.url}: {error}"))
                return
            self._read_ms = self._clock.monotonic_ms()
            logger.info("jwks_read: url=%s keys=%d", self.url, len(self._keys))
            self._shell.after(self._refresh_ms, self._refresh)
            outcome.complete(None)

        self._shell.in_pool(lambda: read_jwks(self.url)).on_complete(done)
        return outcome

    def get(self, key_id: str | None) -> _Key | None:
        """The key of that id; without an id the only one there is. An unknown id has the keys read again soon."""
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        key = self._keys.get(key_id)
        if key is None and self._clock.monotonic_ms() - self._read_ms >= EXPEDITED_MS_MIN:
            self._read()
        return key

    def _refresh(self) -> None:
        self._read()
        self._shell.after(self._refresh_ms, self._refresh)

    def _read(self) -> None:
        if self._reading:
            return
        self._reading = True
        self._read_ms = self._clock.monotonic_ms()

        def done(settled: Deferred[dict[str | None, _Key]]) -> None:
            self._reading = False
            try:
                self._keys = settled.result()
            except Exception as error:
                logger.warning("jwks_not_read: url=%s reason=%s", self.url, one_line(str(error)))
            else:
                logger.info("jwks_read: url=%s keys=%d", self.url, len(self._keys))

        self._shell.in_pool(lambda: read_jwks(self.url)).on_complete(done)


def read_jwks(url: str) -> dict[str | None, _Key]:
    """[key id] -> key, of a JWKS. Blocks. OSError; ValueError where it has no key that can be used."""
    import urllib.parse
    import urllib.request  # Here alone: it takes a megabyte, and most brokers take no such tokens.

    import jwt

    if urllib.parse.urlsplit(url).scheme not in ("http", "https", "file"):
        raise ValueError("only http, https and file URLs are read")
    with urllib.request.urlopen(url, timeout=FETCH_S_MAX) as answer:  # The scheme is one of three.
        data = answer.read(JWKS_SIZE_MAX + 1)
    if len(data) > JWKS_SIZE_MAX:
        raise ValueError(f"it has more than {JWKS_SIZE_MAX} bytes")
    content = json.loads(data)
    entries = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise ValueError("it is no JWKS: it has no keys")
    keys: dict[str | None, _Key] = {}
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        algorithms = _ALGORITHMS.get((str(entry.get("kty")), entry.get("crv")), ())
        if "alg" in entry:
            algorithms = tuple(each for each in algorithms if each == entry["alg"])
        if not algorithms:
            continue
        try:
            key = jwt.PyJWK(entry, algorithms[0]).key
        except jwt.PyJWTError as error:
            logger.warning("jwks_key_unusable: url=%s kid=%s reason=%s", url, one_line(str(entry.get("kid"))), error)
            continue
        keys[entry.get("kid")] = _Key(key, algorithms)
    if not keys:
        raise ValueError("it has no key that signatures can be checked with")
    return keys


def verify_signed(token: str, keys: IssuerKeys, rules: Rules, now_ms: int) -> Shown:
    """What a signed token says; `now_ms` by the wall clock. InvalidToken."""
    import jwt

    try:
        header = jwt.get_unverified_header(token)
        key_id = header.get("kid")
        key = keys.get(key_id[:KEY_ID_LENGTH_MAX] if isinstance(key_id, str) else None)
        if key is None:
            raise InvalidToken(f"its key {one_line(str(key_id)[:80])!r} is none of {keys.url}")
        options = {"require": ["exp", "iat"], "verify_aud": bool(rules.audience)}
        claims = jwt.decode(
            token,
            key.key,
            algorithms=list(key.algorithms),
            audience=list(rules.audience) or None,
            issuer=rules.issuer,
            leeway=rules.skew_s,
            options=cast(Any, options),
        )
    except jwt.PyJWTError as error:
        raise InvalidToken(one_line(str(error))) from error
    user = claims.get(rules.principal_claim)
    if not isinstance(user, str) or not user.strip():
        raise InvalidToken(f"its claim {rules.principal_claim} names no principal")
    return Shown(user, int(claims["exp"]) * 1000 - now_ms)


class BearerTokens:
    """How the listeners of one broker judge tokens."""

    def __init__(self, config: BrokerConfig, shell: Shell, clock: Clock) -> None:
        """BrokerFailed where signed tokens are asked for, and the library for them is not installed."""
        self._verifiers: dict[str, Verifier] = {}
        self._keys: dict[str, IssuerKeys] = {}
        for listener in config.listeners:
            if listener.security_protocol in SASL_PROTOCOLS and OAUTHBEARER in cast(
                "tuple[str, ...]", config.of_listener(listener.name, "sasl.enabled.mechanisms")
            ):
                self._verifiers[listener.name] = self._verifier(config, listener.name, shell, clock)

    def open(self) -> list[Deferred[None]]:
        """Reads the keys of all issuers; fail with BrokerFailed."""
        return [keys.open() for keys in self._keys.values()]

    def verifier(self, listener: str) -> Verifier:
        """How `listener`, which offers OAUTHBEARER, judges a token."""
        return self._verifiers.get(listener, _refuse_all)

    def _verifier(self, config: BrokerConfig, listener: str, shell: Shell, clock: Clock) -> Verifier:
        url = cast(str, config.of_listener(listener, "sasl.oauthbearer.jwks.endpoint.url", OAUTHBEARER))
        handler = cast("str | None", config.of_listener(listener, "sasl.server.callback.handler.class", OAUTHBEARER))
        options = unsecured_options(handler, url, config.login_module(listener, OAUTHBEARER))
        if options is not None:
            logger.warning(
                "listener %s accepts bearer tokens without a signature: whoever can connect can be whoever it likes",
                listener,
            )
            return _unsecured(options, clock)
        _require_library()
        refresh_ms = cast(int, config.of_listener(listener, "sasl.oauthbearer.jwks.endpoint.refresh.ms", OAUTHBEARER))
        keys = self._keys.setdefault(url, IssuerKeys(url, shell, clock, refresh_ms))
        rules = Rules(
            cast("str | None", config.of_listener(listener, "sasl.oauthbearer.expected.issuer", OAUTHBEARER)) or None,
            cast("tuple[str, ...]", config.of_listener(listener, "sasl.oauthbearer.expected.audience", OAUTHBEARER)),
            cast(int, config.of_listener(listener, "sasl.oauthbearer.clock.skew.seconds", OAUTHBEARER)),
            cast(str, config.of_listener(listener, "sasl.oauthbearer.sub.claim.name", OAUTHBEARER)),
        )
        return lambda token: verify_signed(token, keys, rules, clock.wall_ms())


def _unsecured(options: Mapping[str, str], clock: Clock) -> Verifier:
    prefix = "unsecuredValidator"
    rules = Unsecured(
        options.get(f"{prefix}PrincipalClaimName", "sub"),
        options.get(f"{prefix}ScopeClaimName", "scope"),
        scope_of(options.get(f"{prefix}RequiredScope", "")),
        int(options.get(f"{prefix}AllowableClockSkewMs", "0")),
    )
    return lambda token: verify_unsecured(token, rules, clock.wall_ms())


def _refuse_all(token: str) -> Shown:
    raise InvalidToken("OAUTHBEARER was enabled while the broker ran: it is served from the next start")


def _require_library() -> None:
    try:
        import jwt  # noqa: F401
    except ImportError:
        raise BrokerFailed(
            "bearer tokens with signatures need the library PyJWT: pip install 'tidelog[oauth]'"
        ) from None
