"""The way to other brokers, over loopback: order, pipelining, connections that break, stall and move."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from typing import Any

import pytest

from tidelog.broker.connections.peers import RECEIVE_BUFFER_SIZE, Peers
from tidelog.broker.deferred import Deferred
from tidelog.broker.shell import Purpose
from tidelog.ports.real import SystemClock, SystemNetwork
from tidelog.protocol import framing, messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.sasl_client import Credentials, SaslClient

DEADLINE_S = 180.0


class Broker:
    """Answers AllocateProducerIds with a counter, in pieces if asked to, or not at all."""

    def __init__(self) -> None:
        self.requests: list[int] = []
        """Correlation ids, as they came."""
        self.connections: list[asyncio.StreamWriter] = []
        self.silent = False
        self.piece = 1 << 30
        """Bytes that are written at once."""
        self.garbage = b""
        """Sent instead of an answer."""
        self.heard = asyncio.Event()
        """Set by each request."""
        self.logins: dict[int, Any] = {}
        """[API key] -> what each step of a login is answered."""
        self.server: asyncio.Server | None = None
        self.address = ("", 0)

    async def start(self, port: int = 0) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.address = self.server.sockets[0].getsockname()

    async def stop(self) -> None:
        assert self.server is not None
        self.server.close()
        self.reset()

    def reset(self) -> None:
        for writer in self.connections:
            writer.transport.abort()
        self.connections.clear()

    async def has_heard(self, count: int = 1) -> None:
        while len(self.requests) < count:
            self.heard.clear()
            await self.heard.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        while True:
            try:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()
                return
            header, _ = framing.decode_request_header(frame)
            if header.request_api_key in self.logins:
                answered = framing.encode_response(
                    ApiKey(header.request_api_key), 1, header.correlation_id, self.logins[header.request_api_key]
                )
                writer.write(b"".join(answered))  # type: ignore[arg-type]
                continue
            self.requests.append(header.correlation_id)
            self.heard.set()
            if self.silent:
                continue
            answer = messages.AllocateProducerIdsResponse(producer_id_start=len(self.requests))
            chunks = framing.encode_response(ApiKey.ALLOCATE_PRODUCER_IDS, 0, header.correlation_id, answer)
            data = self.garbage or b"".join(chunks)  # type: ignore[arg-type]
            for start in range(0, len(data), self.piece):
                writer.write(data[start : start + self.piece])
                await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, DEADLINE_S))


def peers_of(*brokers: Broker) -> Peers:
    return Peers(
        SystemNetwork(), SystemClock(), lambda number: brokers[number].address if number < len(brokers) else None
    )


async def outcome(deferred: Deferred[Any]) -> Any:
    future: asyncio.Future[Deferred[Any]] = asyncio.get_running_loop().create_future()
    deferred.on_complete(future.set_result)
    return (await future).result()


def question(broker_id: int = 0) -> messages.AllocateProducerIdsRequest:
    return messages.AllocateProducerIdsRequest(broker_id=broker_id)


def ask(peers: Peers, id: int = 0, purpose: Purpose = Purpose.CONTROL, timeout_ms: int = 5_000) -> Deferred[Any]:
    return peers.ask(id, purpose, question(), 0, timeout_ms)


def test_requests_are_pipelined_in_order_on_one_connection() -> None:
    """What is asked before the connection stands goes out in order, with no ApiVersions before it."""

    async def check() -> None:
        broker = Broker()
        await broker.start()
        peers = peers_of(broker)
        asked = [ask(peers) for _ in range(50)]
        starts = [(await outcome(each)).producer_id_start for each in asked]
        assert starts == list(range(1, 51))
        assert broker.requests == list(range(1, 51))
        assert len(broker.connections) == 1
        peers.close()
        await broker.stop()

    run(check())


def test_a_login_that_cannot_be_renewed_ends_its_connection() -> None:
    """As where a password's setting was altered to what cannot be read: the next request connects anew."""

    async def check() -> None:
        broker = Broker()
        broker.logins = {
            ApiKey.SASL_HANDSHAKE: messages.SaslHandshakeResponse(mechanisms=["PLAIN"]),
            ApiKey.SASL_AUTHENTICATE: messages.SaslAuthenticateResponse(session_lifetime_ms=3_600_000),
        }
        await broker.start()
        began = 0
        failed = asyncio.Event()

        def log_in() -> SaslClient:
            nonlocal began
            began += 1
            if began == 2:
                failed.set()
                raise ValueError("sasl.jaas.config cannot be read")
            return Credentials("PLAIN", "broker", "secret").begin("nonce")

        peers = Peers(SystemNetwork(), SystemClock(), lambda number: broker.address, log_in=log_in)
        assert (await outcome(ask(peers))).producer_id_start == 1
        (link,) = peers._links.values()
        assert link._connection is not None
        link._renew(link._connection)  # As its timer does.
        await failed.wait()
        assert (await outcome(ask(peers))).producer_id_start == 2
        peers.close()
        await broker.stop()

    run(check())


def test_each_purpose_has_a_connection_of_its_own() -> None:
    """A request of one purpose that waits does not hold those of another."""

    async def check() -> None:
        broker = Broker()
        await broker.start()
        peers = peers_of(broker)
        broker.silent = True
        waiting = ask(peers, purpose=Purpose.FORWARD)
        await broker.has_heard()
        broker.silent = False
        await outcome(ask(peers, purpose=Purpose.FETCH))
        assert not waiting.done
        assert len(broker.connections) == 2
        peers.close()
        with pytest.raises(ConnectionError):
            await outcome(waiting)
        await broker.stop()

    run(check())


@pytest.mark.parametrize("piece", [1, 3, 5])
def test_answers_in_pieces_are_put_together(piece: int) -> None:
    """Wherever the network cuts, each answer arrives whole."""

    async def check() -> None:
        broker = Broker()
        broker.piece = piece
        await broker.start()
        peers = peers_of(broker)
        asked = [ask(peers) for _ in range(5)]
        assert [(await outcome(each)).producer_id_start for each in asked] == [1, 2, 3, 4, 5]
        peers.close()
        await broker.stop()

    run(check())


def test_a_large_answer_keeps_its_bytes() -> None:
    """Records of an answer that is larger than the buffer are its own, whatever is read afterwards."""

    async def check() -> None:
        records = bytes(range(256)) * (RECEIVE_BUFFER_SIZE // 64)
        response = messages.FetchResponse
        data = response(
            responses=[
                response.FetchableTopicResponse(
                    topic="t",
                    topic_id=b"\1" * 16,
                    partitions=[response.PartitionData(partition_index=0, high_watermark=1, records=records)],
                )
            ]
        )

        class FetchBroker(Broker):
            async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                for _ in range(2):
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    header, _ = framing.decode_request_header(await reader.readexactly(size))
                    chunks = framing.encode_response(ApiKey.FETCH, 17, header.correlation_id, data)
                    writer.write(b"".join(chunks))  # type: ignore[arg-type]
                writer.close()

        broker = FetchBroker()
        await broker.start()
        peers = peers_of(broker)
        asked = [peers.ask(0, Purpose.FETCH, messages.FetchRequest(), 17, 5_000) for _ in range(2)]
        answers = [await outcome(each) for each in asked]
        for answer in answers:
            assert bytes(answer.responses[0].partitions[0].records) == records
        peers.close()
        await broker.stop()

    run(check())


def test_the_buffer_of_a_large_answer_is_used_again_once_nobody_reads_it() -> None:
    """Followers get one large answer after the other. A small one means that the next may be long in coming."""

    async def check() -> None:
        response = messages.FetchResponse
        records = bytes(range(256)) * (RECEIVE_BUFFER_SIZE // 64)
        sizes = [len(records)] * 4 + [1, len(records)]

        def data(size: int) -> messages.FetchResponse:
            partition = response.PartitionData(partition_index=0, high_watermark=1, records=records[:size])
            topic = response.FetchableTopicResponse(topic="t", topic_id=b"\1" * 16, partitions=[partition])
            return response(responses=[topic])

        class FetchBroker(Broker):
            async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                for answer in map(data, sizes):
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    header, _ = framing.decode_request_header(await reader.readexactly(size))
                    chunks = framing.encode_response(ApiKey.FETCH, 17, header.correlation_id, answer)
                    writer.write(b"".join(chunks))  # type: ignore[arg-type]
                writer.close()

        broker = FetchBroker()
        await broker.start()
        peers = peers_of(broker)

        async def received() -> memoryview:
            answer = await outcome(peers.ask(0, Purpose.FETCH, messages.FetchRequest(), 17, 5_000))
            found = answer.responses[0].partitions[0].records
            assert bytes(found) == records[: len(found)]
            return memoryview(found)

        first, second = await received(), await received()
        assert first.obj is not second.obj
        assert bytes(first) == bytes(second) == records
        kept = second.obj
        del second
        third = await received()
        assert third.obj is kept
        first.release()
        fourth = await received()
        assert fourth.obj is not kept
        assert bytes(third) == bytes(fourth) == records
        kept = fourth.obj
        del third, fourth
        assert len(await received()) == 1
        last = await received()
        assert last.obj is not kept
        peers.close()
        await broker.stop()

    run(check())


def test_a_broken_connection_fails_all_that_waits_and_the_next_question_connects_anew() -> None:
    """Whether what waited was carried out is unknown; who asked decides."""

    async def check() -> None:
        broker = Broker()
        await broker.start()
        peers = peers_of(broker)
        broker.silent = True
        asked = [ask(peers) for _ in range(3)]
        await broker.has_heard(3)
        broker.reset()
        for each in asked:
            with pytest.raises(ConnectionError, match="broke"):
                await outcome(each)
        broker.silent = False
        assert (await outcome(ask(peers))).producer_id_start == 4
        peers.close()
        await broker.stop()

    run(check())


def test_a_broker_that_does_not_answer_is_given_up_in_time() -> None:
    """TimeoutError for the one whose time is over, ConnectionError for those behind it."""

    async def check() -> None:
        broker = Broker()
        await broker.start()
        peers = peers_of(broker)
        broker.silent = True
        first, second = ask(peers, timeout_ms=20), ask(peers)
        with pytest.raises(TimeoutError, match="did not answer within 20 ms"):
            await outcome(first)
        with pytest.raises(ConnectionError, match="does not answer"):
            await outcome(second)
        broker.silent = False
        await outcome(ask(peers))
        peers.close()
        await broker.stop()

    run(check())


def test_a_broker_that_is_not_there_refuses_and_comes_back() -> None:
    """Attempts have a small back-off between them; when the broker is back, the next question reaches it."""

    async def check() -> None:
        broker = Broker()
        await broker.start()
        port = broker.address[1]
        await broker.stop()
        peers = peers_of(broker)
        for _ in range(3):
            with pytest.raises(ConnectionRefusedError, match=f"127.0.0.1:{port}"):
                await outcome(ask(peers))
        await broker.start(port)
        assert (await outcome(ask(peers))).producer_id_start == 1
        peers.close()
        await broker.stop()

    run(check())


def test_a_broker_that_moved_is_found_at_its_new_address() -> None:
    """The address is looked up for every question: what was asked of the old place fails at once."""

    async def check() -> None:
        old, new = Broker(), Broker()
        await old.start()
        await new.start()
        place = [old.address]
        peers = Peers(SystemNetwork(), SystemClock(), lambda _: place[0])
        old.silent = True
        waiting = ask(peers)
        await old.has_heard()
        place[0] = new.address
        moved = ask(peers)
        with pytest.raises(ConnectionError, match="moved"):
            await outcome(waiting)
        assert (await outcome(moved)).producer_id_start == 1
        assert new.requests
        peers.close()
        await old.stop()
        await new.stop()

    run(check())


def test_brokers_that_are_gone_are_closed_and_unknown_ones_refused() -> None:
    """No connection is kept to a broker that left, nothing is asked of one that is unknown."""

    async def check() -> None:
        brokers = [Broker(), Broker()]
        for broker in brokers:
            await broker.start()
            broker.silent = True
        peers = peers_of(*brokers)
        leaving, staying = ask(peers, 0), ask(peers, 1)
        await brokers[0].has_heard()
        await brokers[1].has_heard()
        peers.retain([1])
        with pytest.raises(ConnectionError, match="gone from the cluster"):
            await outcome(leaving)
        assert not staying.done
        with pytest.raises(ConnectionError, match="not known to be live"):
            await outcome(ask(peers, 2))
        peers.close()
        with pytest.raises(ConnectionError, match="this broker stops"):
            await outcome(ask(peers, 1))
        for broker in brokers:
            await broker.stop()

    run(check())


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">ii", 4, 77), struct.pack(">iib", 5, 1, 0)]
)
def test_what_is_no_answer_ends_the_connection(garbage: bytes) -> None:
    """Not Kafka's protocol, an answer to nothing, an answer cut short: an error, never a hang."""

    async def check() -> None:
        broker = Broker()
        broker.garbage = garbage
        await broker.start()
        peers = peers_of(broker)
        with pytest.raises(ConnectionError):
            await outcome(ask(peers))
        broker.garbage = b""
        await outcome(ask(peers))
        peers.close()
        await broker.stop()

    run(check())


def test_a_mistake_of_one_who_asked_harms_no_other() -> None:
    """A callback that raises is logged; the answers behind it still come."""

    async def check() -> None:
        broker = Broker()
        await broker.start()
        peers = peers_of(broker)
        bad, good = ask(peers), ask(peers)
        bad.on_complete(lambda _: 1 // 0)
        assert (await outcome(good)).producer_id_start == 2
        peers.close()
        await broker.stop()

    run(check())


def test_it_is_told_when_a_connection_stands_and_when_its_other_end_breaks_it() -> None:
    """A connection that we close ourselves is nobody's news."""

    async def check() -> None:
        broker = Broker()
        await broker.start()
        news: list[tuple[str, int]] = []
        peers = Peers(
            SystemNetwork(),
            SystemClock(),
            lambda _: broker.address,
            on_reached=lambda number: news.append(("reached", number)),
            on_broke=lambda number: news.append(("broke", number)),
        )
        await outcome(ask(peers, 3))
        broker.silent = True
        waiting = ask(peers, 3)
        await broker.has_heard(2)
        broker.reset()
        with pytest.raises(ConnectionResetError):
            await outcome(waiting)
        broker.silent = False
        await outcome(ask(peers, 3))
        peers.close()
        await asyncio.sleep(0)
        assert news == [("reached", 3), ("broke", 3), ("reached", 3)]
        await broker.stop()

    run(check())
