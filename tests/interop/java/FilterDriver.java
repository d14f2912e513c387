import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.filter.expression.BinaryExpression;
import org.apache.rocketmq.filter.expression.ConstantExpression;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.expression.UnaryExpression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * RocketMQ's own SQL92 filter. A request is a line {"expression": text, "rows": [properties]}, its
 * answer a line with a letter for each row: T, F, N for NULL, E for an error; or R, if refused.
 * RocketMQ's parser refuses 0.0. With "zero": true, ZERO_MARK in the text becomes 0.0.
 */
final class FilterDriver {
    private static final double ZERO_MARK = 9.87654321E-310;

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

    private static String answer(JSONObject request) throws Exception {
        Expression expression;
        try {
            expression = SelectorParser.parse(request.getString("expression"));
        } catch (MQFilterException refused) {
            return "R";
        }
        if (request.getBooleanValue("zero")) {
            replaceMarkByZero(expression);
        }
        JSONArray rows = request.getJSONArray("rows");
        StringBuilder letters = new StringBuilder();
        for (int row = 0; row < rows.size(); row++) {
            letters.append(letter(expression, rows.getJSONObject(row)));
        }
        return letters.toString();
    }

    private static void replaceMarkByZero(Object expression) throws Exception {
        if (expression instanceof BinaryExpression) {
            replaceMarkByZero(((BinaryExpression) expression).getLeft());
            replaceMarkByZero(((BinaryExpression) expression).getRight());
        } else if (expression instanceof UnaryExpression) {
            replaceMarkByZero(((UnaryExpression) expression).getRight());
        } else if (expression instanceof ConstantExpression) {
            Field value = ConstantExpression.class.getDeclaredField("value");
            value.setAccessible(true);
            if (Double.valueOf(ZERO_MARK).equals(value.get(expression))) {
                value.set(expression, 0.0d);
            }
        }
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
