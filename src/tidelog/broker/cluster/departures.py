"""What clients are told while a broker dies: nothing that is wrong in a moment, and its address for a while longer.

    its connection breaks ---- suspected ----> UpdateMetadata: it is gone ----- lingers -----> forgotten
                                  |                       |
    Metadata that names it waits -+--- answered ----------+        at the latest after SUSPECT_MS_MAX
    (and FindCoordinator)

A client whose leader dies asks another broker at once, before the controller has had the time to elect. Told that
nothing has changed, it has no reason to ask again soon: librdkafka does after a second. So a broker suspects another
one as soon as its own connection to it breaks, and holds back answers that name it until the controller has told which
brokers are live. The same holds of a coordinator: a client that is sent back to the dead one tries to connect there
first, and franz-go with KIP-848 may never ask again.

And librdkafka (2.10 and later) forgets a broker that Metadata does not list; where the same answer moves a partition
away from it, the partition is lost on the way, and found again a second later. So a broker that is gone stays on the
list until its partitions' clients have moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.deferred import Deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.broker.cluster.metadata_cache import MetadataCache
    from tidelog.broker.shell import Shell, Timer
    from tidelog.metadata.image import BrokerRegistration
    from tidelog.model.identifiers import BrokerId

SUSPECT_MS_MAX: Final = 500
"""How long a broker is suspected at most, after its connection broke. Then it is taken to live: the controller has said
nothing else."""
LINGER_MS: Final = 5_000
"""How long a broker stays on the list that clients are given, after it has gone."""


class Departures:
    """The other brokers that this one suspects to be dead, and those that have left not long ago."""

    def __init__(self, metadata: MetadataCache, shell: Shell) -> None:
        self._metadata = metadata
        self._shell = shell
        self._suspects: dict[int, Timer] = {}
        self._waiting: list[Deferred[None]] = []
        self._known: dict[BrokerId, BrokerRegistration] = {}
        """The live brokers, when they last changed."""
        self._gone: dict[BrokerId, tuple[BrokerRegistration, Timer]] = {}
        metadata.on_brokers_changed.append(self._brokers_changed)

    def connection_broke(self, broker_id: int) -> None:
        """A connection of ours to a broker was ended, and not by us."""
        before = self._suspects.pop(broker_id, None)
        if before is not None:
            before.cancel()
        self._suspects[broker_id] = self._shell.after(SUSPECT_MS_MAX, self.reached, broker_id)

    def reached(self, broker_id: int) -> None:
        """A broker took a connection of ours, or was suspected for long enough."""
        timer = self._suspects.pop(broker_id, None)
        if timer is not None:
            timer.cancel()
            if not self._suspects:
                self._answer()

    def is_suspected(self, broker_id: int) -> bool:
        return broker_id in self._suspects

    def before_naming(self, names_suspected: Callable[[], bool]) -> Deferred[None]:
        """Completes when an answer may be given of which `names_suspected` tells whether it names a suspected one.

        That is asked in the next turn: if a broker dies, its connection to us breaks as the client's does, and the
        client's question may be read first.
        """
        if len(self._known) < 2:
            return Deferred.of(None)
        turn: Deferred[None] = Deferred()
        self._shell.soon(turn.complete, None)
        return turn.and_then(lambda _: self._settled() if self._suspects and names_suspected() else Deferred.of(None))

    def _settled(self) -> Deferred[None]:
        """Completes when no broker is suspected any more."""
        settled: Deferred[None] = Deferred()
        if self._suspects:
            self._waiting.append(settled)
        else:
            settled.complete(None)
        return settled

    def lingering(self) -> Iterator[BrokerRegistration]:
        """Brokers that have left not long ago, by ascending id."""
        for _, (registration, _timer) in sorted(self._gone.items()):
            yield registration

    def stop(self) -> None:
        """Sets no timers any more; requests that wait are answered."""
        for timer in [*self._suspects.values(), *(timer for _, timer in self._gone.values())]:
            timer.cancel()
        self._suspects.clear()
        self._answer()

    def _brokers_changed(self) -> None:
        live = self._metadata.image.brokers
        for broker_id, registration in self._known.items():
            if broker_id not in live and broker_id not in self._gone:
                self._gone[broker_id] = registration, self._shell.after(LINGER_MS, self._forget, broker_id)
        self._known = dict(live)
        for broker_id in [back for back in self._gone if back in live]:
            self._gone.pop(broker_id)[1].cancel()
        for gone in [suspect for suspect in self._suspects if suspect not in live]:
            self._suspects.pop(gone).cancel()
        if self._waiting and not self._suspects:
            # The rest of what the controller says, the new leaders, is taken in within this turn.
            self._shell.soon(self._answer)

    def _forget(self, broker_id: BrokerId) -> None:
        del self._gone[broker_id]

    def _answer(self) -> None:
        if not self._suspects:
            waiting, self._waiting = self._waiting, []
            for settled in waiting:
                settled.complete(None)
