"""What the pipeline refuses, in words that say what to do."""


class PipelineError(Exception):
    """Anything that this package raises by itself."""


class JavaMissing(PipelineError):  # noqa: N818 - it says what is wrong
    """Spark needs a Java that is not there, or is too old."""


class TableMismatch(PipelineError):  # noqa: N818 - it says what is wrong
    """The table at the path is not the one that this topic and these options would write."""


class UnparsableRecord(PipelineError):  # noqa: N818 - it says what is wrong
    """A record's value is not what `value json` and the table's columns promise."""
