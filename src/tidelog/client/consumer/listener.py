"""What a consumer's user may want to do when partitions come and go."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.model.identifiers import TopicPartition


class RebalanceListener:
    """Told of partitions as they come and go; override what matters. Each call is awaited before the group goes on."""

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These are new here. `Consumer.seek` may say where to begin; else it is where the group committed last."""

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These are about to go to another member: the last moment to commit what was done with them."""

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These are another member's already, since the group gave this member up: commits for them are refused."""
