"""What the Spark source refuses, in words that say what to do; Spark shows them under its own stack trace."""


class SourceError(Exception):
    """Anything that this package raises by itself."""


class OptionError(SourceError, ValueError):
    """An option of `format("tidelog")` that is missing, malformed or in conflict with another."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option} {problem}")
        self.option = option


class UnknownTopic(SourceError):
    """A topic or partition that was asked for by name does not exist."""


class DataLoss(SourceError):
    """Records that the read was promised are gone; continuing would skip them silently."""

    def __init__(self, what: str, *, instead: str) -> None:
        super().__init__(
            f"{what} Nothing was skipped: the read stops here. To go on without these records, set failOnDataLoss to"
            f" false: {instead}."
        )


class ReadFailed(SourceError):
    """The cluster did not give records that it has, for as long as a task waits: Spark tries the task again."""
