"""One record through a secured listener with confluent-kafka, kafka-python, aiokafka or our own client.

tests/conformance/clients/secured.py says what the argument is.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import warnings

from tests.conformance.clients.secured import SENT, Access, librdkafka


def confluent(access: Access) -> str:
    """What librdkafka tells by its error callback is the reason; the record itself only ends in time."""
    from confluent_kafka import KafkaError, Producer

    errors: list[KafkaError] = []
    outcomes: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": access.bootstrap,
            "message.timeout.ms": 20_000,
            "error_cb": errors.append,
            **librdkafka(access),
        }
    )
    producer.produce(access.topic, b"x", on_delivery=lambda error, _: outcomes.append(error))
    final = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN)
    while not outcomes:
        producer.poll(0.1)
        for error in errors:
            if error.code() in final:
                return str(errors)
    return SENT if outcomes == [None] else f"{outcomes[0]}; {errors}"


def kafka_python(access: Access) -> str:
    """It tries for `bootstrap_timeout_ms`; its log tells the reason."""
    import logging

    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    reasons: list[str] = []

    class Reasons(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            reasons.append(record.getMessage())

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return access.password

    logging.getLogger("kafka").addHandler(Reasons(logging.WARNING))
    try:
        producer = KafkaProducer(
            bootstrap_servers=access.bootstrap,
            security_protocol="SASL_SSL" if access.mechanism else "SSL",
            ssl_cafile=access.ca,
            ssl_certfile=access.certificate or None,
            ssl_keyfile=access.certificate or None,
            sasl_mechanism=access.mechanism or None,
            sasl_plain_username=access.user or None,
            sasl_plain_password=access.password or None,
            sasl_oauth_token_provider=Provider() if access.mechanism == "OAUTHBEARER" else None,
            bootstrap_timeout_ms=5_000,
        )
        producer.send(access.topic, b"x").get(20)
        producer.close()
    except Exception as error:
        return f"{type(error).__name__}: {error}; {' | '.join(dict.fromkeys(reasons))}"
    return SENT


def aiokafka(access: Access) -> str:
    """Its error at `start`."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return access.password

    async def run() -> None:
        context = ssl.create_default_context(cafile=access.ca)
        if access.certificate:
            context.load_cert_chain(access.certificate)
        producer = AIOKafkaProducer(
            bootstrap_servers=access.bootstrap,
            security_protocol="SASL_SSL" if access.mechanism else "SSL",
            ssl_context=context,
            sasl_mechanism=access.mechanism or "PLAIN",
            sasl_plain_username=access.user or None,
            sasl_plain_password=access.password or None,
            sasl_oauth_token_provider=Provider() if access.mechanism == "OAUTHBEARER" else None,
        )
        try:
            await producer.start()
            await producer.send_and_wait(access.topic, b"x")
        finally:
            await producer.stop()

    try:
        asyncio.run(run())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return SENT


def tidelog(access: Access) -> str:
    """Our own client."""
    from tidelog.client import admin
    from tidelog.client.blocking import BlockingCluster
    from tidelog.client.errors import ClientError
    from tidelog.client.security import ClientSecurity
    from tidelog.model.errors import KafkaError

    try:
        security = ClientSecurity.from_properties(librdkafka(access))
        with BlockingCluster(access.bootstrap, security=security) as cluster:
            [outcome] = cluster.run(admin.create_topics(cluster.routing, [admin.NewTopic(access.topic)])).values()
    except (ClientError, KafkaError) as error:
        return f"{type(error).__name__}: {error}"
    there = isinstance(outcome, KafkaError) and outcome.code.name == "TOPIC_ALREADY_EXISTS"
    return str(outcome) if isinstance(outcome, KafkaError) and not there else SENT


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    given = Access(**json.loads(sys.argv[1]))
    of = {"confluent": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka, "tidelog": tidelog}
    print(of[given.client](given).replace("\n", " "), flush=True)
    # Threads of clients that were refused may not end.
    sys.stdout.flush()
