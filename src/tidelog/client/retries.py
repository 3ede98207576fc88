"""How long to wait before the next attempt: exponential with jitter, so that many clients do not come back at once."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a refused or lost request is sent again.

    `backoff_ms` is the first pause, `backoff_ms_max` the longest; each is drawn within 20 % of its nominal length, as
    Kafka's clients do (retry.backoff.ms, retry.backoff.max.ms). What ends the attempts is the caller's deadline.
    """

    backoff_ms: float = 50
    backoff_ms_max: float = 1_000

    def pause_s(self, attempt: int, draw: Callable[[], float]) -> float:
        """Seconds to wait after `attempt` failures (from 1); `draw` gives numbers in [0, 1)."""
        nominal_ms: float = min(self.backoff_ms * 2 ** min(attempt - 1, 32), self.backoff_ms_max)
        return nominal_ms * (0.8 + 0.4 * draw()) / 1000
