package penstock;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * An idempotent producer that writes down what it asks and what comes of it, as lines of a history (docs/verify.md).
 *
 * Arguments: brokers, name, topic, partitions, records per second, seed. It goes on until its input ends, then waits for
 * what is under way. Its clock is the one that Python calls monotonic.
 */
public final class Load {
    private static final int OUTSTANDING_MAX = 1_000;
    private static final int[] PADDING = {0, 20, 400, 1500};

    private final BufferedWriter out =
            new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8), 1 << 16);
    private final Semaphore outstanding = new Semaphore(OUTSTANDING_MAX);
    private final String name;
    private final String topic;
    private long events = 0;

    private Load(String name, String topic) {
        this.name = name;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        Load load = new Load(arguments[1], arguments[2]);
        Thread input = new Thread(Load::untilInputEnds, "input");
        input.start();
        try (KafkaProducer<byte[], byte[]> producer = producer(arguments[0])) {
            int partitions = Integer.parseInt(arguments[3]);
            double rate = Double.parseDouble(arguments[4]);
            Random random = new Random(Long.parseLong(arguments[5]));
            producer.partitionsFor(load.topic);
            long began = System.nanoTime();
            for (long sent = 0; input.isAlive(); sent++) {
                long due = began + (long) (sent / rate * 1e9);
                while (input.isAlive() && System.nanoTime() < due) {
                    LockSupport.parkNanos(due - System.nanoTime());
                }
                if (!load.outstanding.tryAcquire()) {
                    load.outstanding.acquire();
                    began = System.nanoTime() - (long) (sent / rate * 1e9);
                }
                load.send(producer, random.nextInt(partitions), sent, PADDING[random.nextInt(PADDING.length)]);
            }
        }
        synchronized (load.out) {
            load.out.flush();
        }
    }

    private static void untilInputEnds() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException ended) {
            return;
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String brokers) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", brokers,
                "acks", "all",
                "enable.idempotence", true,
                "delivery.timeout.ms", 300_000,
                "max.block.ms", 300_000,
                "request.timeout.ms", 5_000,
                "linger.ms", 2,
                "reconnect.backoff.max.ms", 100);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void send(KafkaProducer<byte[], byte[]> producer, int partition, long number, int padding)
            throws IOException {
        String value = name + "." + number;
        byte[] body = (value + " " + ".".repeat(padding)).getBytes(StandardCharsets.UTF_8);
        long invoke = write("invoke", partition, null, value, -1, null);
        producer.send(new ProducerRecord<>(topic, partition, null, body), (metadata, error) ->
                delivered(partition, value, invoke, metadata, error));
    }

    private void delivered(int partition, String value, long invoke, RecordMetadata metadata, Exception error) {
        try {
            if (error == null) {
                write("ok", partition, metadata.offset(), value, invoke, null);
            } else {
                write("info", partition, null, value, invoke, error.toString());
            }
        } catch (IOException gone) {
            Runtime.getRuntime().halt(1);
        }
        outstanding.release();
    }

    /** One event; its number. */
    private long write(String type, int partition, Long offset, String value, long operation, String error)
            throws IOException {
        ObjectNode event = Oracle.JSON.createObjectNode();
        ArrayNode row = event.putArray("value").addArray().add(topic + "-" + partition);
        row.add(offset).add(value);
        event.put("p", name).put("type", type).put("f", "send");
        if (operation >= 0) {
            event.put("op", operation);
        }
        if (error != null) {
            event.put("err", error);
        }
        synchronized (out) {
            event.put("i", events).put("t", System.nanoTime());
            out.write(event.toString());
            out.write('\n');
            return events++;
        }
    }
}
