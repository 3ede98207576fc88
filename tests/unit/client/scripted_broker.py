"""A broker that says what a test tells it to, over loopback: for both clients, and for what no real broker sends."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tests.waiting import eventually

from tidelog.client.cluster import Cluster
from tidelog.model.errors import ErrorCode
from tidelog.model.identifiers import ZERO_TOPIC_ID
from tidelog.protocol import apis, codec, framing, messages
from tidelog.protocol.apis import ApiKey

TOPIC_ID = bytes(range(16))
DROP = object()
"""An answer that closes the connection."""
SILENCE = object()
"""An answer that never comes."""

Answer = Any
"""A response message, raw bytes to send as they are, DROP, SILENCE, or None for requests without an answer."""
Handler = Callable[[Any, int], Answer]


class ScriptedBroker:
    """Answers by `handlers`, [api key] -> (request, version) -> answer; `requests` keeps (key, version, request).

    It serves `versions`, [api key] -> (lowest, highest), by default all that the codec knows of the keys with a
    handler. ApiVersions and Metadata have handlers of their own: one topic `t` of `partitions` partitions, led here.
    """

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler] | None = None,
        *,
        versions: Mapping[ApiKey, tuple[int, int]] | None = None,
        partitions: int = 2,
        topic_id: bytes = TOPIC_ID,
    ) -> None:
        self.handlers: dict[ApiKey, Handler] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self.metadata,
            **(handlers or {}),
        }
        self.versions = dict(versions or {})
        self.partitions = partitions
        self.topic_id = topic_id
        self.requests: list[tuple[ApiKey, int, Any]] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stopping = False
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> ScriptedBroker:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._sockets:
            with_shutdown(connection)
        for thread in self._threads:
            thread.join(10)

    def hang_up(self) -> None:
        """Closes the connections that there are, as brokers do with those that nobody uses."""
        for connection in self._sockets:
            with_shutdown(connection)

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return int(self._address[1])

    @property
    def bootstrap(self) -> str:
        """Its address as clients take it."""
        return f"127.0.0.1:{self.port}"

    @property
    def _address(self) -> tuple[str, int]:
        if not hasattr(self, "_bound"):
            self._bound: tuple[str, int] = self._listener.getsockname()
        return self._bound

    def asked(self, key: ApiKey) -> list[Any]:
        """The requests of one API so far."""
        return [request for asked, _, request in self.requests if asked is key]

    def asked_versions(self, key: ApiKey) -> list[int]:
        """The versions in which they came."""
        return [version for asked, version, _ in self.requests if asked is key]

    def metadata(self, request: Any, version: int) -> Any:
        """One topic, `t`, all of whose partitions this broker leads; other names are unknown."""
        kind = messages.MetadataResponse
        names = ["t"] if request.topics is None else [topic.name for topic in request.topics]
        return kind(
            brokers=[kind.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            cluster_id="scripted" if version >= 2 else None,
            controller_id=1 if version >= 1 else -1,
            topics=[
                kind.MetadataResponseTopic(
                    name=name,
                    topic_id=self.topic_id if version >= 10 else ZERO_TOPIC_ID,
                    error_code=0 if name == "t" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    partitions=[
                        kind.MetadataResponsePartition(
                            partition_index=partition,
                            leader_id=1,
                            leader_epoch=3 if version >= 7 else -1,
                            replica_nodes=[1],
                            isr_nodes=[1],
                        )
                        for partition in range(self.partitions if name == "t" else 0)
                    ],
                )
                for name in names
            ],
        )

    def _api_versions(self, request: Any, version: int) -> Any:
        kind = messages.ApiVersionsResponse
        ranges = {key: self.versions.get(key) or tuple(apis.versions(key)) for key in self.handlers}
        entries = [
            kind.ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, (lowest, highest) in ranges.items()
        ]
        code = ErrorCode.NONE if version <= ranges[ApiKey.API_VERSIONS][1] else ErrorCode.UNSUPPORTED_VERSION
        return kind(error_code=code, api_keys=entries)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while (frame := _read_frame(connection)) is not None:
                    if not self._answer(connection, frame):
                        return
            except OSError:
                return

    def _answer(self, connection: socket.socket, frame: bytes) -> bool:
        key_number, version, correlation_id = struct.unpack_from(">hhi", frame)
        key = ApiKey(key_number)
        _, position = framing.decode_request_header(frame)
        request = codec.decode_exactly(messages.request_class(key), version, frame[position:])
        self.requests.append((key, version, request))
        answer = self.handlers[key](request, version)
        if answer is DROP:
            with_shutdown(connection)
            return False
        if isinstance(answer, bytes):
            connection.sendall(answer)
        elif answer is not None and answer is not SILENCE:
            # A version that is not served is answered in version 0, as brokers do for ApiVersions.
            unserved = key is ApiKey.API_VERSIONS and answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            for chunk in framing.encode_response(key, 0 if unserved else version, correlation_id, answer):
                connection.sendall(chunk)  # type: ignore[arg-type]  # These tests send no files.
        return True


class HeldAnswers:
    """The answers of one API, which come after the client has looked at all topics, of a broker that shows none yet."""

    def __init__(self, broker: ScriptedBroker, key: ApiKey) -> None:
        self._broker = broker
        self._came, self._may_go = threading.Event(), threading.Event()
        answer = broker.handlers[key]

        def hold(request: Any, version: int) -> Answer:
            response = answer(request, version)
            self._came.set()
            assert self._may_go.wait(180)
            return response

        broker.handlers[key] = hold

    async def release(self, cluster: Cluster) -> None:
        """Lets the client look, and then have the answers."""
        await eventually(self._came.is_set)
        show = self._broker.handlers[ApiKey.METADATA]

        def show_none(request: Any, version: int) -> Answer:
            response = show(request, version)
            if request.topics is None:
                response.topics = []
            return response

        self._broker.handlers[ApiKey.METADATA] = show_none
        await cluster.run(cluster.routing.refresh(None, cluster.routing.deadline()))
        self._broker.handlers[ApiKey.METADATA] = show
        self._may_go.set()


def with_shutdown(connection: socket.socket) -> None:
    """Ends both directions, which wakes a thread that is blocked in the socket."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # The other side was faster.


def _read_frame(connection: socket.socket) -> bytes | None:
    prefix = _read(connection, 4)
    return None if prefix is None else _read(connection, struct.unpack(">i", prefix)[0])


def _read(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        received = connection.recv(size - len(data))
        if not received:
            return None
        data += received
    return data
