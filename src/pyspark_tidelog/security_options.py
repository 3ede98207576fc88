"""The options of reads and writes that secure connections: Kafka's client properties, behind `kafka.`."""

from collections.abc import Mapping

from pyspark_tidelog import kafka_settings
from pyspark_tidelog.errors import OptionError


def parse_security(kafka: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The properties of security, once it is clear that connections can be secured by them. Reads their files.

    `kafka`: options without their prefix. OptionError says what cannot be used, and why.
    """
    given = {name: value for name, value in kafka.items() if name in kafka_settings.SECURITY}
    from tidelog.client.errors import UnsupportedSecurity
    from tidelog.client.security import ClientSecurity

    try:
        ClientSecurity.from_properties(given)
    except UnsupportedSecurity as error:
        raise OptionError("kafka.security.protocol", f"and what belongs to it cannot be used: {error}") from None
    return tuple(sorted(given.items()))
