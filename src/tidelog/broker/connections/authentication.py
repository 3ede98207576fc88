"""The gate of a connection by a SASL listener: it authenticates first, and requests go through it from then on.

    frame -> Gate.request -> SaslServer.receive   until the connection is open, and to re-authenticate
                         \\-> Dispatcher.request   once it is

A failed authentication is answered when the connection ends, `connection.failed.authentication.delay.ms` later; nothing
that comes meanwhile is read. What is not authenticated within a minute is closed by the server.
"""

from __future__ import annotations

import logging
import string
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, cast

from tidelog.broker.deferred import Deferred
from tidelog.broker.peer import CloseConnection
from tidelog.config.jaas import InvalidJaas
from tidelog.config.listener_security import MECHANISMS, OAUTHBEARER, PLAIN, SASL_PROTOCOLS
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol.framing import REQUEST_SIZE_MIN
from tidelog.security.access import Principal
from tidelog.security.authorizer import one_line
from tidelog.security.mechanisms import ServerMechanism
from tidelog.security.oauthbearer import OauthServer, unsecured_login
from tidelog.security.plain import PlainServer, StaticUsers
from tidelog.security.sasl_client import Credentials, Login, SaslClient, TokenSource
from tidelog.security.sasl_server import Ending, SaslServer
from tidelog.security.scram import MECHANISMS as SCRAM
from tidelog.security.scram import ScramServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.peer import Peer
    from tidelog.broker.requests.dispatch import Answer, Dispatcher
    from tidelog.config.broker_config import BrokerConfig
    from tidelog.ports.clock import Clock
    from tidelog.ports.random import Random
    from tidelog.security.oauthbearer import Verifier
    from tidelog.security.scram import ScramCredential, TokenLogin

logger: Final = logging.getLogger(__name__)

_NONCE_CHARACTERS: Final = string.ascii_letters + string.digits
_NONCE_LENGTH: Final = 24
"""Characters of a nonce: 142 bits."""


class Authentication:
    """How connections by the SASL listeners of one broker authenticate; follows settings that change."""

    def __init__(
        self,
        config: BrokerConfig,
        random: Random,
        credential_of: Callable[[str, str], ScramCredential | None],
        token_of: Callable[[str, str], TokenLogin | None] = lambda mechanism, token_id: None,
        verifier_of: Callable[[str], Verifier] | None = None,
    ) -> None:
        """`credential_of(mechanism, user)` is what the metadata store has of a SCRAM user, as known here;
        `token_of(mechanism, id)` the same of a delegation token; `verifier_of(listener)` judges bearer tokens."""
        self._config = config
        self._random = random
        self._credential_of = credential_of
        self._token_of = token_of
        self._verifier_of = verifier_of
        self.delay_ms = cast(int, config.get("connection.failed.authentication.delay.ms"))
        self.frame_size_max = cast(int, config.get("sasl.server.max.receive.size"))
        self.succeeded: Counter[str] = Counter()
        """[listener] -> how often a client has authenticated, again too; for metrics."""
        self.failed: Counter[str] = Counter()
        """[listener] -> how often a client could not."""

    def gate(
        self,
        peer: Peer,
        dispatcher_of: Callable[[], Dispatcher],
        later: Callable[..., object],
        close: Callable[[], None],
    ) -> Gate:
        """What a new connection has to pass. `later(delay_ms, callback, ...)` is the shell's timer; `close()` ends the
        connection after its answers."""
        return Gate(self, peer, dispatcher_of, later, close)

    def machine(self, listener: str) -> SaslServer:
        """The state machine of a new connection."""
        named = cast("tuple[str, ...]", self._config.of_listener(listener, "sasl.enabled.mechanisms"))
        # What an altered setting names besides is not there: a client that asks for it is told so.
        enabled = [mechanism for mechanism in named if mechanism in MECHANISMS]
        return SaslServer(
            enabled,
            lambda mechanism: self._mechanism(listener, mechanism),
            lambda mechanism: cast(int, self._config.of_listener(listener, "connections.max.reauth.ms", mechanism)),
        )

    def _mechanism(self, listener: str, mechanism: str) -> ServerMechanism:
        if mechanism == PLAIN:
            return PlainServer(self._plain_users(listener))
        if mechanism == OAUTHBEARER:
            assert self._verifier_of is not None
            return OauthServer(self._verifier_of(listener))
        return ScramServer(
            SCRAM[mechanism],
            lambda user: self._credential_of(mechanism, user),
            lambda: new_nonce(self._random),
            lambda token_id: self._token_of(mechanism, token_id),
        )

    def _plain_users(self, listener: str) -> StaticUsers:
        try:
            module = self._config.login_module(listener, PLAIN)
        except InvalidJaas as error:
            logger.error("sasl.jaas.config not read: listener=%s reason=%s", listener, error)
            module = None
        return StaticUsers({} if module is None else module.users())


def new_nonce(random: Random) -> str:
    """An unpredictable printable text, as SCRAM needs."""
    return "".join(_NONCE_CHARACTERS[byte % len(_NONCE_CHARACTERS)] for byte in random.token(_NONCE_LENGTH))


def broker_login(config: BrokerConfig, random: Random, clock: Clock) -> Callable[[], SaslClient] | None:
    """What begins this broker's authentication to another one; None where their listener has no SASL."""
    listener = config.inter_broker_listener_name
    protocol = next((each.security_protocol for each in config.listeners if each.name == listener), "")
    if protocol not in SASL_PROTOCOLS:
        return None
    mechanism = cast(str, config.get("sasl.mechanism.inter.broker.protocol"))

    def begin() -> SaslClient:
        # Read anew each time: a password may be altered while the broker runs.
        module = config.login_module(listener, mechanism)
        options = {} if module is None else module.options
        login: Login
        if mechanism == OAUTHBEARER:
            login = TokenSource(lambda: unsecured_login(options, clock.wall_ms() // 1000))
        else:
            login = Credentials(mechanism, options.get("username", ""), options.get("password", ""))
        return login.begin(new_nonce(random))

    return begin


class Gate:
    """One connection's authentication."""

    __slots__ = ("_authentication", "_close", "_dispatcher_of", "_ending", "_later", "_machine", "_peer", "dispatch")

    dispatch: Callable[[Peer, memoryview, int, int, int], Answer | Deferred[Answer]]
    """What requests are given to that have passed: `Dispatcher.request`, which a connection asks for at each read."""

    def __init__(
        self,
        authentication: Authentication,
        peer: Peer,
        dispatcher_of: Callable[[], Dispatcher],
        later: Callable[..., object],
        close: Callable[[], None],
    ) -> None:
        self._authentication = authentication
        self._peer = peer
        self._machine = authentication.machine(peer.listener)
        self._dispatcher_of = dispatcher_of
        self._later = later
        self._close = close
        self._ending = False

    @property
    def is_open(self) -> bool:
        """Whether the client has authenticated."""
        return self._machine.user is not None

    @property
    def is_passed(self) -> bool:
        """Whether the client has authenticated for as long as its connection lasts: nothing is left to ask."""
        return self._machine.is_open and self._machine.session_end_ms is None

    @property
    def frame_size_max(self) -> int:
        """Bytes of a frame before authentication."""
        return self._authentication.frame_size_max

    def refuse_size(self, size: int) -> None:
        """A frame of that size cannot be; the connection ends after the delay, too."""
        if not self._ending:
            self._end_later(None, f"a frame of {size} bytes before authentication{_guess(size)}")

    @property
    def is_ending(self) -> bool:
        """Whether the connection has failed and only waits for its end."""
        return self._ending

    def admits(self, received_ms: int) -> bool:
        """Whether requests are handled: the client has authenticated, and its session has not ended."""
        machine = self._machine
        return machine.is_open and (machine.session_end_ms is None or received_ms < machine.session_end_ms)

    def request(
        self, peer: Peer, view: memoryview, position: int, end: int, received_ms: int
    ) -> Answer | Deferred[Answer]:
        """`Dispatcher.request` for a connection that has to authenticate. Raises CloseConnection."""
        machine = self._machine
        frame = view[position:end]
        if machine.is_open and end - position < REQUEST_SIZE_MIN:
            raise CloseConnection(f"a frame of {end - position} bytes is not a valid Kafka request")
        if machine.is_open and not machine.begins_again(frame, received_ms):
            if not self.admits(received_ms):
                raise CloseConnection("its SASL session has ended (connections.max.reauth.ms)")
            return self.dispatch(peer, view, position, end, received_ms)
        step = machine.receive(frame, received_ms)
        if step.for_handler:
            return self.dispatch(peer, view, position, end, received_ms)
        if step.ending is Ending.AT_ONCE:
            self._authentication.failed[self._peer.listener] += 1
            raise CloseConnection(f"authentication failed: {step.reason}")
        answer: Any = step.answer
        if step.is_illegal:
            answer = self._dispatcher_of().refuse(frame, KafkaError(ErrorCode.ILLEGAL_SASL_STATE))
        if step.ending is Ending.DELAYED:
            return self._end_later(answer, step.reason)
        if machine.is_open:
            assert machine.user is not None
            self._authentication.succeeded[self._peer.listener] += 1
            peer.by_token = machine.by_token
            peer.authenticated(Principal(machine.user))
        return cast("Answer", answer)

    def _end_later(self, answer: bytes | None, reason: str) -> Deferred[Answer]:
        """The answer, when it is due: the connection ends with it."""
        self._ending = True
        self._authentication.failed[self._peer.listener] += 1
        logger.warning(
            "authentication_failed: peer=%s:%d listener=%s mechanism=%s reason=%s",
            self._peer.address,
            self._peer.port,
            self._peer.listener,
            self._machine.mechanism or "none",
            one_line(reason),
        )
        due: Deferred[Answer] = Deferred()

        def end() -> None:
            if answer is not None:
                due.complete(answer)
            self._close()

        self._later(self._authentication.delay_ms, end)
        return due


def _guess(size: int) -> str:
    return ": it is TLS, and this listener is none of SSL" if size >> 16 == 0x1603 else ""
