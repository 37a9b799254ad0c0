package penstock;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.utils.AppInfoParser;

/** Kafka's own admin client. Questions name "settings", which are the client's, and a "topic". */
final class Topics {
    private static final short REPLICAS = 1;

    private Topics() {
    }

    static JsonNode version(JsonNode question) {
        return nothing().put("version", AppInfoParser.getVersion());
    }

    /** {…, partitions, configs: {name: value}} to {}. */
    static JsonNode create(JsonNode question) throws ExecutionException, InterruptedException {
        try (Admin admin = admin(question)) {
            NewTopic topic = new NewTopic(name(question), question.get("partitions").intValue(), REPLICAS);
            admin.createTopics(List.of(topic.configs(configs(question)))).all().get();
        }
        return nothing();
    }

    /** {…} to {partitions, configs: {name: value or null}}. */
    static JsonNode describe(JsonNode question) throws ExecutionException, InterruptedException {
        ObjectNode answer = nothing();
        ConfigResource topic = resource(question);
        try (Admin admin = admin(question)) {
            answer.put("partitions", admin.describeTopics(List.of(topic.name())).allTopicNames().get()
                .get(topic.name()).partitions().size());
            ObjectNode configs = answer.putObject("configs");
            for (ConfigEntry entry : admin.describeConfigs(List.of(topic)).all().get().get(topic).entries()) {
                configs.put(entry.name(), entry.value());
            }
        }
        return answer;
    }

    /** {…, configs: {name: value}} to {}. */
    static JsonNode alter(JsonNode question) throws ExecutionException, InterruptedException {
        List<AlterConfigOp> changes = new ArrayList<>();
        configs(question).forEach((name, value) ->
            changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        try (Admin admin = admin(question)) {
            admin.incrementalAlterConfigs(Map.of(resource(question), changes)).all().get();
        }
        return nothing();
    }

    /** {…, total} to {}. */
    static JsonNode addPartitions(JsonNode question) throws ExecutionException, InterruptedException {
        NewPartitions wanted = NewPartitions.increaseTo(question.get("total").intValue());
        try (Admin admin = admin(question)) {
            admin.createPartitions(Map.of(name(question), wanted)).all().get();
        }
        return nothing();
    }

    static JsonNode delete(JsonNode question) throws ExecutionException, InterruptedException {
        try (Admin admin = admin(question)) {
            admin.deleteTopics(List.of(name(question))).all().get();
        }
        return nothing();
    }

    /** {…, partition, before} to {}. */
    static JsonNode deleteRecords(JsonNode question) throws ExecutionException, InterruptedException {
        TopicPartition place = new TopicPartition(name(question), question.get("partition").intValue());
        RecordsToDelete records = RecordsToDelete.beforeOffset(question.get("before").longValue());
        try (Admin admin = admin(question)) {
            admin.deleteRecords(Map.of(place, records)).all().get();
        }
        return nothing();
    }

    static Admin admin(JsonNode question) {
        return Admin.create(Clients.settings(question));
    }

    static String name(JsonNode question) {
        return question.get("topic").textValue();
    }

    private static ConfigResource resource(JsonNode question) {
        return new ConfigResource(ConfigResource.Type.TOPIC, name(question));
    }

    private static Map<String, String> configs(JsonNode question) {
        Map<String, String> configs = new HashMap<>();
        question.get("configs").properties().forEach(entry -> configs.put(entry.getKey(), entry.getValue().textValue()));
        return configs;
    }

    static ObjectNode nothing() {
        return Oracle.JSON.createObjectNode();
    }
}
