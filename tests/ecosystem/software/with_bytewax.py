"""Bytewax: a dataflow that reads its topic to the end, doubles, and writes."""

import json
import sys

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.run import cli_main

bootstrap, source, sink = sys.argv[1:]
brokers = bootstrap.split(",")


def doubled(message):
    return KafkaSinkMessage(message.key, json.dumps(2 * json.loads(message.value)).encode())


flow = Dataflow("double")
numbers = op.input("numbers", flow, KafkaSource(brokers, [source], tail=False))
op.output("doubled", op.map("double", numbers, doubled), KafkaSink(brokers, sink))
cli_main(flow)
