package penstock;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** What operators do to groups with Kafka's own admin client. Questions name a "topic" and a "group". */
final class Groups {
    private Groups() {
    }

    /** {…} to {is_listed, state, members, committed: {partition: offset}}. */
    static JsonNode describe(JsonNode question) throws ExecutionException, InterruptedException {
        ObjectNode answer = Topics.nothing();
        try (Admin admin = Topics.admin(question)) {
            answer.put("is_listed", admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get().stream()
                .anyMatch(each -> each.groupId().equals(group(question))));
            ConsumerGroupDescription found =
                admin.describeConsumerGroups(List.of(group(question))).all().get().get(group(question));
            answer.put("state", found.groupState().toString());
            answer.put("members", found.members().size());
            ObjectNode committed = answer.putObject("committed");
            admin.listConsumerGroupOffsets(group(question)).partitionsToOffsetAndMetadata().get()
                .forEach((place, offset) -> committed.put(String.valueOf(place.partition()), offset.offset()));
        }
        return answer;
    }

    /** {…, partition, offset} to {}. */
    static JsonNode reset(JsonNode question) throws ExecutionException, InterruptedException {
        OffsetAndMetadata offset = new OffsetAndMetadata(question.get("offset").longValue());
        try (Admin admin = Topics.admin(question)) {
            admin.alterConsumerGroupOffsets(group(question), Map.of(place(question), offset)).all().get();
        }
        return Topics.nothing();
    }

    /** {…, partition} to {}. */
    static JsonNode deleteOffsets(JsonNode question) throws ExecutionException, InterruptedException {
        try (Admin admin = Topics.admin(question)) {
            admin.deleteConsumerGroupOffsets(group(question), Set.of(place(question))).all().get();
        }
        return Topics.nothing();
    }

    static JsonNode delete(JsonNode question) throws ExecutionException, InterruptedException {
        try (Admin admin = Topics.admin(question)) {
            admin.deleteConsumerGroups(List.of(group(question))).all().get();
        }
        return Topics.nothing();
    }

    static String group(JsonNode question) {
        return question.get("group").textValue();
    }

    static TopicPartition place(JsonNode question) {
        return new TopicPartition(Topics.name(question), question.get("partition").intValue());
    }
}
