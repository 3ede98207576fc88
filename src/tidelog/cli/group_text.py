"""What `tidelog groups` prints: tables, JSON, and the text of `kafka-consumer-groups` of Kafka 4.3, byte for byte."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from tidelog.cli.group_offsets import Progress
from tidelog.cli.options import Form
from tidelog.cli.output import print_json, print_table
from tidelog.client.admin import GroupDescription, GroupListing, MemberDescription
from tidelog.model.errors import KafkaError
from tidelog.model.identifiers import TopicPartition

MISSING: Final = "-"
_NAME_MIN: Final = 15
"""Columns of names are as wide as the longest one, and no narrower than this."""
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def _cell(value: object) -> str:
    return MISSING if value is None or value == "" else str(value)


def _widest(texts: Iterable[str], least: int = _NAME_MIN) -> int:
    return max([least, *map(len, texts)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))


def listed(groups: Sequence[GroupListing], *, with_state: bool, with_type: bool) -> str:
    """The list as Kafka's tool has it: names alone, or with columns."""
    if not with_state and not with_type:
        return "".join(f"{each.group}\n" for each in groups)
    width = _widest([each.group for each in groups]) + 10
    rows = [("GROUP", "TYPE", "STATE"), *((each.group, each.type, each.state) for each in groups)]
    shown = [True, with_type, with_state]
    widths = [width, 20, 20]
    return "".join(
        _line([cell for cell, show in zip(row, shown, strict=True) if show], widths[: sum(shown)]) + "\n"
        for row in rows
    )


# Offsets


def print_offsets(
    groups: Sequence[GroupDescription], rows: Mapping[str, Sequence[Progress]], form: Form, *, verbose: bool
) -> None:
    """How far each group has read, partition by partition."""
    match form:
        case Form.KAFKA:
            for group in groups:
                _tell_state_as_kafka(group)
                if rows[group.group]:
                    print(_kafka_offsets(group, rows[group.group], verbose), end="")
        case Form.JSON:
            print_json([_offsets_json(group, rows[group.group]) for group in groups])
        case Form.TABLE:
            columns = (
                "GROUP", "TOPIC", "#PARTITION", "#CURRENT-OFFSET", "#LOG-END-OFFSET", "#LAG",
                "CONSUMER-ID", "HOST", "CLIENT-ID",
            )  # fmt: skip
            print_table(columns, [_offset_cells(group, row) for group in groups for row in rows[group.group]])
            _tell_states(groups)


def _offset_cells(group: GroupDescription, row: Progress) -> list[str]:
    member = row.member
    named = (None, None, None) if member is None else (member.member_id, member.host, member.client_id)
    topic, partition = row.topic_partition
    return [_cell(cell) for cell in (group.group, topic, partition, row.committed, row.end, row.lag, *named)]


def _kafka_offsets(group: GroupDescription, rows: Sequence[Progress], verbose: bool) -> str:
    header = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST"]
    cells = [_offset_cells(group, row) for row in rows]
    widths = [
        _widest([group.group]), _widest([row[1] for row in cells]), 10, 15, 15, 15,
        _widest([row[6] for row in cells]), _widest([row[7] for row in cells]), 0,
    ]  # fmt: skip
    lines = [[*header, "CLIENT-ID"], *cells]
    if verbose:
        widths.insert(3, 15)
        epochs = ["LEADER-EPOCH", *(_cell(row.leader_epoch) for row in rows)]
        lines = [[*line[:3], epoch, *line[3:]] for line, epoch in zip(lines, epochs, strict=True)]
    return "".join("\n" + _line(line, widths) for line in lines) + "\n"


def _offsets_json(group: GroupDescription, rows: Sequence[Progress]) -> dict[str, Any]:
    return {
        "group": group.group,
        "state": group.state,
        "partitions": [
            {
                "topic": row.topic_partition.topic,
                "partition": row.topic_partition.partition,
                "committed": row.committed,
                "leaderEpoch": row.leader_epoch,
                "end": row.end,
                "lag": row.lag,
                "member": None if row.member is None else row.member.member_id,
                "host": None if row.member is None else row.member.host,
                "clientId": None if row.member is None else row.member.client_id,
            }
            for row in rows
        ],
    }


# Members and states


def print_members(groups: Sequence[GroupDescription], form: Form, *, verbose: bool) -> None:
    """The members of each group and how many partitions each has; which, too, where `verbose`."""
    match form:
        case Form.KAFKA:
            for group in groups:
                _tell_state_as_kafka(group)
                print(_kafka_members(group, verbose), end="")
        case Form.JSON:
            print_json([{"group": group.group, "members": list(map(_member_json, group.members))} for group in groups])
        case Form.TABLE:
            columns = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
            rows = [
                [group.group, each.member_id, each.instance_id, each.host, each.client_id, len(each.partitions)]
                + ([_assignment(each.partitions)] if verbose else [])
                for group in groups
                for each in group.members
            ]
            print_table(columns + (["ASSIGNMENT"] if verbose else []), rows)
            _tell_states(groups)


def _kafka_members(group: GroupDescription, verbose: bool) -> str:
    members = group.members
    header = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    rows = [[group.group, each.member_id, each.host, each.client_id, str(len(each.partitions))] for each in members]
    widths = [
        _widest([group.group]), _widest([each.member_id for each in members]),
        _widest([each.host for each in members]), _widest([each.client_id for each in members]), 15,
    ]  # fmt: skip
    if any(each.instance_id for each in members):
        header.insert(2, "GROUP-INSTANCE-ID")
        widths.insert(2, _widest([each.instance_id or "" for each in members], 17))
        for row, each in zip(rows, members, strict=True):
            row.insert(2, each.instance_id or "")
    if verbose:
        header += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        for row, each in zip(rows, members, strict=True):
            target = None if each.target is None else _assignment(each.target)
            target_epoch = None if each.target is None else group.target_epoch
            row += [_cell(each.epoch), _assignment(each.partitions), _cell(target_epoch), _cell(target)]
        texts = list(zip(*([row[-3], row[-1]] for row in rows), strict=True)) or [(), ()]
        widths += [15, _widest(texts[0], 20), 15, _widest(texts[1], 20)]
    # Kafka ends each line with the blank that would separate what `verbose` adds.
    end = "" if verbose else " "
    return "".join("\n" + _line(row, widths) + end for row in (header, *rows)) + "\n"


def _assignment(partitions: Sequence[TopicPartition]) -> str:
    """`orders:0,1;stocks:3`, or a dash for nothing."""
    topics = [
        f"{topic}:{','.join(str(each.partition) for each in several)}"
        for topic, several in groupby(partitions, key=lambda each: each.topic)
    ]
    return ";".join(topics) or MISSING


def _member_json(member: MemberDescription) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "host": member.host,
        "clientId": member.client_id,
        "epoch": member.epoch,
        "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in member.partitions],
        "target": None
        if member.target is None
        else [{"topic": tp.topic, "partition": tp.partition} for tp in member.target],
    }


def print_states(groups: Sequence[GroupDescription], form: Form, *, verbose: bool) -> None:
    """Who coordinates each group, by which assignor, its state and the number of its members."""
    match form:
        case Form.KAFKA:
            for group in groups:
                _tell_state_as_kafka(group)
                print(_kafka_state(group, verbose), end="")
        case Form.JSON:
            print_json(
                [
                    {
                        "group": group.group,
                        "type": group.type,
                        "state": group.state,
                        "assignor": group.assignor or None,
                        "coordinator": {"id": group.coordinator.broker_id, "address": str(group.coordinator.address)},
                        "epoch": group.epoch,
                        "targetEpoch": group.target_epoch,
                        "members": len(group.members),
                    }
                    for group in groups
                ]
            )
        case Form.TABLE:
            columns = ("GROUP", "TYPE", "COORDINATOR", "ASSIGNOR", "STATE", "#MEMBERS")
            print_table(
                columns,
                [
                    (each.group, each.type, _coordinator(each), _cell(each.assignor), each.state, len(each.members))
                    for each in groups
                ],
            )


def _coordinator(group: GroupDescription) -> str:
    return f"{group.coordinator.address}  ({group.coordinator.broker_id})"


def _kafka_state(group: GroupDescription, verbose: bool) -> str:
    coordinator = _coordinator(group)
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    row = [group.group, coordinator, _cell(group.assignor), group.state]
    widths = [_widest([group.group]), max(25, len(coordinator)), 20, 20]
    if verbose:
        header += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [_cell(group.epoch), _cell(group.target_epoch)]
        widths += [15, 25]
    lines = ([*header, "#MEMBERS"], [*row, str(len(group.members))])
    return "".join("\n" + _line(line, [*widths, 0]) for line in lines) + "\n"


def _tell_state_as_kafka(group: GroupDescription) -> None:
    """What is odd about a group, on stderr, in the words of Kafka's tool."""
    if group.state == "Empty":
        print(f"\nConsumer group '{group.group}' has no active members.", file=sys.stderr)
    elif group.state in _REBALANCING:
        print(f"\nWarning: Consumer group '{group.group}' is rebalancing.", file=sys.stderr)


def _tell_states(groups: Sequence[GroupDescription]) -> None:
    for group in groups:
        if group.state == "Empty":
            print(f"group '{group.group}' has no members now", file=sys.stderr)
        elif group.state in _REBALANCING:
            print(f"group '{group.group}' is being rebalanced", file=sys.stderr)


# Changes

Plans = Mapping[str, Mapping[TopicPartition, int]]


def print_plans(plans: Plans, form: Form, *, done: bool) -> None:
    """What offsets are, or would be, reset to."""
    rows = [
        (group, tp.topic, str(tp.partition), str(offset))
        for group, plan in plans.items()
        for tp, offset in plan.items()
    ]
    match form:
        case Form.KAFKA:
            widths = [_widest([row[0] for row in rows]), _widest([row[1] for row in rows]), 10, 0]
            lines = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), *rows]
            print("".join("\n" + _line(line, widths) for line in lines))
        case Form.JSON:
            print_json(
                [
                    {"group": group, "topic": topic, "partition": int(partition), "offset": int(offset)}
                    for group, topic, partition, offset in rows
                ]
            )
        case Form.TABLE:
            if rows:
                print_table(("GROUP", "TOPIC", "#PARTITION", "#NEW-OFFSET"), rows)
            if not done and rows:
                print("nothing was changed: --execute does it", file=sys.stderr)


def exported(plans: Plans, *, with_group: bool) -> str:
    """Plans as CSV, which --from-file takes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, plan in plans.items():
        for topic_partition, offset in plan.items():
            writer.writerow([*([group] if with_group else []), *topic_partition, offset])
    return text.getvalue()


def print_deleted_offsets(group: str, results: Mapping[TopicPartition, KafkaError | None], form: Form) -> None:
    """What was forgotten, and what not."""
    rows = [
        (tp.topic, tp.partition, "Successful" if error is None else f"Error: {error.message or error.code.name}")
        for tp, error in sorted(results.items())
    ]
    match form:
        case Form.KAFKA:
            failed = any(results.values())
            said = (
                "\nError: Encountered some partition-level error, see the follow-up details."
                if failed
                else f"Request succeeded for deleting offsets from group {group}."
            )
            print(said)
            widths = [_widest([row[0] for row in rows]), 10, 15]
            lines = [("TOPIC", "PARTITION", "STATUS"), *((topic, str(p), status) for topic, p, status in rows)]
            print("".join("\n" + _line(line, widths) for line in lines))
        case Form.JSON:
            print_json([{"topic": topic, "partition": p, "status": status} for topic, p, status in rows])
        case Form.TABLE:
            print_table(("TOPIC", "#PARTITION", "STATUS"), rows)
