"""Time, of both kinds."""

from typing import Protocol


class Clock(Protocol):
    """Wall time is for timestamps that people and records see; monotonic time is for everything that waits."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump either way."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some start; never goes back."""
        ...
