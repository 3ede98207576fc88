"""What goes through a topic's partitions on one broker, as plain integers that the hot paths add to."""

from __future__ import annotations


class Traffic:
    """Counts of one topic, or of several together; since the broker began to have a replica of it."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
        "reassignment_bytes_in",
        "reassignment_bytes_out",
        "rejected_bytes",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        """Bytes of batches that clients have appended, as they lie in the log."""
        self.messages_in = 0
        self.produces = 0
        """Attempts of clients to append to a partition."""
        self.failed_produces = 0
        """Those of `produces` that failed for no reason of a client's."""
        self.rejected_bytes = 0
        """Bytes of batches that were too large."""
        self.bytes_out = 0
        """Bytes of records that were sent to consumers."""
        self.fetches = 0
        """Partitions in answers to consumers, and in those to followers."""
        self.failed_fetches = 0
        self.replication_bytes_in = 0
        """Bytes of records that this broker's followers have got."""
        self.replication_bytes_out = 0
        """Bytes of records that were sent to other brokers' followers."""
        self.reassignment_bytes_in = 0
        """Those of `replication_bytes_in` that came to replicas which a reassignment is adding here."""
        self.reassignment_bytes_out = 0
        """Those of `replication_bytes_out` that went to replicas which a reassignment is adding."""

    def add(self, other: Traffic) -> None:
        """Adds the counts of another topic to these."""
        for name in Traffic.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TrafficByTopic:
    """The counts of every topic of which this broker has a replica, and of those of which it had."""

    def __init__(self) -> None:
        self.topics: dict[str, Traffic] = {}
        self._departed = Traffic()

    def of(self, topic: str) -> Traffic:
        """The topic's counts, from zero where it is new here."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = Traffic()
        return found

    def forget(self, topic: str) -> None:
        """This broker has no replica of the topic any more; its counts stay in the sum."""
        departed = self.topics.pop(topic, None)
        if departed is not None:
            self._departed.add(departed)

    def parts(self) -> tuple[Traffic, list[tuple[str, Traffic]]]:
        """What the sum of all topics consists of: those that are gone, and the topics that are here now.

        The sum never goes back, also where topics go while they are being added up.
        """
        departed = Traffic()
        departed.add(self._departed)
        return departed, list(self.topics.items())
