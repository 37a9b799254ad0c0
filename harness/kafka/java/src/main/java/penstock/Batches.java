package penstock;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Utils;

/** Record batches, through the classes with which brokers and clients read and build them. */
final class Batches {
    private static final int BUFFER_BYTES = 64 * 1024;

    private Batches() {
    }

    /** {bytes} to {valid_bytes, batches: […]}: every whole batch; records only of those whose checksum fits. */
    static JsonNode read(JsonNode question) throws IOException {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(question.get("bytes").binaryValue()));
        ObjectNode answer = Oracle.JSON.createObjectNode();
        answer.put("valid_bytes", records.validBytes());
        ArrayNode batches = answer.putArray("batches");
        for (MutableRecordBatch batch : records.batches()) {
            ObjectNode description = describe((DefaultRecordBatch) batch);
            if (batch.isValid()) {
                ArrayNode rows = description.putArray("records");
                for (Record record : batch) {
                    record.ensureValid();
                    rows.add(row(batch, record));
                }
            }
            batches.add(description);
        }
        return answer;
    }

    private static ObjectNode describe(DefaultRecordBatch batch) {
        ObjectNode node = Oracle.JSON.createObjectNode();
        node.put("is_valid", batch.isValid());
        node.put("size_bytes", batch.sizeInBytes());
        node.put("base_offset", batch.baseOffset());
        node.put("last_offset", batch.lastOffset());
        node.put("leader_epoch", batch.partitionLeaderEpoch());
        node.put("magic", batch.magic());
        node.put("crc", batch.checksum());
        node.put("codec", batch.compressionType().name());
        node.put("timestamp_type", batch.timestampType().name());
        node.put("is_transactional", batch.isTransactional());
        node.put("is_control", batch.isControlBatch());
        node.put("delete_horizon_ms", batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong() : null);
        node.put("base_timestamp", batch.baseTimestamp());
        node.put("max_timestamp", batch.maxTimestamp());
        node.put("producer_id", batch.producerId());
        node.put("producer_epoch", batch.producerEpoch());
        node.put("base_sequence", batch.baseSequence());
        node.put("last_sequence", batch.lastSequence());
        node.put("count", batch.countOrNull());
        return node;
    }

    private static ObjectNode row(RecordBatch batch, Record record) {
        byte[] key = Utils.toNullableArray(record.key());
        byte[] value = Utils.toNullableArray(record.value());
        ObjectNode row = Rows.write(record.offset(), record.timestamp(), key, value, List.of(record.headers()));
        row.put("sequence", record.sequence());
        if (batch.isControlBatch()) {
            ControlRecordType type = ControlRecordType.parse(record.key());
            row.put("control_type", type.name());
            if (type == ControlRecordType.COMMIT || type == ControlRecordType.ABORT) {
                row.put("coordinator_epoch", EndTransactionMarker.deserialize(record).coordinatorEpoch());
            }
        }
        return row;
    }

    /**
     * {codec, timestamp_type, base_offset, leader_epoch, append_time, producer_id, producer_epoch, base_sequence,
     * is_transactional, is_control, delete_horizon_ms, records: […]} to {bytes}. A record says its own offset.
     */
    static JsonNode build(JsonNode question) throws IOException {
        JsonNode horizon = question.get("delete_horizon_ms");
        try (MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
                new ByteBufferOutputStream(BUFFER_BYTES),
                RecordBatch.CURRENT_MAGIC_VALUE,
                Compression.of(question.get("codec").textValue().toLowerCase(java.util.Locale.ROOT)).build(),
                TimestampType.valueOf(question.get("timestamp_type").textValue()),
                question.get("base_offset").longValue(),
                question.get("append_time").longValue(),
                question.get("producer_id").longValue(),
                question.get("producer_epoch").shortValue(),
                question.get("base_sequence").intValue(),
                question.get("is_transactional").booleanValue(),
                question.get("is_control").booleanValue(),
                question.get("leader_epoch").intValue(),
                Integer.MAX_VALUE,
                horizon.isNull() ? RecordBatch.NO_TIMESTAMP : horizon.longValue())) {
            for (JsonNode row : question.get("records")) {
                builder.appendWithOffset(
                    row.get("offset").longValue(),
                    row.get("timestamp").longValue(),
                    Rows.bytes(row.get("key")),
                    Rows.bytes(row.get("value")),
                    Rows.headers(row).toArray(new Header[0]));
            }
            return bytes(builder.build());
        }
    }

    /** {type, coordinator_epoch, base_offset, timestamp, leader_epoch, producer_id, producer_epoch} to {bytes}. */
    static JsonNode marker(JsonNode question) {
        EndTransactionMarker marker = new EndTransactionMarker(
            ControlRecordType.valueOf(question.get("type").textValue()),
            question.get("coordinator_epoch").intValue());
        return bytes(MemoryRecords.withEndTransactionMarker(
            question.get("base_offset").longValue(),
            question.get("timestamp").longValue(),
            question.get("leader_epoch").intValue(),
            question.get("producer_id").longValue(),
            question.get("producer_epoch").shortValue(),
            marker));
    }

    private static ObjectNode bytes(MemoryRecords records) {
        return Oracle.JSON.createObjectNode().put("bytes", Utils.toArray(records.buffer()));
    }
}
