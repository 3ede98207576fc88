"""The parsers that `make fuzz` attacks, a class a family: what it reads, what it may answer, how its inputs are made.

An input is drawn from a `random.Random` and nothing else, so that a seed says it again. A family makes valid bytes
first and damages them: bytes that were nearly right reach further than noise. `attempt` returns whether the parser
refused; whatever else it raises than the refusals that its users handle is a finding.
"""

from __future__ import annotations

import functools
import json
import logging
import shutil
import tempfile
import warnings
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from tests.property.fuzz_protocol import check_frames, check_message, mutate
from tests.property.protocol_samples import Sampler

from tidelog.model.errors import KafkaError


class Family(Protocol):
    """One family in one process."""

    def begin(self, draw: Random) -> None:
        """Makes what the next inputs share; called before every block of them."""
        ...

    def attempt(self, draw: Random) -> bool:
        """Hands one input to the parsers; whether they refused it. Raises what they let through."""
        ...

    def end(self) -> None:
        """Removes what `begin` made."""
        ...


class Stateless:
    """A family whose inputs share nothing."""

    def begin(self, draw: Random) -> None:
        pass

    def end(self) -> None:
        pass


def refuses(parse: Callable[[], object], *refusals: type[Exception]) -> bool:
    """Whether `parse` raises one of `refusals`."""
    try:
        parse()
    except refusals:
        return True
    return False


class Messages(Stateless):
    """Every message in every version, frames, and the keys and values of coordinators' logs."""

    def __init__(self) -> None:
        from tidelog.protocol import catalogue, codec, errors, messages

        self._codec, self._messages = codec, messages
        self._invalid = errors.InvalidMessage
        self._names = sorted(catalogue.places())

    def begin(self, draw: Random) -> None:
        while True:
            self._cls = getattr(self._messages, draw.choice(self._names))
            self._version = draw.randint(self._cls.LOWEST_VERSION, self._cls.HIGHEST_VERSION)
            message = Sampler(draw.randrange(1 << 32), unknown_tags=True).message(self._cls, self._version)
            # A random unknown tag may be out of range.
            if not refuses(lambda: self._codec.encode(message, self._version), self._invalid):  # noqa: B023
                break
        self._valid = self._codec.encode(message, self._version)

    def attempt(self, draw: Random) -> bool:
        damaged = mutate(self._valid, draw)
        check_frames(damaged)
        return not check_message(self._cls, self._version, damaged)


def sample_batch(draw: Random) -> bytearray:
    """A valid batch of any codec, with or without keys, values, headers and a producer."""
    from tidelog.records.batch import Codec, Record, build_batch

    content = (None, b"", b"k", bytes(40), draw.randbytes(30), b"abc" * 50)
    records = [
        Record(
            offset,
            1_700_000_000_000 + draw.randrange(-2, 3),
            draw.choice(content),
            draw.choice(content),
            tuple((name, draw.choice(content)) for name in draw.choice(((), ("h",), ("h", "schlüssel")))),
        )
        for offset in range(draw.randrange(1, 6))
    ]
    fields: dict[str, int] = {}
    if draw.random() < 0.3:
        fields = {"producer_id": 4, "producer_epoch": 0, "base_sequence": draw.randrange(3)}
    return bytearray(build_batch(records, codec=draw.choice(list(Codec)), **fields))


def damaged_batch(draw: Random) -> bytearray:
    """A batch with damage; half of them sealed again, so that the damage is behind a checksum that holds."""
    from tidelog.records.batch import HEADER_SIZE, read_header
    from tidelog.records.checksum import crc32c
    from tidelog.records.errors import InvalidBatch

    batch = bytearray(mutate(bytes(sample_batch(draw)), draw))
    if draw.random() < 0.5 and len(batch) >= HEADER_SIZE:
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        batch[16] = 2
        batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
        assert not refuses(lambda: read_header(batch, 0), InvalidBatch)
    if draw.random() < 0.2:
        batch += sample_batch(draw)
    return batch


class Batches(Stateless):
    """Record batches: headers, validation as the broker does it, records; and Kafka's old message sets."""

    def attempt(self, draw: Random) -> bool:
        from tidelog.records.batch import iterate_headers, read_records, validate
        from tidelog.records.errors import InvalidBatch
        from tidelog.records.legacy import read_messages

        data = damaged_batch(draw)
        opened = draw.choice((None, 1 << 20))

        def judge() -> None:
            for position, header in iterate_headers(data):
                validate(data, position, header, now_ms=1_700_000_000_000, decompressed_size_max=opened)
                read_records(data, position)

        refuses(lambda: list(read_messages(data, size_max=1 << 20)), InvalidBatch)
        return refuses(judge, InvalidBatch)


class ColumnsOfBoth(Stateless):
    """The compiled kernel and its Python twin: the same columns, or the same refusal."""

    def __init__(self) -> None:
        from tidelog.records import _pure, column_implementation, implementation

        assert not column_implementation.ABSENT, column_implementation.ABSENT
        functions = {
            column_implementation: ("ColumnBuilder", "BinarySource", "encode_section"),
            implementation: ("read_pairs", "scan_records"),
        }
        self._kernel = {(module, name): getattr(module, name) for module, names in functions.items() for name in names}
        self._twin = {(module, name): getattr(_pure, name) for module, name in self._kernel}

    def attempt(self, draw: Random) -> bool:
        from tidelog.records.columns import Column

        data = damaged_batch(draw)
        options = {
            "columns": Column(draw.randrange(64)),
            "start_offset": draw.choice((0, 0, 1, 3)),
            "end_offset": draw.choice((None, None, 2)),
            "rows_max": draw.choice((1, 3, 1000)),
            "bytes_max": draw.choice((1, 60, 1 << 20)),
            "decompressed_size_max": 1 << 20,
            "verify_crc": draw.random() < 0.5,
        }
        kernel = self._outcome(self._kernel, data, options)
        twin = self._outcome(self._twin, data, options)
        assert kernel == twin, f"kernel: {kernel}, twin: {twin}, options {options}, data {bytes(data).hex()}"
        return isinstance(kernel, str)

    def _outcome(self, functions: dict[Any, Any], data: bytearray, options: dict[str, Any]) -> object:
        from tidelog.records.columns import decode_columns
        from tidelog.records.errors import InvalidBatch

        for (module, name), function in functions.items():
            setattr(module, name, function)
        try:
            return decode_columns(data, **options)
        except InvalidBatch as error:
            return f"{type(error).__name__} {error}"


class Compression(Stateless):
    """Damaged streams of every codec: bytes within the bound, or a refusal."""

    SIZE_MAX = 100_000

    def __init__(self) -> None:
        from tidelog.records.compression import Codec, compress

        noise = Random(3).randbytes(500)
        samples = [b"", b"some text, some text, some more text" * 20, noise, bytes(3000), bytes(1 << 20)]
        self._packed = [(codec, bytes(compress(codec, sample))) for codec in Codec for sample in samples]

    def attempt(self, draw: Random) -> bool:
        from tidelog.records.compression import decompress
        from tidelog.records.errors import InvalidBatch

        codec, packed = draw.choice(self._packed)
        damaged = mutate(packed, draw)

        def judge() -> None:
            assert len(decompress(codec, damaged, size_max=self.SIZE_MAX)) <= self.SIZE_MAX

        return refuses(judge, InvalidBatch)


class StorageFiles(Stateless):
    """Checkpoints, identities, snapshots and transaction indexes by their parsers; every kind of file by the dump."""

    def __init__(self) -> None:
        self._files = log_files()

    def attempt(self, draw: Random) -> bool:
        from tests.unit.storage.support import MemoryDisk

        from tidelog.storage.checkpoints import decode_meta_properties, decode_offsets, decode_partition_metadata
        from tidelog.storage.dump import dump_lines
        from tidelog.storage.errors import CorruptFile
        from tidelog.storage.producer_snapshots import decode_snapshot
        from tidelog.storage.transaction_index import decode_transactions

        path = draw.choice(sorted(self._files))
        damaged = mutate(self._files[path], draw)
        disk = MemoryDisk()
        disk.make_directories(path.rpartition("/")[0])
        disk.files[path] = bytearray(damaged)
        list(dump_lines(disk, path))
        parsers = (
            decode_offsets,
            decode_partition_metadata,
            decode_meta_properties,
            decode_snapshot,
            lambda content: list(decode_transactions(content)),
        )
        refused = 0
        for parse in parsers:
            refused += refuses(functools.partial(parse, damaged), CorruptFile)
        return refused == len(parsers)


class Recovery(Stateless):
    """A log directory with damaged files, opened: it serves what is whole, or says which file it cannot read."""

    def __init__(self) -> None:
        self._files = log_files()

    def attempt(self, draw: Random) -> bool:
        from tests.unit.storage.support import NOW_MS, TP, MemoryDisk, fill, open_manager

        from tidelog.storage.errors import CorruptFile

        disk = MemoryDisk()
        for path, content in self._files.items():
            disk.make_directories(path.rpartition("/")[0])
            disk.files[path] = bytearray(content)
        in_log = [path for path in sorted(disk.files) if "topicone-0" in path]
        for _ in range(draw.randint(1, 3)):
            path = draw.choice(in_log)
            disk.files[path] = bytearray(mutate(bytes(disk.files[path]), draw))
        if draw.random() < 0.5:
            disk.files.pop("/logs/.kafka_cleanshutdown", None)
        try:
            manager = open_manager("/logs", disk=disk, config=small_segments())
        except CorruptFile as refusal:
            if "partition.metadata" not in str(refusal):
                raise
            return True
        log = manager.get(TP)
        if log is None:
            # Its partition.metadata names another topic: the folder was set aside.
            return True
        refused = refuses(lambda: consume(log), KafkaError)
        refuses(lambda: log.offset_for_timestamp(NOW_MS + 5, up_to_offset=log.log_end_offset), KafkaError)
        refuses(lambda: log.aborted_transactions(0, 100), CorruptFile)
        # An append looks at the first batch of its segment, for the time; one that is damaged refuses it.
        refuses(lambda: fill(log, 1), KafkaError)
        manager.close()
        assert manager.offline_directories == []
        return refused


def consume(log: Any) -> None:
    """Reads the log as a consumer does, who checks it; ends where a damaged base offset leads him backwards."""
    from tidelog.records.batch import iterate_headers, read_records, validate

    position = log.log_start_offset
    while position < log.log_end_offset:
        result = log.read(position, 1 << 20, up_to_offset=log.log_end_offset)
        data = b"".join(part.read() for part in result.ranges)
        for part in result.ranges:
            part.release()
        following = position
        for at, header in iterate_headers(data):
            validate(data, at, header, now_ms=0, from_client=False)
            read_records(data, at)
            following = header.last_offset + 1
        if following <= position:
            return
        position = following


def small_segments() -> Any:
    """Settings under which a few records make several segments."""
    from tidelog.storage.log_config import LogConfig

    return LogConfig(segment_bytes=1000, index_interval_bytes=150, segment_index_bytes=1200)


def log_files() -> dict[str, bytes]:
    """path -> content of a log directory whose log has several segments, producers and an aborted transaction."""
    from tests.unit.storage.support import NOW_MS, MemoryDisk, batch, fill, marker, open_log

    from tidelog.storage.log import AppendOrigin

    disk = MemoryDisk()
    manager, log = open_log("/logs", disk=disk, config=small_segments())
    fill(log, 12)
    for sequence in range(3):
        sent = batch(b"x", producer_id=4, producer_epoch=0, base_sequence=sequence, transactional=True)
        log.append(sent, leader_epoch=1, now_ms=NOW_MS)
    log.append(marker(4, commit=False), leader_epoch=1, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    manager.close()
    return {path: bytes(content) for path, content in disk.files.items() if not path.endswith(".lock")}


class Znodes(Stateless):
    """The JSON that Kafka keeps in ZooKeeper."""

    SAMPLES: tuple[tuple[str, dict[str, Any]], ...] = (
        (
            "broker",
            {
                "version": 5,
                "host": "h",
                "port": 9092,
                "jmx_port": -1,
                "timestamp": "1700000000000",
                "endpoints": ["PLAINTEXT://h:9092", "SSL://[::1]:9093"],
                "rack": "r1",
                "features": {},
                "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL"},
            },
        ),
        ("controller", {"version": 2, "brokerid": 1, "timestamp": "1700000000000", "kraftControllerEpoch": -1}),
        ("cluster_id", {"version": "1", "id": "abcdefghijklmnopqrstuv"}),
        (
            "topic",
            {
                "version": 3,
                "topic_id": "AAECAwQFBgcICQoLDA0ODw",
                "partitions": {"0": [1, 2], "1": [2, 1]},
                "adding_replicas": {"0": [3]},
                "removing_replicas": {},
            },
        ),
        ("state", {"version": 1, "controller_epoch": 3, "leader": 1, "leader_epoch": 4, "isr": [1, 2]}),
        ("config", {"version": 1, "config": {"retention.ms": "1000", "cleanup.policy": "delete"}}),
        ("config_change", {"version": 2, "entity_path": "topics/orders"}),
        ("producer_ids", {"version": 1, "broker": 1, "block_start": "0", "block_end": "999"}),
        ("reassignment", {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}),
        ("partitions", {"version": 1, "partitions": [{"topic": "t", "partition": 0}]}),
        ("log_directory_event", {"version": 1, "broker": 1, "event": 1}),
        ("controller_epoch", {}),
    )

    def attempt(self, draw: Random) -> bool:
        from tidelog.metadata import znodes

        kind, sample = draw.choice(self.SAMPLES)
        document = damaged_json(sample, draw) if draw.random() < 0.7 else sample
        data: bytes | None = json.dumps(document).encode()
        if draw.random() < 0.4:
            data = mutate(data or b"", draw)
        if draw.random() < 0.02:
            data = None
        decoders: dict[str, Callable[[bytes | None], object]] = {
            "broker": lambda data: znodes.decode_broker(1, data, 7),
            "controller": znodes.decode_controller,
            "cluster_id": znodes.decode_cluster_id,
            "topic": lambda data: znodes.decode_topic("t", data),
            "state": lambda data: znodes.decode_state("t", 0, data),
            "config": lambda data: znodes.decode_config("/config/topics/t", data),
            "config_change": lambda data: znodes.decode_config_change("/config/changes/c", data),
            "producer_ids": znodes.decode_producer_id_block,
            "reassignment": znodes.decode_reassignment,
            "partitions": lambda data: znodes.decode_partitions("/admin/preferred_replica_election", data),
            "log_directory_event": lambda data: znodes.decode_log_directory_event("/log_dir_event_notification", data),
            "controller_epoch": znodes.decode_controller_epoch,
        }
        return refuses(lambda: decoders[kind](data), znodes.MalformedZnode)


def damaged_json(value: Any, draw: Random) -> Any:
    """A JSON value with one of its parts replaced, removed, or wrapped."""
    numbers = (True, -1, 2**31, 2**63, 10**30, 1.5)
    strange: tuple[Any, ...] = (*numbers, None, "", "x", "9" * 30, "\x00", [], {}, [[]], {"": None})
    if isinstance(value, dict) and value and draw.random() < 0.8:
        key = draw.choice(sorted(value))
        changed = dict(value)
        match draw.randrange(4):
            case 0:
                del changed[key]
            case 1:
                changed[draw.choice(("", "x", "-1", "٣", "1e3", " 1"))] = changed.pop(key)
            case _:
                changed[key] = damaged_json(value[key], draw)
        return changed
    if isinstance(value, list) and value and draw.random() < 0.8:
        index = draw.randrange(len(value))
        return [*value[:index], damaged_json(value[index], draw), *value[index + 1 :]]
    return draw.choice(strange)


class OffsetRecords(Stateless):
    """Records of `__consumer_offsets`."""

    def begin(self, draw: Random) -> None:
        from tidelog.coordinator import records
        from tidelog.model.identifiers import LeaderEpoch, Offset, TopicId

        never = records.NEVER
        committed = records.CommittedOffset(
            offset=Offset(17),
            leader_epoch=LeaderEpoch(2),
            metadata=draw.choice(("", "m")),
            commit_timestamp_ms=1_700_000_000_000,
            expire_timestamp_ms=draw.choice((never, 1_700_000_100_000)),
            topic_id=TopicId(bytes(16)),
        )
        self._key, self._value = records.OffsetRecord("group", "orders", 3, committed.encode()).encode()

    def attempt(self, draw: Random) -> bool:
        from tidelog.coordinator.groups.coordinator import GroupCoordinator
        from tidelog.coordinator.groups.offset_events import FetchOffsets
        from tidelog.coordinator.records import MalformedRecord, UnknownRecordType

        key = draw.choice((self._key, mutate(self._key, draw), None))
        value = draw.choice((mutate(self._value or b"", draw), None))

        def load_and_ask() -> None:
            coordinator = GroupCoordinator()
            coordinator.load(key, value, None)
            for group in list(coordinator.offsets.store.groups()):
                coordinator.handle(0, FetchOffsets(0, group))

        return refuses(load_and_ask, MalformedRecord, UnknownRecordType)


class Properties(Stateless):
    """server.properties with any setting and any value, and topics' settings."""

    VALUES = (
        "",
        "-1",
        "0",
        "1",
        "1000",
        "true",
        "delete",
        "PLAINTEXT://:9092",
        "a,b",
        "[",
        "{}",
        "999999999999999999999",
        "1e9",
        "٣",
        "\\u00e9",
        "\\u00",
    )

    def __init__(self) -> None:
        from tidelog.config import registry

        self._broker, self._topic = sorted(registry.BROKER), sorted(registry.TOPIC)

    def attempt(self, draw: Random) -> bool:
        from tidelog.config.broker_config import BrokerConfig
        from tidelog.config.properties import ConfigError
        from tidelog.config.topic_config import InvalidTopicConfig, validate

        lines = ["broker.id=0", "log.dirs=/data"]
        for _ in range(draw.randrange(4)):
            name, value = draw.choice(self._broker), draw.choice(self.VALUES)
            lines.append(f"{name}{draw.choice(('=', ' = ', ':', ' '))}{value}{draw.choice(('', '', chr(92)))}")
        text = "\n".join(lines)
        if draw.random() < 0.5:
            text = mutate(text.encode(), draw).decode("utf-8", "replace")
        topic = {draw.choice(self._topic): draw.choice(self.VALUES)}
        refuses(lambda: validate(topic), InvalidTopicConfig)
        return refuses(lambda: BrokerConfig.from_text(text), ConfigError)


class SparkOptions(Stateless):
    """Options and offset JSON of the Spark source."""

    OPTIONS = (
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "endingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "failOnDataLoss",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "maxRecordsPerPartition",
        "includeHeaders",
        "columns",
        "groupIdPrefix",
        "kafka.group.id",
        "kafka.isolation.level",
        "kafka.bootstrap.servers",
        "batchRows",
        "kafka.max.partition.fetch.bytes",
    )
    VALUES = (
        "earliest",
        "latest",
        "true",
        "no",
        "0",
        "-1",
        "1",
        "99999999999999999999999",
        "5m",
        "t",
        "t,u,",
        "t[",
        "(",
        "host",
        "host:9",
        "[::1]:9",
        ":",
        "key,value",
        "error",
        '{"t":{"0":23}}',
        '{"t":{"0":-2,"1":-1}}',
        '{"t":[0,1]}',
        "{",
        "٣",
        "read_committed",
    )
    JSON = b'{"t": {"0": 23, "1": -1}, "@initial": true}'

    def attempt(self, draw: Random) -> bool:
        from pyspark_tidelog.errors import OptionError
        from pyspark_tidelog.options import parse_offsets_json, parse_options

        given = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}
        for _ in range(draw.randrange(1, 3)):
            text = draw.choice(self.VALUES)
            if draw.random() < 0.3:
                text = mutate(text.encode(), draw).decode("utf-8", "replace")
            given[draw.choice(self.OPTIONS)] = text
        document = mutate(self.JSON, draw).decode("utf-8", "replace")
        refuses(lambda: parse_offsets_json("startingOffsets", document), OptionError)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Unknown options are warned of, which is right.
            return refuses(lambda: parse_options(given, streaming=draw.choice((True, False, None))), OptionError)


class JsonValues(Stateless):
    """Values that `tidelog table` reads as JSON: rows, or a reason for each that is none."""

    VALUES = (b'{"a": 1, "b": "x"}', b'{"a": 2.5}', b'{"a": null, "c": [1, {"d": true}]}', b"{}")

    def __init__(self) -> None:
        import pyarrow as pa

        pa.array([b""], pa.binary())  # Loads pandas, which takes seconds on a busy machine, before inputs are timed.

    def attempt(self, draw: Random) -> bool:
        import pyarrow as pa

        from tidelog.pipeline.errors import UnparsableRecord
        from tidelog.pipeline.json_values import infer_schema, parse_values

        values = [draw.choice(self.VALUES) for _ in range(draw.randrange(1, 5))]
        damaged = [mutate(value, draw) if draw.random() < 0.6 else value for value in values]
        samples = draw.choice((values, damaged))
        if refuses(lambda: infer_schema(samples), UnparsableRecord):
            return True
        schema = infer_schema(samples)
        rows, refused = parse_values(pa.array(damaged, pa.binary()), schema)
        assert rows.num_rows == len(damaged)
        return bool(refused)


class _Transport:
    """What a connection writes is forgotten."""

    def __init__(self) -> None:
        self.closed = self.paused = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 40_000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        bytes(data)

    def writelines(self, chunks: Any) -> None:
        for chunk in chunks:
            bytes(chunk)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class _Complaints(logging.Handler):
    """The first thing that the broker logged as unexpected: with a trace of what is no verdict in Kafka's words."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, KafkaError):
            self.found = self.found or error


class Broker:
    """A whole broker without sockets: frames, cut anywhere, of every API that it serves; its log must stay quiet."""

    def __init__(self) -> None:
        from tidelog.broker.handlers import load_handlers

        # What the log says at WARNING and below is said of every bad request, and is right.
        logging.getLogger("tidelog").addHandler(logging.NullHandler())
        logging.getLogger("tidelog").propagate = False
        self._handlers = load_handlers()

    def begin(self, draw: Random) -> None:
        from tests.unit.broker.harness import Broker as Harness

        from tidelog.broker.connections.server import Server

        self._complaints = _Complaints()
        logging.getLogger("tidelog").addHandler(self._complaints)
        self._folder = tempfile.mkdtemp(prefix="tidelog-fuzz-")
        self._broker = Harness(f"{self._folder}/logs")
        self._broker.lead("orders", 3)
        self._broker.lead("a")
        self._server = Server(self._broker.config, self._broker.clock, self._broker.shell)
        self._server.start(self._broker.dispatcher)
        self._connect()

    def _connect(self) -> None:
        self._transport = _Transport()
        self._connection = self._server.connection("PLAINTEXT")
        self._connection.connection_made(self._transport)  # type: ignore[arg-type]

    def end(self) -> None:
        self._connection.connection_lost(None)
        self._broker.close()
        logging.getLogger("tidelog").removeHandler(self._complaints)
        shutil.rmtree(self._folder)

    def attempt(self, draw: Random) -> bool:
        data = self._frame(draw)
        if draw.random() < 0.8:
            body = bytearray(data[:4] + mutate(data[4:], draw))
            if draw.random() < 0.8:
                body[:4] = max(len(body) - 4, 0).to_bytes(4, "big")
            data = bytes(body)
        while data and not self._transport.closed and not self._transport.paused:
            view = self._connection.get_buffer(-1)
            piece = data[: min(len(view), draw.choice((1 << 20, 1 << 20, 9, 60)))]
            view[: len(piece)] = piece
            data = data[len(piece) :]
            self._connection.buffer_updated(len(piece))
        self._broker.shell.advance(draw.choice((0, 1, 600)))
        if self._complaints.found is not None:
            raise self._complaints.found
        refused = self._transport.closed
        if refused or draw.random() < 0.2:
            self._connection.connection_lost(None)
            self._connect()
        return refused

    def _frame(self, draw: Random) -> bytes:
        from tests.unit.broker.harness import produce_request

        from tidelog.protocol import errors, messages
        from tidelog.protocol.apis import ApiKey

        while True:
            key = ApiKey(draw.choice(list(self._handlers)))
            versions = self._handlers[key].versions
            version = draw.randint(max(versions.lowest, versions.served_min), versions.highest)
            if key is ApiKey.PRODUCE and draw.random() < 0.8:
                acks = draw.choice((0, 1, -1, 5))
                request: Any = produce_request("orders", bytes(damaged_batch(draw)), version=version, acks=acks)
            else:
                request = Sampler(draw.randrange(1 << 32)).message(messages.request_class(key), version)
            try:
                return self._broker.frame(key, version, request)
            except errors.InvalidMessage:
                # A random value was out of its field's range.
                continue


def _store_server() -> Family:
    from tests.property.fuzz_store import StoreServer

    return StoreServer()


def _security(name: str) -> Callable[[], Family]:
    def make() -> Family:
        from tests.property import fuzz_security

        return getattr(fuzz_security, name)()  # type: ignore[no-any-return]

    return make


FAMILIES: dict[str, Callable[[], Family]] = {
    "messages": Messages,
    "batches": Batches,
    "columns": ColumnsOfBoth,
    "compression": Compression,
    "storage-files": StorageFiles,
    "recovery": Recovery,
    "znodes": Znodes,
    "offset-records": OffsetRecords,
    "properties": Properties,
    "spark-options": SparkOptions,
    "json-values": JsonValues,
    "broker": Broker,
    "store-server": _store_server,
    "sasl": _security("Sasl"),
    "bearer-tokens": _security("BearerTokens"),
    "certificates": _security("Certificates"),
    "zookeeper-logins": _security("ZooKeeperLogins"),
    "security-nodes": _security("SecurityNodes"),
}
"""Name -> what makes the family, in the process that runs it."""
