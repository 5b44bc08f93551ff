import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs command-line tools of Apache Kafka one after the other in one Java, each as if it were alone.
 *
 * <p>A line of input is a command: its class, its standard input and its arguments, each in base64, with blanks
 * between. A line of output is what it ended with, a blank, and all that it printed, in base64.
 */
public final class Tools {
    private static final class Ended extends Error {
        private Ended() {
            super(null, null, false, false);
        }
    }

    private static Integer status;
    private static final List<Runnable> atTheEnd = new ArrayList<>();

    public static void main(String[] unused) throws Exception {
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> atTheEnd.add(hook));
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ", -1);
            String[] arguments = new String[words.length - 2];
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = text(words[i + 2]);
            }
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            System.setOut(new PrintStream(said, true));
            System.setErr(System.out);
            System.setIn(new ByteArrayInputStream(Base64.getDecoder().decode(words[1])));
            int code = run(text(words[0]), arguments);
            System.out.flush();
            answers.println(code + " " + Base64.getEncoder().encodeToString(said.toByteArray()));
            answers.flush();
        }
    }

    private static int run(String name, String[] arguments) {
        status = null;
        atTheEnd.clear();
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                thrown.getCause().printStackTrace();
                end(1, false);
            }
        } catch (ReflectiveOperationException unknown) {
            unknown.printStackTrace();
            end(1, false);
        }
        for (Runnable hook : atTheEnd) {
            hook.run();
        }
        return status == null ? 0 : status;
    }

    private static void end(int code) {
        end(code, true);
    }

    /** The first word counts: a tool may catch what ends it, and say that it failed. */
    private static void end(int code, boolean thrown) {
        if (status == null) {
            status = code;
        }
        if (thrown) {
            throw new Ended();
        }
    }

    private static String text(String coded) {
        return new String(Base64.getDecoder().decode(coded), StandardCharsets.UTF_8);
    }
}
