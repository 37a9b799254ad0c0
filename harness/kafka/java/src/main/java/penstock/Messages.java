package penstock;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** Messages of the protocol, the internal topics and the metadata log, through the converters generated from schemas. */
final class Messages {
    private static final List<String> SCHEMAS = List.of("common/message/", "common/metadata/");
    private static final List<String> PACKAGES = List.of(
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.");

    private static final Map<String, Messages> KNOWN = new HashMap<>();

    private final Class<?> data;
    private final Method fromJson;
    private final Method toJson;

    private Messages(String name) throws ReflectiveOperationException {
        data = find(name);
        Class<?> converter = Class.forName(data.getName() + "JsonConverter");
        fromJson = converter.getMethod("read", JsonNode.class, short.class);
        toJson = converter.getMethod("write", data, short.class, boolean.class);
    }

    /** Requests, responses and headers are generated with a suffix, everything else under the schema's own name. */
    private static Class<?> find(String name) throws ClassNotFoundException {
        for (String prefix : PACKAGES) {
            for (String suffix : List.of("Data", "")) {
                try {
                    return Class.forName(prefix + name + suffix);
                } catch (ClassNotFoundException absent) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static Messages named(JsonNode question) throws ReflectiveOperationException {
        String name = question.get("message").textValue();
        Messages known = KNOWN.get(name);
        if (known == null) {
            known = new Messages(name);
            KNOWN.put(name, known);
        }
        return known;
    }

    /** {} to {file name: text} of every schema on the class path. */
    static JsonNode schemas(JsonNode question) throws IOException {
        ObjectNode answer = Oracle.JSON.createObjectNode();
        for (String place : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!place.endsWith(".jar")) {
                continue;
            }
            try (JarFile jar = new JarFile(place)) {
                for (JarEntry entry : Collections.list(jar.entries())) {
                    String path = entry.getName();
                    if (path.endsWith(".json") && SCHEMAS.stream().anyMatch(path::startsWith)) {
                        try (InputStream text = jar.getInputStream(entry)) {
                            String name = path.substring(path.lastIndexOf('/') + 1);
                            answer.put(name, new String(text.readAllBytes(), StandardCharsets.UTF_8));
                        }
                    }
                }
            }
        }
        return answer;
    }

    /**
     * {message, version, json: […], with_unknown_tags: false} to {bytes: […]}; where one of them cannot be written, its
     * error takes its place.
     */
    static JsonNode encode(JsonNode question) throws ReflectiveOperationException {
        Messages message = named(question);
        short version = question.get("version").shortValue();
        boolean withUnknownTags = question.path("with_unknown_tags").asBoolean(false);
        ArrayNode written = Oracle.JSON.createArrayNode();
        for (JsonNode json : question.get("json")) {
            try {
                Message value = (Message) message.fromJson.invoke(null, json, version);
                if (withUnknownTags) {
                    addUnknownTags(value, json);
                }
                written.add(bytes(value, version));
            } catch (RuntimeException | ReflectiveOperationException failure) {
                written.add(Oracle.describe(failure));
            }
        }
        return Oracle.JSON.createObjectNode().set("bytes", written);
    }

    /**
     * {message, version, bytes: […]} to {json: […], bytes: […]}: what was read, and the same written again. The latter
     * is how the content of `records` comes back, of which their JSON tells only the size.
     */
    static JsonNode decode(JsonNode question) throws IOException, ReflectiveOperationException {
        Messages message = named(question);
        short version = question.get("version").shortValue();
        ArrayNode read = Oracle.JSON.createArrayNode();
        ArrayNode again = Oracle.JSON.createArrayNode();
        for (JsonNode bytes : question.get("bytes")) {
            try {
                ByteBuffer buffer = ByteBuffer.wrap(bytes.binaryValue());
                Message value = (Message) message.data.getConstructor().newInstance();
                value.read(new ByteBufferAccessor(buffer), version);
                if (buffer.hasRemaining()) {
                    throw new IllegalArgumentException(buffer.remaining() + " bytes are left over");
                }
                read.add((JsonNode) message.toJson.invoke(null, value, version, false));
                again.add(bytes(value, version));
            } catch (RuntimeException | ReflectiveOperationException failure) {
                read.add(Oracle.describe(failure));
                again.addNull();
            }
        }
        ObjectNode answer = Oracle.JSON.createObjectNode();
        answer.set("json", read);
        answer.set("bytes", again);
        return answer;
    }

    /** {message, version, json: […]} to {bytes: […]}: metadata records in the frame in which they lie in their log. */
    static JsonNode frame(JsonNode question) throws ReflectiveOperationException {
        Messages message = named(question);
        short version = question.get("version").shortValue();
        ArrayNode framed = Oracle.JSON.createArrayNode();
        for (JsonNode json : question.get("json")) {
            ApiMessage value = (ApiMessage) message.fromJson.invoke(null, json, version);
            ApiMessageAndVersion record = new ApiMessageAndVersion(value, version);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
            MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
            framed.add(buffer.array());
        }
        return Oracle.JSON.createObjectNode().set("bytes", framed);
    }

    /** Gives the message, and every struct that its JSON mentions, some tagged fields that no schema knows. */
    private static void addUnknownTags(Message message, JsonNode json) throws ReflectiveOperationException {
        message.unknownTaggedFields().add(new RawTaggedField(1000, new byte[0]));
        message.unknownTaggedFields().add(new RawTaggedField(1001, new byte[] {1, 2, 3}));
        message.unknownTaggedFields().add(new RawTaggedField(Integer.MAX_VALUE - 1, new byte[200]));
        for (Map.Entry<String, JsonNode> member : json.properties()) {
            if (!member.getValue().isContainerNode()) {
                continue;
            }
            Field field = message.getClass().getDeclaredField(member.getKey());
            field.setAccessible(true);
            Object held = field.get(message);
            if (held instanceof Message inner) {
                addUnknownTags(inner, member.getValue());
            } else if (held instanceof Collection<?> items) {
                Iterator<JsonNode> described = member.getValue().iterator();
                for (Object item : items) {
                    JsonNode description = described.next();
                    if (item instanceof Message inner) {
                        addUnknownTags(inner, description);
                    }
                }
            }
        }
    }

    private static byte[] bytes(Message message, short version) {
        return MessageUtil.byteBufferToArray(MessageUtil.toByteBufferAccessor(message, version).buffer());
    }
}
