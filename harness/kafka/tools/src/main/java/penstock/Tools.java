package penstock;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.OptionalInt;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's command-line tools, one after the other in one process, because a process of its own
 * costs each of them seconds.
 *
 * A question {"tool": class, "arguments": […], "input": base64} gets the answer {"code", "output": base64, "errors"}.
 * To a tool this looks as if it were alone: it has its own standard streams, its exit ends it, and then its shutdown
 * hooks run.
 */
public final class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Leaves the tool that exits. Some tools catch it, take it for a failure and exit again: the first exit counts. */
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1;
    }

    private final Deque<Runnable> hooks = new ArrayDeque<>();
    private OptionalInt exitCode = OptionalInt.empty();

    private Tools() {
        Exit.setExitProcedure(this::exit);
        Exit.setHaltProcedure(this::exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
    }

    private void exit(int code, String message) {
        if (exitCode.isEmpty()) {
            exitCode = OptionalInt.of(code);
        }
        throw new Exited();
    }

    public static void main(String[] arguments) throws Exception {
        InputStream questions = System.in;
        PrintStream answers = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(questions, StandardCharsets.UTF_8));
        Tools tools = new Tools();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            answers.println(JSON.writeValueAsString(tools.run(JSON.readTree(line))));
            answers.flush();
        }
    }

    private ObjectNode run(JsonNode question) throws IOException, ReflectiveOperationException {
        InputStream in = System.in;
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(question.get("input").binaryValue()));
        System.setOut(new PrintStream(output, false, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        int code;
        try {
            code = call(question.get("tool").textValue(), JSON.convertValue(question.get("arguments"), String[].class));
            System.out.flush();
        } finally {
            System.setIn(in);
            System.setOut(out);
            System.setErr(err);
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.put("code", code);
        answer.put("output", output.toByteArray());
        answer.put("errors", errors.toString(StandardCharsets.UTF_8));
        return answer;
    }

    private int call(String tool, String[] arguments) throws ReflectiveOperationException {
        exitCode = OptionalInt.empty();
        boolean hasFailed = false;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Exited)) {
                failure.getCause().printStackTrace();
                hasFailed = true;
            }
        }
        while (!hooks.isEmpty()) {
            hooks.poll().run();
        }
        return exitCode.orElse(hasFailed ? 1 : 0);
    }
}
