"""AlterUserScramCredentials: passwords of SCRAM users, salted by the client (KIP-554). What kafka-configs asks.

Version 0. Any broker carries it out: the store's node of the user is compared and set. As in Kafka each user's change
is judged by itself, and a user that comes twice in a request is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelog.broker.context import authorize
from tidelog.broker.deferred import Deferred, gather
from tidelog.broker.handlers import Versions
from tidelog.model.errors import ErrorCode, KafkaError
from tidelog.protocol import messages
from tidelog.protocol.apis import ApiKey
from tidelog.security.access import CLUSTER_NAME, Operation, ResourceType
from tidelog.security.scram import BY_CODE, ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.node import Node

KEY: Final = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
VERSIONS: Final = Versions(0, 0)

_Result = messages.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
_Upsertion = messages.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Deletion = messages.AlterUserScramCredentialsRequest.ScramCredentialDeletion


def handle(
    node: Node, context: RequestContext, request: messages.AlterUserScramCredentialsRequest
) -> Deferred[messages.AlterUserScramCredentialsResponse]:
    if not authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    by_user: dict[str, list[_Upsertion | _Deletion]] = {}
    changes: list[_Upsertion | _Deletion] = [*request.deletions]
    changes += request.upsertions
    for change in changes:
        by_user.setdefault(change.name, []).append(change)
    outcomes = [_carry_out(node, *changes) for changes in by_user.values()]
    return gather(outcomes).then(lambda results: messages.AlterUserScramCredentialsResponse(results=results))


def _carry_out(node: Node, change: _Upsertion | _Deletion, *others: _Upsertion | _Deletion) -> Deferred[_Result]:
    """The first of a user's changes, if it is the only one."""
    try:
        name = _judge(change)
        if others:
            # What is absent is said first, as in Kafka. A single change is judged by the store (`apply`).
            if isinstance(change, _Deletion) and name not in node.security.users().get(change.name, {}):
                raise _absent()
            reason = "A user credential cannot be altered twice in the same request"
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, reason)
    except KafkaError as error:
        return Deferred.of(_failed(change.name, error))

    def apply(before: Mapping[str, ScramCredential]) -> Mapping[str, ScramCredential]:
        if isinstance(change, _Upsertion):
            credential = ScramCredential.of_salted(
                BY_CODE[change.mechanism], bytes(change.salted_password), bytes(change.salt), change.iterations
            )
            return {**before, name: credential}
        if name not in before:
            raise _absent()
        return {known: credential for known, credential in before.items() if known != name}

    altered = node.security.alter_user(change.name, apply)
    return altered.then(lambda _: _Result(user=change.name, error_code=ErrorCode.NONE, error_message=None)).recover(
        KafkaError, lambda error: _failed(change.name, error)
    )


def _judge(change: _Upsertion | _Deletion) -> str:
    """The mechanism's name; KafkaError in Kafka's words."""
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = BY_CODE.get(change.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, _Upsertion):
        if change.iterations < ITERATIONS_MIN:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if change.iterations > ITERATIONS_MAX:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return mechanism.name


def _absent() -> KafkaError:
    return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


def _failed(user: str, error: KafkaError) -> _Result:
    return _Result(user=user, error_code=error.code, error_message=error.message)


def error_response(
    request: messages.AlterUserScramCredentialsRequest, version: int, error: KafkaError
) -> messages.AlterUserScramCredentialsResponse:
    users = dict.fromkeys([*(each.name for each in request.deletions), *(each.name for each in request.upsertions)])
    return messages.AlterUserScramCredentialsResponse(results=[_failed(user, error) for user in users])
