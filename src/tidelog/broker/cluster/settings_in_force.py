"""Waits until altered settings are in force on all live brokers, before the client that altered them is answered.

Each broker is asked by DescribeConfigs for the version of the settings that it has (`VERSION_NAME`, a name that no
setting has), again and again until it has the version that was written. Kafka's brokers, and tidelog's from before,
know no setting of that name and leave it out: they are not waited for. A broker that is silent is waited for
`IN_FORCE_MS_MAX`; as long as that, a broker may delete records by settings that it has confirmed (`StoredSettings`), so
that no record is deleted by former settings after an alteration was answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.deferred import Deferred
from tidelog.broker.shell import Purpose
from tidelog.metadata.image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType
from tidelog.model.errors import ErrorCode
from tidelog.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.broker.cluster.config_changes import KnownSettings
    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.environment import BrokerEnvironment
    from tidelog.broker.shell import Timer
    from tidelog.model.identifiers import BrokerId

VERSION_NAME: Final = "tidelog.settings.version"
"""What DescribeConfigs is asked for; its value is the version in decimal, or empty where none is known."""
IN_FORCE_MS_MAX: Final = 1_000
"""How long an answer waits for brokers to have the settings that it is about; then it is given all the same."""
POLL_MS_MIN: Final = 5
"""Before a broker is asked again that does not have them yet; doubled each time."""
POLL_MS_MAX: Final = 80

DESCRIBE_VERSION: Final = 4


def until_in_force(
    environment: BrokerEnvironment,
    metadata: MetadataCache,
    known_settings: KnownSettings,
    resources: Iterable[ConfigResource],
) -> Deferred[None]:
    """Completes when all live brokers have the settings of `resources` that this one has, or newer ones, or in time."""
    known = {resource: known_settings.version(resource) for resource in resources}
    wanted = {resource: version for resource, version in known.items() if version is not None}
    done: Deferred[None] = Deferred()
    asked: dict[BrokerId, Mapping[ConfigResource, int]] = {}
    for broker_id in sorted(metadata.image.brokers):
        concerning = {resource: version for resource, version in wanted.items() if _concerns(resource, broker_id)}
        if broker_id != environment.broker_id and concerning:
            asked[broker_id] = concerning
    _Waiting(environment, metadata, asked, done).begin()
    return done


def _concerns(resource: ConfigResource, broker_id: BrokerId) -> bool:
    return resource.type is not ConfigResourceType.BROKER or resource in (
        CLUSTER_DEFAULT,
        ConfigResource(ConfigResourceType.BROKER, str(broker_id)),
    )


class _Waiting:
    """For the brokers that do not have the settings yet."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        metadata: MetadataCache,
        brokers: Mapping[BrokerId, Mapping[ConfigResource, int]],
        done: Deferred[None],
    ) -> None:
        """`brokers` is [broker][resource] -> version that it is to have."""
        self._clock = environment.clock
        self._shell = environment.shell
        self._metadata = metadata
        self._deadline_ms = environment.clock.monotonic_ms() + IN_FORCE_MS_MAX
        self._done = done
        self._brokers = dict(brokers)
        self._timer: Timer | None = None

    def begin(self) -> None:
        if not self._brokers:
            self._end()
            return
        self._timer = self._shell.after(IN_FORCE_MS_MAX, self._end)
        for broker_id, wanted in list(self._brokers.items()):
            self._ask(broker_id, wanted, POLL_MS_MIN)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._done.done:
            self._done.complete(None)

    def _ask(self, broker_id: BrokerId, wanted: Mapping[ConfigResource, int], pause_ms: int) -> None:
        """Asks a broker, and again after `pause_ms` while it has older settings."""
        left_ms = self._deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0 or self._done.done:
            return
        describe = messages.DescribeConfigsRequest
        request = describe(
            resources=[
                describe.DescribeConfigsResource(
                    resource_type=resource.type, resource_name=resource.name, configuration_keys=[VERSION_NAME]
                )
                for resource in wanted
            ]
        )

        def settle(settled: Deferred[messages.DescribeConfigsResponse]) -> None:
            try:
                has_them = not _behind(settled.result(), wanted)
            except OSError:
                has_them = not self._metadata.image.is_live(broker_id)
            if not has_them:
                self._shell.after(pause_ms, self._ask, broker_id, wanted, min(2 * pause_ms, POLL_MS_MAX))
                return
            self._brokers.pop(broker_id, None)
            if not self._brokers:
                self._end()

        asked = self._shell.ask(broker_id, Purpose.SETTINGS, request, DESCRIBE_VERSION, left_ms)
        asked.on_complete(settle)


def _behind(response: messages.DescribeConfigsResponse, wanted: Mapping[ConfigResource, int]) -> bool:
    """Whether a broker says that it has older settings; one that does not understand the question says nothing."""
    for result in response.results:
        if result.error_code != ErrorCode.NONE or not result.configs:
            continue
        value = result.configs[0].value or ""
        resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
        if not value.removeprefix("-").isdecimal() or int(value) < wanted.get(resource, 0):
            return True
    return False
