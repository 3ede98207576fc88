"""ApiVersions: what this broker serves. The first request of nearly every client.

Versions 0-4. The answer never has the flexible response header, so that a client that knows less can read it (KIP-511).
v3: the client's software, checked and kept for metrics; features. v4: as v3, a feature's lowest version may be 0.
A version above these is answered in the format of v0 with UNSUPPORTED_VERSION; `dispatch` does that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.handler import advertised
from tidelog.broker.handlers import Versions
from tidelog.broker.handlers._features import add_features
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.client_software import NAMED_SINCE, invalid_software

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.API_VERSIONS
VERSIONS: Final = Versions(0, 4)

FEATURES_SINCE: Final = 3


def handle(node: Node, context: RequestContext, request: messages.ApiVersionsRequest) -> messages.ApiVersionsResponse:
    invalid = invalid_software(request, context.api_version)
    if invalid is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{invalid!r} names no client software.")
    if context.api_version >= NAMED_SINCE and context.peer is not None:
        context.peer.software = request.client_software_name, request.client_software_version
    response = messages.ApiVersionsResponse(api_keys=advertised(node.handlers.values()))
    if context.api_version >= FEATURES_SINCE:
        add_features(response, context.api_version)
    return response


def error_response(
    request: messages.ApiVersionsRequest, version: int, error: KafkaError
) -> messages.ApiVersionsResponse:
    return messages.ApiVersionsResponse(error_code=error.code)
