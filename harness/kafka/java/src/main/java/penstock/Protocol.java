package penstock;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;

/** The tables of the protocol: APIs and error codes. */
final class Protocol {
    private Protocol() {
    }

    /** {} to {apis: [{key, name, title, oldest, latest_stable, latest, listeners}]}. */
    static JsonNode apis(JsonNode question) {
        ArrayNode apis = Oracle.JSON.createArrayNode();
        for (ApiKeys api : ApiKeys.values()) {
            ObjectNode row = apis.addObject();
            row.put("key", api.id);
            row.put("name", api.name());
            row.put("title", api.name);
            row.put("oldest", api.messageType.lowestSupportedVersion());
            row.put("latest_stable", api.messageType.highestSupportedVersion(false));
            row.put("latest", api.messageType.highestSupportedVersion(true));
            ArrayNode listeners = row.putArray("listeners");
            for (ApiMessageType.ListenerType listener : api.messageType.listeners()) {
                listeners.add(listener.name());
            }
        }
        return Oracle.JSON.createObjectNode().set("apis", apis);
    }

    /** {} to {errors: [{code, name, is_retriable}]}. */
    static JsonNode errors(JsonNode question) {
        ArrayNode errors = Oracle.JSON.createArrayNode();
        for (Errors error : Errors.values()) {
            ObjectNode row = errors.addObject();
            row.put("code", error.code());
            row.put("name", error.name());
            row.put("is_retriable", error.exception() instanceof RetriableException);
        }
        return Oracle.JSON.createObjectNode().set("errors", errors);
    }
}
