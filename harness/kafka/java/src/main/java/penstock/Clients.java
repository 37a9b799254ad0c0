package penstock;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own producer and consumer. "settings" are theirs, and name the brokers. */
final class Clients {
    private static final long PATIENCE_NS = Duration.ofSeconds(30).toNanos();
    private static final Duration POLL = Duration.ofMillis(100);

    private Clients() {
    }

    /** {settings, topic, records: [{partition, …}]} to {offsets: […]} in the order of the records. */
    static JsonNode produce(JsonNode question) throws IOException, ExecutionException, InterruptedException {
        try (KafkaProducer<byte[], byte[]> producer = producer(question)) {
            ObjectNode answer = Oracle.JSON.createObjectNode();
            answer.set("offsets", send(producer, question.get("topic").textValue(), question.get("records")));
            return answer;
        }
    }

    /** {settings, topic, transactions: [{end: "COMMIT" or "ABORT", records: […]}]} to {offsets: [[…]]}. */
    static JsonNode transact(JsonNode question) throws IOException, ExecutionException, InterruptedException {
        try (KafkaProducer<byte[], byte[]> producer = producer(question)) {
            producer.initTransactions();
            ObjectNode answer = Oracle.JSON.createObjectNode();
            ArrayNode offsets = answer.putArray("offsets");
            for (JsonNode transaction : question.get("transactions")) {
                producer.beginTransaction();
                offsets.add(send(producer, question.get("topic").textValue(), transaction.get("records")));
                if (transaction.get("end").textValue().equals("COMMIT")) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            return answer;
        }
    }

    private static ArrayNode send(KafkaProducer<byte[], byte[]> producer, String topic, JsonNode rows)
            throws IOException, ExecutionException, InterruptedException {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode row : rows) {
            sent.add(producer.send(new ProducerRecord<>(
                topic,
                row.hasNonNull("partition") ? row.get("partition").intValue() : null,
                row.hasNonNull("timestamp") ? row.get("timestamp").longValue() : null,
                Rows.bytes(row.get("key")),
                Rows.bytes(row.get("value")),
                Rows.headers(row))));
        }
        producer.flush();
        ArrayNode offsets = Oracle.JSON.createArrayNode();
        for (Future<RecordMetadata> each : sent) {
            offsets.add(each.get().offset());
        }
        return offsets;
    }

    /** {settings, topic, ends: {partition: end offset}} to {partitions: {partition: […]}}: all records from offset 0 on. */
    static JsonNode consume(JsonNode question) throws TimeoutException {
        String topic = question.get("topic").textValue();
        Map<TopicPartition, Long> ends = new HashMap<>();
        ObjectNode answer = Oracle.JSON.createObjectNode();
        ObjectNode partitions = answer.putObject("partitions");
        for (Map.Entry<String, JsonNode> entry : question.get("ends").properties()) {
            ends.put(new TopicPartition(topic, Integer.parseInt(entry.getKey())), entry.getValue().longValue());
            partitions.putArray(entry.getKey());
        }
        Map<String, Object> settings = settings(question);
        settings.put("enable.auto.commit", false);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(ends.keySet());
            consumer.seekToBeginning(ends.keySet());
            long deadline = System.nanoTime() + PATIENCE_NS;
            while (!ends.entrySet().stream().allMatch(end -> consumer.position(end.getKey()) >= end.getValue())) {
                if (System.nanoTime() > deadline) {
                    throw new TimeoutException("not all records came: " + partitions.properties().stream()
                        .map(entry -> entry.getKey() + ": " + entry.getValue().size()).toList());
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    partitions.withArray(String.valueOf(record.partition())).add(row(record));
                }
            }
        }
        return answer;
    }

    /**
     * {settings, topic, partition, offset or timestamp, count} to {records: […]}: at least so many of one partition, from
     * an offset on, or from the first record that is not older than a timestamp.
     */
    static JsonNode consumeFrom(JsonNode question) throws TimeoutException {
        TopicPartition place = new TopicPartition(question.get("topic").textValue(), question.get("partition").intValue());
        Map<String, Object> settings = settings(question);
        settings.put("enable.auto.commit", false);
        ObjectNode answer = Oracle.JSON.createObjectNode();
        ArrayNode records = answer.putArray("records");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(place));
            consumer.seek(place, question.has("offset")
                ? question.get("offset").longValue()
                : consumer.offsetsForTimes(Map.of(place, question.get("timestamp").longValue())).get(place).offset());
            long deadline = System.nanoTime() + PATIENCE_NS;
            while (records.size() < question.get("count").intValue()) {
                if (System.nanoTime() > deadline) {
                    throw new TimeoutException("only " + records.size() + " records came");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    records.add(row(record));
                }
            }
        }
        return answer;
    }

    private static ObjectNode row(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode row =
            Rows.write(record.offset(), record.timestamp(), record.key(), record.value(), record.headers());
        row.put("timestamp_type", record.timestampType().name());
        return row;
    }

    private static KafkaProducer<byte[], byte[]> producer(JsonNode question) {
        return new KafkaProducer<>(settings(question), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static Map<String, Object> settings(JsonNode question) {
        Map<String, Object> settings = new HashMap<>();
        for (Map.Entry<String, JsonNode> entry : question.get("settings").properties()) {
            settings.put(entry.getKey(), entry.getValue().asText());
        }
        return settings;
    }
}
