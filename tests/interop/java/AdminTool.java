import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * RocketMQ's own mqadmin, many commands in one process: `words` are the arguments of its main
 * method. The answer has what the command prints to standard output and standard error.
 */
final class AdminTool {
    private AdminTool() {
    }

    static void run(JSONObject request, JSONObject answer) throws Exception {
        System.setProperty(MixAll.ROCKETMQ_HOME_PROPERTY, System.getProperty("user.home"));
        // A command sets it from its option -n; the next one must not find it.
        System.clearProperty(MixAll.NAMESRV_ADDR_PROPERTY);
        forgetCommands();
        JSONArray words = request.getJSONArray("words");
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream errors = System.err;
        PrintStream both = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(both);
        System.setErr(both);
        try {
            MQAdminStartup.main(words.toArray(new String[0]));
        } finally {
            System.setOut(out);
            System.setErr(errors);
        }
        answer.put("printed", printed.toString(StandardCharsets.UTF_8));
    }

    /** Each run of the main method makes all commands; an earlier one may be used up. */
    private static void forgetCommands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (field.getType() == List.class) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }
}
