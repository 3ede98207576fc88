"""What the pipeline refuses, in words that say what to do."""


class PipelineError(Exception):
    """Anything that this package raises by itself."""


class JavaMissing(PipelineError):
    """Spark needs a Java that is not there, or is too old."""


class TableMismatch(PipelineError):
    """The table at the path is not the one that this topic and these options would write."""


class UnparsableRecord(PipelineError):
    """A record's value is not what `value json` and the table's columns promise."""
