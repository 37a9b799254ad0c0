package penstock;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Kafka's own consumers in groups. They stay from one question to the next, under the number that "member_join" gives. */
final class Members {
    private static final Duration POLL = Duration.ofMillis(100);

    private static final class Held {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final String topic;
        private Exception failure;

        Held(KafkaConsumer<byte[], byte[]> consumer, String topic) {
            this.consumer = consumer;
            this.topic = topic;
        }

        TopicPartition place(JsonNode question) {
            return new TopicPartition(topic, question.get("partition").intValue());
        }
    }

    private final Map<Integer, Held> held = new HashMap<>();
    private int joined;

    private Held of(JsonNode question) {
        return held.get(question.get("member").intValue());
    }

    /** {settings, topic} to {member}. */
    JsonNode join(JsonNode question) {
        Held member = new Held(
            new KafkaConsumer<>(Clients.settings(question), new ByteArrayDeserializer(), new ByteArrayDeserializer()),
            Topics.name(question));
        member.consumer.subscribe(List.of(member.topic));
        held.put(++joined, member);
        return Topics.nothing().put("member", joined);
    }

    /** {member} to {places: [[partition, offset]]}. */
    JsonNode poll(JsonNode question) throws Exception {
        Held member = of(question);
        ObjectNode answer = Topics.nothing();
        ArrayNode places = answer.putArray("places");
        for (ConsumerRecord<byte[], byte[]> record : member.consumer.poll(POLL)) {
            places.addArray().add(record.partition()).add(record.offset());
        }
        if (member.failure != null) {
            throw member.failure;
        }
        return answer;
    }

    JsonNode commit(JsonNode question) {
        of(question).consumer.commitSync();
        return Topics.nothing();
    }

    JsonNode commitAsync(JsonNode question) {
        Held member = of(question);
        member.consumer.commitAsync((offsets, failure) -> member.failure = failure);
        return Topics.nothing();
    }

    /** {member, partition, offset} to {}. */
    JsonNode seek(JsonNode question) {
        of(question).consumer.seek(of(question).place(question), question.get("offset").longValue());
        return Topics.nothing();
    }

    JsonNode pause(JsonNode question) {
        of(question).consumer.pause(List.of(of(question).place(question)));
        return Topics.nothing();
    }

    JsonNode resume(JsonNode question) {
        of(question).consumer.resume(List.of(of(question).place(question)));
        return Topics.nothing();
    }

    JsonNode leave(JsonNode question) {
        held.remove(question.get("member").intValue()).consumer.close();
        return Topics.nothing();
    }
}
