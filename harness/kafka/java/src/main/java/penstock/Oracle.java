package penstock;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;

/**
 * Answers questions about Kafka's own code: one JSON object per line in, one per line out, in order, until the input ends.
 *
 * A question names its "command"; an answer is the command's result, or {"error": class name, "message": text}. A new
 * command is a method from question to answer, registered below.
 */
public final class Oracle {
    static final ObjectMapper JSON = new ObjectMapper();

    /** What stands behind a command's name. */
    @FunctionalInterface
    interface Command {
        JsonNode answer(JsonNode question) throws Exception;
    }

    private final Map<String, Command> commands = new HashMap<>();
    private final Members members = new Members();

    private Oracle() {
        commands.put("schemas", Messages::schemas);
        commands.put("encode", Messages::encode);
        commands.put("decode", Messages::decode);
        commands.put("frame", Messages::frame);
        commands.put("apis", Protocol::apis);
        commands.put("errors", Protocol::errors);
        commands.put("read_batches", Batches::read);
        commands.put("build_batch", Batches::build);
        commands.put("build_marker", Batches::marker);
        commands.put("produce", Clients::produce);
        commands.put("transact", Clients::transact);
        commands.put("consume", Clients::consume);
        commands.put("consume_from", Clients::consumeFrom);
        commands.put("version", Topics::version);
        commands.put("create_topic", Topics::create);
        commands.put("describe_topic", Topics::describe);
        commands.put("alter_topic", Topics::alter);
        commands.put("add_partitions", Topics::addPartitions);
        commands.put("delete_topic", Topics::delete);
        commands.put("delete_records", Topics::deleteRecords);
        commands.put("describe_group", Groups::describe);
        commands.put("reset_group", Groups::reset);
        commands.put("delete_group_offsets", Groups::deleteOffsets);
        commands.put("delete_group", Groups::delete);
        commands.put("member_join", members::join);
        commands.put("member_poll", members::poll);
        commands.put("member_commit", members::commit);
        commands.put("member_commit_async", members::commitAsync);
        commands.put("member_seek", members::seek);
        commands.put("member_pause", members::pause);
        commands.put("member_resume", members::resume);
        commands.put("member_leave", members::leave);
        commands.put("ask_like_kafbat", Kafbat::ask);
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8), 1 << 20);
        Oracle oracle = new Oracle();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.write(JSON.writeValueAsString(oracle.answer(line)));
            out.write('\n');
            if (!in.ready()) {
                out.flush();
            }
        }
        out.flush();
    }

    private JsonNode answer(String line) {
        try {
            JsonNode question = JSON.readTree(line);
            Command command = commands.get(question.get("command").textValue());
            if (command == null) {
                throw new IllegalArgumentException("no such command: " + question.get("command"));
            }
            return command.answer(question);
        } catch (Exception | StackOverflowError | OutOfMemoryError failure) {
            return describe(failure);
        }
    }

    static ObjectNode describe(Throwable failure) {
        Throwable cause = failure;
        while ((cause instanceof InvocationTargetException || cause instanceof ExecutionException)
                && cause.getCause() != null) {
            cause = cause.getCause();
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.put("error", cause.getClass().getSimpleName());
        answer.put("message", String.valueOf(cause.getMessage()));
        return answer;
    }
}
