"""A plan as a JSON document, one line for each move.

    {"format": "tidelog-plan", "version": 1, "cluster_id": "...", "made_at_ms": 0, "goals": ["counts"],
     "moves": [{"topic": "t", "partition": 0, "wave": 0, "replicas_from": [1, 2], "replicas_to": [3, 2],
                "log_dirs_from": ["/d", "/d"], "log_dirs_to": [null, "/d"], "size": 100,
                "topic_id": "..."}]}

Kafka's own lists of moves (`kafka-reassign-partitions`) are read and written by `kafka_json`.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.placement.plan.documents import DocumentError, Fields, check_head, dump, parse
from tidelog.placement.plan.plan import Move, Plan
from tidelog.placement.plan.state import BROKER_ID_MAX

FORMAT: Final = "tidelog-plan"
VERSION: Final = 1


def dump_plan(plan: Plan) -> str:
    """The plan as text; `load_plan` gives it back."""
    return dump(plan_document(plan))


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as a JSON object. `replica_moves` and `bytes` are there for readers, and follow from the moves."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "cluster_id": plan.cluster_id,
        "made_at_ms": plan.made_at_ms,
        "state_digest": plan.state_digest,
        "goals": list(plan.goals),
        "replica_moves": plan.replica_moves,
        "moves_least": plan.moves_least,
        "bytes": plan.bytes,
        "bytes_least": plan.bytes_least,
        "gap": plan.gap,
        "simulation": None if plan.simulation is None else dict(plan.simulation),
        "moves": [move_document(move) for move in plan.moves],
    }


def move_document(move: Move) -> dict[str, Any]:
    """A move as a JSON object."""
    return {
        "topic": move.topic,
        "partition": move.partition,
        "wave": move.wave,
        "replicas_from": list(move.replicas_from),
        "replicas_to": list(move.replicas_to),
        "log_dirs_from": list(move.directories_from),
        "log_dirs_to": list(move.directories_to),
        "size": move.size,
        "topic_id": move.topic_id,
    }


def load_plan(text: str | bytes) -> Plan:
    """The plan that a document describes. DocumentError, naming the place, where it is none."""
    return plan_of(parse(text, "a plan"))


def plan_of(fields: Fields) -> Plan:
    """The plan that an object describes, also one inside another document. DocumentError as `load_plan`."""
    check_head(fields, FORMAT, VERSION, format_required=True)
    return Plan.of(
        fields.objects("moves", _move),
        cluster_id=fields.optional_text("cluster_id"),
        made_at_ms=fields.optional_integer("made_at_ms") or 0,
        state_digest=fields.optional_text("state_digest"),
        goals=fields.texts("goals"),
        moves_least=fields.optional_integer("moves_least"),
        bytes_least=fields.optional_integer("bytes_least"),
        gap=fields.optional_number("gap"),
        simulation=fields.optional_object("simulation"),
    )


def is_plan(text: str | bytes) -> bool:
    """Whether a JSON document calls itself a plan of ours (it may be a list of Kafka's). DocumentError if no JSON."""
    return parse(text, "a plan").optional_text("format") == FORMAT


def _move(fields: Fields) -> Move:
    replicas_from = fields.integers("replicas_from")
    replicas_to = fields.integers("replicas_to")
    move = Move(
        topic=fields.text("topic"),
        partition=fields.integer("partition", high=BROKER_ID_MAX),
        wave=fields.optional_integer("wave") or 0,
        replicas_from=replicas_from,
        replicas_to=replicas_to,
        directories_from=_directories(fields, "log_dirs_from", replicas_from),
        directories_to=_directories(fields, "log_dirs_to", replicas_to),
        size=fields.optional_integer("size"),
        topic_id=fields.optional_text("topic_id"),
    )
    if move.replicas_from == move.replicas_to and move.directories_from == move.directories_to:
        raise DocumentError(f"{fields.place}: the move of {move.key} changes nothing")
    return move


def _directories(fields: Fields, name: str, replicas: tuple[int, ...]) -> tuple[str | None, ...]:
    directories = fields.optional_texts(name)
    if directories is None:
        return (None,) * len(replicas)
    if len(directories) != len(replicas):
        raise DocumentError(f"{fields.at(name)}: {len(directories)} elements for {len(replicas)} replicas")
    return directories
