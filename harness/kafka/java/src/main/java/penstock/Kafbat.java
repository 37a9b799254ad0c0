package penstock;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** The calls of Kafka's admin client that kafbat's UI makes, in an order in which each finds something. */
final class Kafbat {
    private static final String USER = "User:somebody";

    /** A call, and what is shown of its answer. */
    @FunctionalInterface
    private interface Call {
        Object get() throws ExecutionException, InterruptedException;
    }

    private final Admin admin;
    private final ObjectNode answers = Topics.nothing();

    private Kafbat(Admin admin) {
        this.admin = admin;
    }

    /** {settings, topic: one that is not there yet, group: one that has committed, and whose} to {call: answer or error}. */
    static JsonNode ask(JsonNode question) throws ExecutionException, InterruptedException {
        try (Admin admin = Topics.admin(question)) {
            Kafbat asking = new Kafbat(admin);
            asking.cluster();
            asking.topic(Topics.name(question));
            asking.groups(Groups.group(question));
            asking.security();
            asking.call("deleteTopics", () -> done(admin.deleteTopics(List.of(Topics.name(question))).all()));
            return asking.answers;
        }
    }

    private void call(String name, Call call) throws InterruptedException {
        try {
            answers.put(name, String.valueOf(call.get()));
        } catch (ExecutionException failure) {
            answers.put(name, failure.getCause().getClass().getSimpleName());
        }
    }

    private static String done(KafkaFuture<?> future) throws ExecutionException, InterruptedException {
        future.get();
        return "done";
    }

    private void cluster() throws ExecutionException, InterruptedException {
        call("describeCluster", () -> {
            var found = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            found.clusterId().get();
            found.controller().get();
            found.authorizedOperations().get();
            return found.nodes().get().size();
        });
        List<Integer> brokers = admin.describeCluster().nodes().get().stream().map(Node::id).toList();
        DescribeConfigsOptions documented = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(brokers.get(0)));
        call("describeConfigs of a broker", () -> admin.describeConfigs(List.of(broker), documented).all().get()
            .get(broker).entries().stream().allMatch(each -> each.documentation() != null));
        call("describeLogDirs", () -> admin.describeLogDirs(brokers).allDescriptions().get().size());
        call("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get().voters().size());
        call("describeFeatures", () ->
            admin.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("metadata.version"));
    }

    private void topic(String name) throws InterruptedException {
        TopicPartition place = new TopicPartition(name, 0);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
        call("createTopics", () -> done(admin.createTopics(
            List.of(new NewTopic(name, Optional.of(1), Optional.empty()))).all()));
        call("listTopics", () ->
            admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get().contains(name));
        call("createPartitions", () -> done(admin.createPartitions(Map.of(name, NewPartitions.increaseTo(2))).all()));
        call("describeTopics", () ->
            admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size());
        call("incrementalAlterConfigs", () -> done(admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", "123456789"), AlterConfigOp.OpType.SET)))).all()));
        call("describeConfigs of a topic", () ->
            admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value());
        for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp())) {
            call("listOffsets " + spec.getClass().getSimpleName(), () ->
                admin.listOffsets(Map.of(place, spec)).all().get().get(place).offset());
        }
        call("describeProducers", () ->
            admin.describeProducers(List.of(place)).all().get().get(place).activeProducers().size());
        call("deleteRecords", () -> done(admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(0))).all()));
        call("alterPartitionReassignments", () -> done(admin.alterPartitionReassignments(
            Map.of(place, Optional.of(new NewPartitionReassignment(List.of(1))))).all()));
        call("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get().size());
        call("alterReplicaLogDirs", () -> done(admin.alterReplicaLogDirs(
            Map.of(new TopicPartitionReplica(name, 0, 1), "/elsewhere")).all()));
    }

    private void groups(String group) throws ExecutionException, InterruptedException {
        call("listGroups", () -> admin.listGroups().all().get().stream()
            .anyMatch(each -> each.groupId().equals(group)));
        call("listGroups of consumers", () -> admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get()
            .stream().anyMatch(each -> each.groupId().equals(group)));
        call("describeConsumerGroups", () ->
            admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState());
        Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(
            Map.of(group, new ListConsumerGroupOffsetsSpec())).partitionsToOffsetAndMetadata(group).get();
        call("listConsumerGroupOffsets", offsets::size);
        TopicPartition place = offsets.keySet().iterator().next();
        call("alterConsumerGroupOffsets", () ->
            done(admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(0))).all()));
        call("deleteConsumerGroupOffsets", () ->
            done(admin.deleteConsumerGroupOffsets(group, Set.of(place)).all()));
        call("deleteConsumerGroups", () -> done(admin.deleteConsumerGroups(List.of(group)).all()));
    }

    private void security() throws InterruptedException {
        AclBinding binding = new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, "some", PatternType.LITERAL),
            new AccessControlEntry(USER, "*", AclOperation.READ, AclPermissionType.ALLOW));
        call("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get().size());
        call("createAcls", () -> done(admin.createAcls(List.of(binding)).all()));
        call("deleteAcls", () -> done(admin.deleteAcls(List.of(binding.toFilter())).all()));
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "somebody"));
        call("describeClientQuotas", () ->
            admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size());
        call("alterClientQuotas", () -> done(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
            entity, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e6))))).all()));
    }
}
