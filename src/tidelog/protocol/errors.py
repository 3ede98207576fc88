"""What can be wrong with bytes that a peer sent, and with messages that we are about to send: two different faults."""


class ProtocolError(Exception):
    """The peer sent bytes that are not Kafka's protocol. Close its connection: nothing after them can be trusted."""


class UnsupportedVersion(ProtocolError):
    """The codec knows no such version of the message, or no such API key."""


class InvalidMessage(ValueError):
    """A message cannot be encoded: our own fault.

    A value is out of its field's range or of another type, or a field is set that the version lacks and that
    may not be dropped silently. The text names the field by its path.
    """
