package penstock;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** Records as JSON: {offset, timestamp, key, value, headers: [[key, value], …]}, with bytes in base64. */
final class Rows {
    private Rows() {
    }

    static ObjectNode write(long offset, long timestamp, byte[] key, byte[] value, Iterable<Header> headers) {
        ObjectNode row = Oracle.JSON.createObjectNode();
        row.put("offset", offset);
        row.put("timestamp", timestamp);
        row.put("key", key);
        row.put("value", value);
        ArrayNode entries = row.putArray("headers");
        for (Header header : headers) {
            entries.addArray().add(header.key()).add(header.value());
        }
        return row;
    }

    /** Bytes or null. */
    static byte[] bytes(JsonNode field) throws IOException {
        return field == null || field.isNull() ? null : field.binaryValue();
    }

    static List<Header> headers(JsonNode row) throws IOException {
        List<Header> headers = new ArrayList<>();
        for (JsonNode entry : row.get("headers")) {
            headers.add(new RecordHeader(entry.get(0).textValue(), bytes(entry.get(1))));
        }
        return headers;
    }
}
