// A worker with Kafka's own Java client; tests/conformance/clients/__init__.py says what a worker is.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

public class Worker {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "RangeAssignor",
        "roundrobin", "RoundRobinAssignor",
        "sticky", "StickyAssignor",
        "cooperative-sticky", "CooperativeStickyAssignor");

    private final Map<String, String> given;
    private final AtomicBoolean leaving = new AtomicBoolean();

    private Worker(Map<String, String> given) {
        this.given = given;
    }

    public static void main(String[] arguments) {
        Map<String, String> given = new HashMap<>();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            given.put(parts[0], parts[1]);
        }
        Worker worker = new Worker(given);
        say("ready", "client", quoted("java"), "version", quoted(AppInfoParser.getVersion()));
        Thread listener = new Thread(worker::listen);
        listener.setDaemon(true);
        listener.start();
        try {
            switch (given.get("role")) {
                case "consume" -> worker.consume();
                case "copy" -> worker.copy();
                case "transact" -> worker.transact();
                default -> throw new IllegalArgumentException(given.get("role"));
            }
        } catch (RuntimeException error) {
            say("fatal", "error", quoted(error.toString()));
            error.printStackTrace();
            System.exit(1);
        }
        say("left");
        System.exit(0);
    }

    private void listen() {
        try (BufferedReader reader = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = reader.readLine(); line != null && !line.equals("leave"); line = reader.readLine()) {
            }
        } catch (IOException error) {
            // The end of it means the same.
        }
        leaving.set(true);
    }

    // The roles.

    private void consume() {
        try (KafkaConsumer<String, String> consumer = joined()) {
            while (!leaving.get()) {
                List<ConsumerRecord<String, String>> records = take(consumer);
                if (records.isEmpty()) {
                    continue;
                }
                say("consumed", "records", grouped(records));
                Map<TopicPartition, OffsetAndMetadata> offsets = after(records);
                if ("async".equals(given.get("commit"))) {
                    consumer.commitAsync(offsets, (done, failed) -> {
                        if (failed == null) {
                            committed(done);
                        } else {
                            refused(failed);
                        }
                    });
                    continue;
                }
                try {
                    consumer.commitSync(offsets);
                    committed(offsets);
                } catch (CommitFailedException | RebalanceInProgressException | TimeoutException failed) {
                    refused(failed);
                }
            }
        }
    }

    private void copy() {
        try (KafkaProducer<String, String> producer = producer(); KafkaConsumer<String, String> consumer = joined()) {
            while (!leaving.get()) {
                List<ConsumerRecord<String, String>> records = take(consumer);
                if (records.isEmpty()) {
                    continue;
                }
                String outcome = "committed";
                producer.beginTransaction();
                try {
                    for (ConsumerRecord<String, String> record : records) {
                        String key = record.topic() + "-" + record.partition() + "-" + record.offset();
                        producer.send(new ProducerRecord<>(given.get("output"), key, record.value()));
                    }
                    producer.sendOffsetsToTransaction(after(records), consumer.groupMetadata());
                    commit(producer);
                } catch (ProducerFencedException fenced) {
                    throw fenced;
                } catch (KafkaException failed) {
                    say("error", "error", quoted(failed.toString()));
                    producer.abortTransaction();
                    outcome = "aborted";
                    rewind(consumer);
                }
                say("copied", "outcome", quoted(outcome), "records", grouped(records));
            }
        }
    }

    private void transact() {
        int every = Integer.parseInt(given.getOrDefault("abort_every", "0"));
        String name = given.get("name");
        try (KafkaProducer<String, String> producer = producer()) {
            for (int number = 0; number < Integer.parseInt(given.get("transactions")); number++) {
                List<String> values = new ArrayList<>();
                for (int record = 0; record < Integer.parseInt(given.get("records")); record++) {
                    values.add(name + "-" + number + "-" + record);
                }
                say("begin", "number", String.valueOf(number));
                String outcome = every > 0 && number % every == every - 1 ? "aborted" : "committed";
                producer.beginTransaction();
                try {
                    for (String value : values) {
                        producer.send(new ProducerRecord<>(given.get("topic"), value, value));
                    }
                    if (outcome.equals("committed")) {
                        commit(producer);
                    } else {
                        producer.flush();
                        producer.abortTransaction();
                    }
                } catch (ProducerFencedException fenced) {
                    throw fenced;
                } catch (KafkaException failed) {
                    say("error", "error", quoted(failed.toString()));
                    producer.abortTransaction();
                    outcome = "aborted";
                }
                say("transaction", "number", String.valueOf(number), "outcome", quoted(outcome));
            }
        }
    }

    // What they are made of.

    private KafkaConsumer<String, String> joined() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given.get("bootstrap"));
        settings.put("client.id", given.getOrDefault("name", "java"));
        settings.put("group.id", given.get("group"));
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("fetch.max.wait.ms", "100");
        settings.put("default.api.timeout.ms", "20000");
        if (given.containsKey("instance")) {
            settings.put("group.instance.id", given.get("instance"));
        }
        if ("consumer".equals(given.get("protocol"))) {
            settings.put("group.protocol", "consumer");
        } else {
            int session = Integer.parseInt(given.getOrDefault("session_timeout_ms", "10000"));
            settings.put("session.timeout.ms", String.valueOf(session));
            settings.put("heartbeat.interval.ms", String.valueOf(Math.min(500, session / 3)));
            settings.put("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer." + ASSIGNORS.get(given.getOrDefault("assignor", "range")));
        }
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(given.get("topic")), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                var group = consumer.groupMetadata();
                say("assigned", "partitions", listed(partitions),
                    "generation", String.valueOf(group.generationId()), "member", quoted(group.memberId()));
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                say("revoked", "partitions", listed(partitions));
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                say("lost", "partitions", listed(partitions));
            }
        });
        return consumer;
    }

    private KafkaProducer<String, String> producer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given.get("bootstrap"));
        settings.put("transactional.id", given.get("transactional_id"));
        settings.put("transaction.timeout.ms", given.getOrDefault("transaction_timeout_ms", "20000"));
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    /** A commit that ran out of time may be repeated, and must be, or nobody knows how it ended. */
    private static void commit(KafkaProducer<String, String> producer) {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException late) {
                say("error", "error", quoted(late.toString()));
            } catch (InvalidProducerEpochException stale) {
                throw stale;
            }
        }
    }

    private static List<ConsumerRecord<String, String>> take(KafkaConsumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        consumer.poll(Duration.ofMillis(100)).forEach(records::add);
        return records;
    }

    /** What an aborted transaction has consumed is consumed again. */
    private static void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata found = committed.get(partition);
            if (found == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, found.offset());
            }
        }
    }

    private static Map<TopicPartition, OffsetAndMetadata> after(List<ConsumerRecord<String, String>> records) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        return offsets;
    }

    // What they say.

    private static void committed(Map<TopicPartition, OffsetAndMetadata> offsets) {
        String list = offsets.entrySet().stream()
            .map(each -> "[" + quoted(each.getKey().topic()) + "," + each.getKey().partition() + "," + each.getValue().offset() + "]")
            .collect(Collectors.joining(",", "[", "]"));
        say("committed", "offsets", list);
    }

    private static void refused(Exception failed) {
        say("refused", "error", quoted(failed.getClass().getSimpleName()));
    }

    private static String listed(Collection<TopicPartition> partitions) {
        return partitions.stream()
            .map(each -> "[" + quoted(each.topic()) + "," + each.partition() + "]")
            .collect(Collectors.joining(",", "[", "]"));
    }

    private static String grouped(List<ConsumerRecord<String, String>> records) {
        Map<String, List<String>> found = new TreeMap<>();
        for (ConsumerRecord<String, String> record : records) {
            found.computeIfAbsent(quoted(record.topic()) + "," + record.partition(), name -> new ArrayList<>())
                .add(String.valueOf(record.offset()));
        }
        return found.entrySet().stream()
            .map(each -> "[" + each.getKey() + ",[" + String.join(",", each.getValue()) + "]]")
            .collect(Collectors.joining(",", "[", "]"));
    }

    /** Names and values in turn; values are JSON already. */
    private static synchronized void say(String event, String... fields) {
        StringBuilder line = new StringBuilder("{\"event\":" + quoted(event) + ",\"at\":" + System.currentTimeMillis() / 1000.0);
        for (int index = 0; index < fields.length; index += 2) {
            line.append(',').append(quoted(fields[index])).append(':').append(fields[index + 1]);
        }
        System.out.println(line.append('}'));
        System.out.flush();
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                quoted.append('\\').append(each);
            } else if (each < ' ') {
                quoted.append(String.format("\\u%04x", (int) each));
            } else {
                quoted.append(each);
            }
        }
        return quoted.append('"').toString();
    }
}
