"""The classes that come from the table."""

from __future__ import annotations

import copy
import pickle
from importlib.resources import files

import pytest

from tidelog.protocol import catalogue, messages, stubs
from tidelog.protocol.apis import ApiKey


def test_the_stubs_are_current() -> None:
    """`messages.pyi` is what the table generates: run `python -m tidelog.protocol.stubs`."""
    assert (files("tidelog.protocol") / "messages.pyi").read_text() == stubs.stubs()


def test_the_constructor_has_kafkas_defaults() -> None:
    """Zero, empty or what Kafka says; lists and structs are not shared."""
    one, other = messages.FetchRequest(), messages.FetchRequest()
    assert one.max_bytes == 0x7FFFFFFF
    assert one.session_epoch == -1
    assert one.cluster_id is None
    assert one.topics == []
    assert one.topics is not other.topics
    assert one.replica_state == messages.FetchRequest.ReplicaState(replica_id=-1, replica_epoch=-1)
    assert one.replica_state is not other.replica_state
    assert messages.MetadataRequest().topics == []
    assert messages.MetadataRequest(topics=None).topics is None


def test_messages_are_equal_when_their_fields_are() -> None:
    """Structs and unknown tagged fields included, whatever sequence holds these; other classes are never equal."""
    topic = messages.MetadataRequest.MetadataRequestTopic
    assert messages.MetadataRequest(topics=[topic(name="a")]) == messages.MetadataRequest(topics=[topic(name="a")])
    assert messages.MetadataRequest(topics=[topic(name="a")]) != messages.MetadataRequest(topics=[topic(name="b")])
    tagged = messages.MetadataRequest(unknown_tagged_fields=[(9, b"x")])
    assert tagged == messages.MetadataRequest(unknown_tagged_fields=((9, b"x"),))
    assert tagged != messages.MetadataRequest()
    assert messages.HeartbeatResponse() != messages.MetadataRequest()


def test_a_message_prints_as_it_is_written() -> None:
    """With its fields by name, and unknown tagged fields only where there are some."""
    assert repr(messages.ResponseHeader(correlation_id=3)) == "ResponseHeader(correlation_id=3)"
    text = repr(messages.ResponseHeader(unknown_tagged_fields=[(1, b"x")]))
    assert text == "ResponseHeader(correlation_id=0, unknown_tagged_fields=[(1, b'x')])"


def test_messages_copy_and_pickle() -> None:
    """They travel between the processes of a test run, structs included."""
    response = messages.MetadataResponse(brokers=[messages.MetadataResponse.MetadataResponseBroker(node_id=4)])
    assert copy.deepcopy(response) == response
    assert pickle.loads(pickle.dumps(response)) == response


def test_a_misspelt_field_or_message_is_an_error() -> None:
    """At the line that misspells it."""
    with pytest.raises(TypeError):
        messages.MetadataRequest(topic=[])  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        messages.MetadataRequest().topic = []  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="MetadataRequests"):
        messages.MetadataRequests  # type: ignore[attr-defined]  # noqa: B018


def test_each_key_has_its_two_classes() -> None:
    """And each knows its key; ListConfigResources is what key 74 has been called since 4.1."""
    for key in ApiKey:
        assert messages.request_class(key).API_KEY is key
        assert messages.response_class(key).API_KEY is key
    assert messages.request_class(ApiKey.LIST_CONFIG_RESOURCES) is messages.ListConfigResourcesRequest


def test_classes_come_when_asked_for() -> None:
    """The module lists them all, and makes each once."""
    assert set(catalogue.places()) <= set(dir(messages))
    assert messages.VoteRequest is messages.VoteRequest


def test_passwords_and_tokens_are_not_shown() -> None:
    """Whatever prints a message; that there is none is shown."""
    alter = messages.IncrementalAlterConfigsRequest
    users = messages.AlterUserScramCredentialsRequest
    secret = b"hunter2"
    for message in (
        messages.SaslAuthenticateRequest(auth_bytes=secret),
        messages.SaslAuthenticateResponse(auth_bytes=secret),
        messages.CreateDelegationTokenResponse(hmac=secret),
        messages.ExpireDelegationTokenRequest(hmac=secret),
        users(upsertions=[users.ScramCredentialUpsertion(name="a", salted_password=secret)]),
        alter(resources=[alter.AlterConfigsResource(configs=[alter.AlterableConfig(name="n", value="hunter2")])]),
    ):
        assert "hunter2" not in repr(message)
    assert repr(messages.SaslAuthenticateRequest()) == "SaslAuthenticateRequest(auth_bytes=b'')"
