"""`tidelog configs`: settings of topics, brokers, groups and client metrics resources, as `kafka-configs` has them."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from tidelog.cli.cluster import connect
from tidelog.cli.errors import Refused, WrongUsage
from tidelog.cli.options import DEFAULT_TIMEOUT_S, Bootstrap, Form, Output, TimeoutS, key_values
from tidelog.cli.output import print_json, print_table
from tidelog.client import admin
from tidelog.client.addresses import DEFAULT_BOOTSTRAP
from tidelog.client.admin import AlterOperation, ConfigChange, ConfigEntry, ConfigResource, ConfigSource, ResourceType
from tidelog.client.blocking import BlockingCluster
from tidelog.client.errors import UnsupportedByBroker
from tidelog.model.errors import ErrorCode, KafkaError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Settings of topics, brokers, groups and client metrics."
)

Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", metavar="NAME", help="A topic; may be repeated.")]
Brokers = Annotated[list[int] | None, typer.Option("--broker", metavar="ID", help="A broker; may be repeated.")]
BrokerDefaults = Annotated[bool, typer.Option("--broker-defaults", help="What holds for all brokers of the cluster.")]
Groups = Annotated[list[str] | None, typer.Option("--group", "-g", metavar="NAME", help="A consumer group; repeated.")]
ClientMetrics = Annotated[
    list[str] | None,
    typer.Option("--client-metrics", metavar="NAME", help="A client metrics resource (KIP-714); may be repeated."),
]


@app.command()
def describe(
    topic: Topics = None,
    broker: Brokers = None,
    broker_defaults: BrokerDefaults = False,
    group: Groups = None,
    client_metrics: ClientMetrics = None,
    all_: Annotated[
        bool, typer.Option("--all", "-a", help="Also what was never set: defaults, static values.")
    ] = False,
    key: Annotated[
        list[str] | None, typer.Option("--key", "-k", metavar="KEY", help="Only this setting; may be repeated.")
    ] = None,
    documentation: Annotated[bool, typer.Option("--documentation", help="With each setting's explanation.")] = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Describe settings, of everything if nothing is named: what was set, or with --all what is in force."""
    with connect("configs", bootstrap, timeout) as cluster:
        resources = _resources(topic, broker, broker_defaults, group, client_metrics) or _everything(cluster)
        operation = admin.describe_configs(cluster.routing, resources, keys=key, documentation=documentation)
        results = cluster.run(operation)
    refused = []
    shown: dict[ConfigResource, list[ConfigEntry]] = {}
    for resource, result in results.items():
        if not isinstance(result, KafkaError):
            chosen = [entry for entry in result if all_ or key or _set_here(resource, entry)]
            shown[resource] = sorted(chosen, key=lambda entry: entry.name)
        elif output is Form.KAFKA and result.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # To Kafka's tool this is an answer, not a failure.
            print(f"The topic '{resource.name}' doesn't exist and doesn't have dynamic config.")
        else:
            refused.append((resource, result))
    match output:
        case Form.KAFKA:
            _print_as_kafka(shown, all_=all_)
        case Form.JSON:
            print_json([_resource_json(resource, entries) for resource, entries in shown.items()])
        case Form.TABLE:
            for resource, entries in shown.items():
                _print_as_table(resource, entries, documentation=documentation)
    _refuse(refused, output)


@app.command()
def alter(
    topic: Topics = None,
    broker: Brokers = None,
    broker_defaults: BrokerDefaults = False,
    group: Groups = None,
    client_metrics: ClientMetrics = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Give a setting a value; may be repeated.")
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", metavar="KEY", help="Let the default hold again; may be repeated.")
    ] = None,
    append: Annotated[
        list[str] | None, typer.Option("--append", metavar="KEY=VALUE", help="Add to a list; may be repeated.")
    ] = None,
    subtract: Annotated[
        list[str] | None, typer.Option("--subtract", metavar="KEY=VALUE", help="Take from a list; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what changing them would say.")] = False,
    output: Output = Form.TABLE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: TimeoutS = DEFAULT_TIMEOUT_S,
) -> None:
    """Change settings, effective at once; those not named stay as they are."""
    resources = _resources(topic, broker, broker_defaults, group, client_metrics)
    if not resources:
        raise WrongUsage(
            "name what to change: --topic NAME, --broker ID, --broker-defaults, --group NAME or --client-metrics NAME"
        )
    changes = [
        ConfigChange(name, value, operation)
        for pairs, option, operation in (
            (set_, "--set", AlterOperation.SET),
            (append, "--append", AlterOperation.APPEND),
            (subtract, "--subtract", AlterOperation.SUBTRACT),
        )
        for name, value in key_values(pairs or [], option).items()
    ]
    changes += [ConfigChange(name, None, AlterOperation.DELETE) for name in delete or []]
    if not changes:
        raise WrongUsage("say what to change: --set KEY=VALUE, --delete KEY, --append or --subtract")
    with connect("configs", bootstrap, timeout) as cluster:
        operation = admin.alter_configs(cluster.routing, dict.fromkeys(resources, changes), validate_only=dry_run)
        results = cluster.run(operation)
    done = [resource for resource, error in results.items() if error is None]
    match output:
        case Form.KAFKA:
            for resource in done:
                print(f"Completed updating {_config_of(resource)}.")
        case Form.JSON:
            print_json([_name_json(resource) for resource in done])
        case Form.TABLE:
            for resource in done:
                print(f"{'Could change' if dry_run else 'Changed'} {len(changes)} setting(s) of {_title(resource)}.")
    _refuse([(resource, error) for resource, error in results.items() if error is not None], output)


def _resources(
    topics: list[str] | None,
    brokers: list[int] | None,
    broker_defaults: bool,
    groups: list[str] | None,
    client_metrics: list[str] | None,
) -> list[ConfigResource]:
    return [
        *(ConfigResource(ResourceType.TOPIC, name) for name in topics or ()),
        *(ConfigResource(ResourceType.BROKER, str(broker_id)) for broker_id in brokers or ()),
        *([ConfigResource(ResourceType.BROKER, "")] if broker_defaults else ()),
        *(ConfigResource(ResourceType.GROUP, name) for name in groups or ()),
        *(ConfigResource(ResourceType.CLIENT_METRICS, name) for name in client_metrics or ()),
    ]


def _everything(cluster: BlockingCluster) -> list[ConfigResource]:
    """All topics and brokers, and the groups and client metrics resources that have settings."""
    topics = cluster.run(admin.list_topics(cluster.routing))
    found = _resources(list(topics), sorted(cluster.routing.brokers), True, None, None)
    try:
        others = cluster.run(admin.list_config_resources(cluster.routing, (ResourceType.GROUP,)))
        others += cluster.run(admin.list_config_resources(cluster.routing, (ResourceType.CLIENT_METRICS,)))
    except UnsupportedByBroker:
        # A cluster that cannot list them: Apache Kafka has had the request for all kinds since 4.1.
        return found
    return [*found, *others]


_LAYERS: Final = {
    ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ResourceType.GROUP: ConfigSource.GROUP_CONFIG,
    ResourceType.CLIENT_METRICS: ConfigSource.CLIENT_METRICS_CONFIG,
}
_KAFKAS_WORDS: Final = {
    ConfigSource.GROUP_CONFIG: "DYNAMIC_GROUP_CONFIG",
    ConfigSource.CLIENT_METRICS_CONFIG: "DYNAMIC_CLIENT_METRICS_CONFIG",
}
"""Where Kafka's tool has another name for a source than the protocol."""


def _set_here(resource: ConfigResource, entry: ConfigEntry) -> bool:
    """Whether a setting was given for this very resource."""
    if resource.type is ResourceType.BROKER and not resource.name:
        return entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return entry.source is _LAYERS[resource.type]


def _title(resource: ConfigResource) -> str:
    if resource == ConfigResource(ResourceType.BROKER, ""):
        return "all brokers"
    # Kafka's tool drops the last letter of the entity type to name one: client-metric.
    kind = "client-metric" if resource.type is ResourceType.CLIENT_METRICS else resource.type.name.lower()
    return f"{kind} {resource.name}"


def _config_of(resource: ConfigResource) -> str:
    return f"config for {_title(resource)}" if resource.name else "default config for brokers in the cluster"


def _print_as_kafka(shown: dict[ConfigResource, list[ConfigEntry]], *, all_: bool) -> None:
    for resource, entries in shown.items():
        if resource.name:
            print(f"{'All' if all_ else 'Dynamic'} configs for {_title(resource)} are:")
        else:
            print("Default configs for brokers in the cluster are:")
        for entry in entries:
            synonyms = ", ".join(
                f"{_KAFKAS_WORDS.get(synonym.source, synonym.source.name)}:{synonym.name}={_java(synonym.value)}"
                for synonym in entry.synonyms
            )
            sensitive = str(entry.sensitive).lower()
            print(f"  {entry.name}={_java(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def _java(value: str | None) -> str:
    return "null" if value is None else value


def _print_as_table(resource: ConfigResource, entries: list[ConfigEntry], *, documentation: bool) -> None:
    title = _title(resource)
    if not entries:
        print(f"{title}: nothing set (--all shows what is in force)")
        return
    rows = []
    for entry in entries:
        value = "(hidden)" if entry.sensitive else entry.value
        row = [entry.name, value, entry.source.name.lower().removesuffix("_config").replace("_", " ")]
        rows.append([*row, entry.documentation] if documentation else row)
    print(title)
    print_table(["Setting", "Value", "From", *(["Meaning"] if documentation else [])], rows)


def _name_json(resource: ConfigResource) -> dict[str, Any]:
    return {"type": resource.type.name.lower(), "name": resource.name or None}


def _resource_json(resource: ConfigResource, entries: list[ConfigEntry]) -> dict[str, Any]:
    return _name_json(resource) | {"configs": [_entry_json(entry) for entry in entries]}


def _entry_json(entry: ConfigEntry) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": entry.name,
        "value": entry.value,
        "type": entry.type,
        "source": entry.source.name,
        "readOnly": entry.read_only,
        "sensitive": entry.sensitive,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source.name} for synonym in entry.synonyms
        ],
    }
    if entry.documentation is not None:
        shown["documentation"] = entry.documentation
    return shown


def _refuse(errors: list[tuple[ConfigResource, KafkaError]], output: Form) -> None:
    if not errors:
        return
    reasons = []
    for resource, error in errors:
        if output is Form.KAFKA and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            reasons.append(f"The {resource.type.name.lower()} '{resource.name}' does not exist.")
        else:
            reasons.append(f"{_title(resource)}: {error.message or error.code.name}")
    raise Refused(reasons)
