"""DescribeUserScramCredentials: which SCRAM users there are, their mechanisms and iterations (KIP-554); no keys.

Version 0. Answered from what this broker follows in the metadata store.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType
from tidelog.security.scram import MECHANISMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node
    from tidelog.security.scram import ScramCredential

KEY: Final = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
VERSIONS: Final = Versions(0, 0)

_Result = messages.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Info = messages.DescribeUserScramCredentialsResponse.CredentialInfo


def handle(
    node: Node, context: RequestContext, request: messages.DescribeUserScramCredentialsRequest
) -> messages.DescribeUserScramCredentialsResponse:
    if not authorize(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    known = node.security.users()
    # No list and an empty one both ask for all.
    asked = [user.name for user in request.users or ()] or list(known)
    results = [_describe(known, user, count) for user, count in Counter(asked).items()]
    return messages.DescribeUserScramCredentialsResponse(error_message="", results=results)


def _describe(known: Mapping[str, Mapping[str, ScramCredential]], user: str, count: int) -> _Result:
    if count > 1:
        reason = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return _Result(user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=reason)
    credentials = known.get(user)
    if credentials is None:
        reason = f"Attempt to describe a user credential that does not exist: {user}"
        return _Result(user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=reason)
    infos = [
        _Info(mechanism=mechanism.code, iterations=credentials[mechanism.name].iterations)
        for mechanism in MECHANISMS.values()
        if mechanism.name in credentials
    ]
    return _Result(user=user, error_message="", credential_infos=infos)


def error_response(
    request: messages.DescribeUserScramCredentialsRequest, version: int, error: KafkaError
) -> messages.DescribeUserScramCredentialsResponse:
    # Kafka names the error once more for each user that was asked for.
    results = [
        _Result(user=user.name, error_code=error.code, error_message=error.message) for user in request.users or ()
    ]
    return messages.DescribeUserScramCredentialsResponse(
        error_code=error.code, error_message=error.message, results=results
    )
