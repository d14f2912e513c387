import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * RocketMQ's own SQL92 filter. A request is a line {"expression": text, "rows": [properties]}, its
 * answer a line with a letter for each row: T, F, N for NULL, E for an error; or R, if refused.
 */
final class FilterDriver {
    private FilterDriver() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(answer(JSON.parseObject(line)));
        }
    }

    private static String answer(JSONObject request) {
        Expression expression;
        try {
            expression = SelectorParser.parse(request.getString("expression"));
        } catch (MQFilterException refused) {
            return "R";
        }
        JSONArray rows = request.getJSONArray("rows");
        StringBuilder letters = new StringBuilder();
        for (int row = 0; row < rows.size(); row++) {
            letters.append(letter(expression, rows.getJSONObject(row)));
        }
        return letters.toString();
    }

    private static char letter(Expression expression, JSONObject properties) {
        EvaluationContext message = new EvaluationContext() {
            @Override
            public Object get(String name) {
                return properties.getString(name);
            }

            @Override
            public Map<String, Object> keyValues() {
                return properties;
            }
        };
        Object value;
        try {
            value = expression.evaluate(message);
        } catch (Exception failed) {
            return 'E';
        }
        return value == null ? 'N' : (Boolean) value ? 'T' : 'F';
    }
}
