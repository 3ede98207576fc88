"""Each API that is advertised has a line in Kafka's own matrix of ACLs, by which `make vectors` judges it."""

from __future__ import annotations

from tests.vectors.families.security import security_files
from tests.vectors.run import PROJECT_COPY

from tidelog.broker.handlers import load_handlers
from tidelog.protocol.apis import ApiKey

OPEN_TO_ALL = {
    ApiKey.API_VERSIONS: "everybody may ask what is served",
    ApiKey.SASL_HANDSHAKE: "comes before there is a principal",
    ApiKey.SASL_AUTHENTICATE: "comes before there is a principal",
    ApiKey.PUSH_TELEMETRY: "KIP-714 asks for no right",
}


def test_every_api_has_a_line_in_the_matrix() -> None:
    """A new API needs Kafka's answers to those who may not use it, and to those who may."""
    matrix = dict(security_files(str(PROJECT_COPY)))["acl-matrix"]
    judged = {ApiKey[case["api"]] for case in matrix["cases"] if not case.get("listener")}
    served = {ApiKey(key) for key, handler in load_handlers().items() if handler.versions.advertised}
    assert served - judged == OPEN_TO_ALL.keys()
