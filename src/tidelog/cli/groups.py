"""`tidelog groups`: groups, share groups too, their members, lag and offsets, as `kafka-consumer-groups` does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import typer

from tidelog.cli import group_text
from tidelog.cli.cluster import connect
from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.group_offsets import Reset, named_partitions, parse_reset, parse_topic, planned, progress
from tidelog.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS, one_of
from tidelog.cli.output import print_json, print_table
from tidelog.client import admin
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.admin import GroupDescription, MemberIdentity
from tidelog.client.admin.groups import SHARE
from tidelog.client.blocking import BlockingCluster
from tidelog.client.offsets import CommittedOffset, commit_offsets_each
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.model.identifiers import TopicPartition

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Consumer groups: members, lag, offsets.")

Group: TypeAlias = Annotated[str, typer.Argument(metavar="GROUP", help="Its id.")]
Groups: TypeAlias = Annotated[list[str] | None, typer.Argument(metavar="[GROUP...]", help="Their ids.")]
All: TypeAlias = Annotated[bool, typer.Option("--all", help="Every group there is.")]
Topics: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="NAME[:P,...]", help="Only this one, or these partitions; may be repeated."),
]

GROUP_STATES: Final = (
    "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling", "NotReady",
)  # fmt: skip
"""Those of all types of groups, as Kafka names them."""
GROUP_TYPES: Final = ("Classic", "Consumer", "Share", "Streams")

RESETTABLE: Final = ("Empty", "Dead")
"""States of groups whose offsets no member uses at the moment."""


@app.command("list")
def list_groups(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only of this state; may be repeated.")
    ] = None,
    type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="classic, consumer or share; may be repeated."),
    ] = None,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """List groups with their state and type; with -o kafka share groups only by --type share."""
    states = one_of(state or (), GROUP_STATES, "--state")
    types = one_of(type or (), GROUP_TYPES, "--type")
    with connect("groups", bootstrap, timeout) as cluster:
        shared = output is not Form.KAFKA or SHARE in types
        found = cluster.run(admin.list_groups(cluster.routing, states=states, types=types, shared=shared))
    match output:
        case Form.KAFKA:
            print(group_text.listed(found, with_state=state is not None, with_type=type is not None), end="")
        case Form.JSON:
            print_json([{"group": each.group, "type": each.type, "state": each.state} for each in found])
        case Form.TABLE:
            print_table(("GROUP", "TYPE", "STATE"), [(each.group, each.type, each.state) for each in found])


@app.command()
def describe(
    groups: Groups = None,
    everything: All = False,
    members: Annotated[bool, typer.Option("--members", help="The members and how much each has.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Coordinator, assignor, state, number of members.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Epochs too; with --members what each has.")] = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Show how far groups have read, partition by partition; or their members; or their state."""
    if members and state:
        raise WrongUsage("give either --members or --state")
    with connect("groups", bootstrap, timeout) as cluster:
        names = _named(cluster, groups, everything)
        results = cluster.run(admin.describe_groups(cluster.routing, names))
        found = [each for each in results.values() if isinstance(each, GroupDescription)]
        refused = [each for each in results.values() if isinstance(each, KafkaError)]
        rows = {} if members or state else {each.group: progress(cluster, each) for each in found}
    if members:
        group_text.print_members(found, output, verbose=verbose)
    elif state:
        group_text.print_states(found, output, verbose=verbose)
    else:
        group_text.print_offsets(found, rows, output, verbose=verbose)
    _refuse(refused)


@app.command("reset-offsets")
def reset_offsets(
    groups: Groups = None,
    everything: All = False,
    topic: Topics = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Wherever the group has committed.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To where partitions begin.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To where they end.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To what is committed; else the end.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", metavar="N", help="To this offset.")] = None,
    shift_by: Annotated[int | None, typer.Option("--shift-by", metavar="N", help="So many on, or back (-N).")] = None,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", metavar="TIME", help="To the first record from 2026-01-31T12:00 on.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="PT1H", help="To so long ago (ISO 8601: P1DT2H30M).")
    ] = None,
    from_file: Annotated[
        str | None, typer.Option("--from-file", metavar="FILE", help="To what a plan says, as --export prints it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done; the default.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Do it.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print the plan as CSV.")] = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Set what groups without members have committed; shows it, or with --execute does it."""
    if dry_run and execute:
        raise WrongUsage("give either --dry-run or --execute")
    if from_file is None and bool(topic) == all_topics:
        raise WrongUsage("say what: --topic NAME, or --all-topics")
    reset = parse_reset(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
        from_file=from_file,
        groups=groups or (),
    )
    with connect("groups", bootstrap, timeout) as cluster:
        names = _named(cluster, groups, everything, shared=False)
        plans, refused = _reset_each(cluster, names, reset, topic, execute=execute)
    if export:
        print(group_text.exported(plans, with_group=len(names) != 1))
    else:
        group_text.print_plans(plans, output, done=execute)
    _refuse(refused)


def _reset_each(
    cluster: BlockingCluster, groups: Sequence[str], reset: Reset, topics: Sequence[str] | None, *, execute: bool
) -> tuple[dict[str, dict[TopicPartition, int]], list[KafkaError]]:
    """[group] -> partition -> its new offset, of the groups that have no members; and why not, of all others."""
    plans: dict[str, dict[TopicPartition, int]] = {}
    refused: list[KafkaError] = []
    share_groups: set[str] = set()
    for group, described in cluster.run(admin.describe_groups(cluster.routing, groups)).items():
        # A group that is not there yet has no members either: its first offsets are set.
        if isinstance(described, KafkaError):
            if described.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                refused.append(described)
                continue
        elif described.state not in RESETTABLE:
            refused.append(
                KafkaError(
                    ErrorCode.NON_EMPTY_GROUP,
                    f"group '{group}' has members (its state is {described.state}): stop them first",
                )
            )
            continue
        shared = isinstance(described, GroupDescription) and described.type == SHARE
        plans[group] = planned(cluster, group, reset, topics, shared=shared)
        if shared:
            share_groups.add(group)
    # Nothing is done before all is planned: what cannot be planned for one group must not leave others half done.
    for group, plan in list(plans.items()) if execute else ():
        results: Mapping[TopicPartition, KafkaError | None]
        if group in share_groups:
            results = cluster.run(admin.alter_share_group_offsets(cluster.routing, group, plan))
        else:
            offsets = {tp: CommittedOffset(offset) for tp, offset in plan.items()}
            results = cluster.run(commit_offsets_each(cluster.routing, group, offsets))
        refused += [error for error in results.values() if error is not None]
        plans[group] = {tp: offset for tp, offset in plan.items() if results.get(tp) is None}
    return plans, refused


@app.command()
def delete(
    groups: Groups = None,
    everything: All = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete groups that have no members, with all that they have committed."""
    with connect("groups", bootstrap, timeout) as cluster:
        names = _named(cluster, groups, everything)
        results = cluster.run(admin.delete_groups(cluster.routing, names))
    deleted = [name for name, error in results.items() if error is None]
    match output:
        case Form.KAFKA if len(deleted) == len(results):
            print(f"Deletion of requested consumer groups ('{', '.join(deleted)}') was successful.")
        case Form.JSON:
            print_json([{"group": name, "deleted": error is None} for name, error in results.items()])
        case _:
            for name in deleted:
                print(f"Deleted group {name}.")
    _refuse([error for error in results.values() if error is not None])


@app.command("delete-offsets")
def delete_offsets(
    group: Group,
    topic: Topics = None,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Forget what a group has committed for topics that it is not reading now."""
    if not topic:
        raise WrongUsage("say what: --topic NAME or NAME:0,1,...")
    with connect("groups", bootstrap, timeout) as cluster:
        partitions = named_partitions(cluster, topic)
        described = cluster.run(admin.describe_groups(cluster.routing, [group]))[group]
        if isinstance(described, GroupDescription) and described.type == SHARE:
            results = _forget_shared(cluster, group, topic)
        else:
            results = cluster.run(admin.delete_offsets(cluster.routing, group, partitions))
    group_text.print_deleted_offsets(group, results, output)
    _refuse([error for error in results.values() if error is not None])


def _forget_shared(
    cluster: BlockingCluster, group: str, topics: Sequence[str]
) -> Mapping[TopicPartition, KafkaError | None]:
    """Has a share group forget topics, which it does as a whole; each partition's error or None."""
    names = [name for name, partitions in map(parse_topic, topics) if partitions is None]
    if len(names) < len(topics):
        raise WrongUsage("a share group forgets topics as a whole: --topic NAME")
    results = cluster.run(admin.delete_share_group_offsets(cluster.routing, group, names))
    return {tp: results.get(tp.topic) for tp in named_partitions(cluster, names)}


@app.command("remove-members")
def remove_members(
    group: Group,
    instance_id: Annotated[
        list[str] | None, typer.Option("--instance-id", metavar="ID", help="A static member; may be repeated.")
    ] = None,
    member_id: Annotated[
        list[str] | None, typer.Option("--member-id", metavar="ID", help="A member by its id; may be repeated.")
    ] = None,
    everyone: Annotated[bool, typer.Option("--all-members", help="Everyone that the group has now.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="For the broker's log.")] = "removed by an administrator",
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Remove members from a group; one whose client still runs joins again."""
    named = [
        *(MemberIdentity(instance_id=each) for each in instance_id or ()),
        *(MemberIdentity(each) for each in member_id or ()),
    ]
    if bool(named) == everyone:
        raise WrongUsage("name the members: --instance-id ID, --member-id ID, or --all-members")
    with connect("groups", bootstrap, timeout) as cluster:
        operation = admin.remove_members(cluster.routing, group, None if everyone else named, reason=reason)
        results = cluster.run(operation)
    if output is Form.JSON:
        print_json(
            [
                {"group": group, "member": member.member_id or None, "instance": member.instance_id}
                for member, error in results.items()
                if error is None
            ]
        )
    else:
        for member, error in results.items():
            if error is None:
                print(f"Removed {member} from group {group}.")
    _refuse([error for error in results.values() if error is not None])


def _named(
    cluster: BlockingCluster, groups: Sequence[str] | None, everything: bool, *, shared: bool = True
) -> list[str]:
    """The groups meant, each once; `shared`: with share groups where all are meant."""
    if bool(groups) == everything:
        raise WrongUsage("name groups, or say --all")
    if everything:
        return [each.group for each in cluster.run(admin.list_groups(cluster.routing, shared=shared))]
    return list(dict.fromkeys(groups or ()))


def _refuse(errors: Sequence[KafkaError]) -> None:
    if errors:
        raise Refused(list(dict.fromkeys(error.message or error.code.name for error in errors)))
