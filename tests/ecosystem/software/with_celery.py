"""Celery on kombu's Kafka transport: a task for each number, which a worker takes, and which writes its double."""

import sys

from celery import Celery
from confluent_kafka import Consumer, Producer

bootstrap, source, sink = sys.argv[1:]
host = bootstrap.split(",")[0]
app = Celery("double", broker=f"confluentkafka://{host}")
app.conf.update(task_default_queue="celery-tasks", worker_pool="solo", task_ignore_result=True)
producer = Producer({"bootstrap.servers": bootstrap})


@app.task(name="double")
def double(number):
    producer.produce(sink, str(2 * number).encode())
    producer.poll(0)


def send_tasks():
    """As many as there are numbers in the input topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "celery-source",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([source])
    ends = 0
    while ends < 3:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            ends += 1
        else:
            double.delay(int(message.value()))
    consumer.close()


send_tasks()
app.worker_main(["worker", "--loglevel=info", "--without-gossip", "--without-mingle", "--without-heartbeat"])
