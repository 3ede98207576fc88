"""Why a log is not cleaned."""


class Uncleanable(Exception):
    """The log's files hold what cannot be cleaned; the message says what, and where."""
