import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.Closeable;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Producers and consumers of RocketMQ's SDK for Java, by name. Requests and answers are lines of
 * JSON, as in `python_sdk.py`. An answer holds "error" where the request failed. Ends with its
 * input.
 */
public final class SdkDriver {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final PrintStream ANSWERS = System.out;
    // A busy machine takes longer than the SDK's 3 seconds.
    private static final Duration REQUEST_TIMEOUT = Duration.ofSeconds(30);
    private static final Duration AWAIT = Duration.ofSeconds(5);

    private final Map<String, Closeable> clients = new HashMap<>();
    private final Map<String, Queue<JSONObject>> seen = new ConcurrentHashMap<>();
    private final Map<String, Transaction> transactions = new HashMap<>();
    private final Map<String, MessageView> received = new HashMap<>();
    private final Map<String, Integer> attempts = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // Prints of the SDK must not be taken for answers.
        SdkDriver driver = new SdkDriver();
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JSONObject answer = new JSONObject();
            try {
                driver.run(JSON.parseObject(line), answer);
            } catch (Throwable error) {
                error.printStackTrace();
                Throwable cause = error;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                answer.put("error", cause == error ? "" + error : error + " by " + cause);
            }
            String json = JSON.toJSONString(
                answer,
                SerializerFeature.DisableCircularReferenceDetect,
                SerializerFeature.WriteMapNullValue);
            ANSWERS.write((json + "\n").getBytes(StandardCharsets.UTF_8));
            ANSWERS.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private void run(JSONObject request, JSONObject answer) throws Exception {
        String name = request.getString("name");
        switch (request.getString("do")) {
            case "producer" -> startProducer(name, request);
            case "send" -> answer.put("receipts", send(producer(name), request));
            case "transaction" -> answer.put("receipts", List.of(begin(producer(name), request)));
            case "end" -> end(request);
            case "recall" -> answer.put("messageId", producer(name)
                .recallMessage(request.getString("topic"), request.getString("handle"))
                .getMessageId().toString());
            case "simple" -> clients.put(name, PROVIDER.newSimpleConsumerBuilder()
                .setClientConfiguration(configuration(request))
                .setConsumerGroup(request.getString("group"))
                .setSubscriptionExpressions(subscription(request))
                .setAwaitDuration(AWAIT)
                .build());
            case "receive" -> answer.put("messages", receive(name, request));
            case "ack" -> simple(name).ack(received.get(request.getString("id")));
            case "change" -> simple(name).changeInvisibleDuration(
                received.get(request.getString("id")),
                Duration.ofSeconds(request.getLongValue("seconds")));
            case "push" -> startPushConsumer(name, request);
            case "seen" -> answer.put("messages", new JSONArray(List.copyOf(seen.get(name))));
            case "stop" -> clients.remove(name).close();
            default -> throw new IllegalArgumentException(request.getString("do"));
        }
    }

    private Producer producer(String name) {
        return (Producer) clients.get(name);
    }

    private SimpleConsumer simple(String name) {
        return (SimpleConsumer) clients.get(name);
    }

    private void startProducer(String name, JSONObject request) throws Exception {
        Queue<JSONObject> checked = new ConcurrentLinkedQueue<>();
        seen.put(name, checked);
        clients.put(name, PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration(request))
            .setTopics(request.getJSONArray("topics").toArray(new String[0]))
            .setTransactionChecker(message -> {
                checked.add(parts(message));
                return switch (text(message).split("-")[0]) {
                    case "commit" -> TransactionResolution.COMMIT;
                    case "roll" -> TransactionResolution.ROLLBACK;
                    default -> TransactionResolution.UNKNOWN;
                };
            })
            .build());
    }

    private void startPushConsumer(String name, JSONObject request) throws Exception {
        Queue<JSONObject> consumed = new ConcurrentLinkedQueue<>();
        seen.put(name, consumed);
        clients.put(name, PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration(request))
            .setConsumerGroup(request.getString("group"))
            .setSubscriptionExpressions(subscription(request))
            .setMessageListener(message -> {
                consumed.add(parts(message));
                return result(text(message));
            })
            .build());
    }

    /** All listeners together fail a body as often as it says: `fail-2-a`. */
    private ConsumeResult result(String body) {
        int wanted = body.startsWith("fail-") ? Integer.parseInt(body.split("-")[1]) : 0;
        return attempts.merge(body, 1, Integer::sum) <= wanted
            ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    }

    private List<JSONObject> send(Producer producer, JSONObject request) throws Exception {
        List<JSONObject> receipts = new ArrayList<>();
        List<CompletableFuture<SendReceipt>> pending = new ArrayList<>();
        boolean isAsync = "async".equals(request.getString("mode"));
        for (Object entry : request.getJSONArray("messages")) {
            Message message = message((JSONObject) entry);
            if (isAsync) {
                pending.add(producer.sendAsync(message));
            } else {
                receipts.add(receipt(producer.send(message)));
            }
        }
        for (CompletableFuture<SendReceipt> each : pending) {
            receipts.add(receipt(each.get()));
        }
        return receipts;
    }

    private JSONObject begin(Producer producer, JSONObject request) throws Exception {
        Transaction transaction = producer.beginTransaction();
        Message message = message(request.getJSONObject("message"));
        JSONObject receipt = receipt(producer.send(message, transaction));
        transactions.put(receipt.getString("messageId"), transaction);
        return receipt;
    }

    private void end(JSONObject request) throws Exception {
        Transaction transaction = transactions.get(request.getString("messageId"));
        if (request.getBooleanValue("commits")) {
            transaction.commit();
        } else {
            transaction.rollback();
        }
    }

    private List<JSONObject> receive(String name, JSONObject request) throws Exception {
        List<JSONObject> messages = new ArrayList<>();
        Duration invisible = Duration.ofSeconds(request.getLongValue("invisible"));
        for (MessageView each : simple(name).receive(request.getIntValue("count"), invisible)) {
            received.put(each.getMessageId().toString(), each);
            messages.add(parts(each));
        }
        return messages;
    }

    private static ClientConfiguration configuration(JSONObject request) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
            .setEndpoints(request.getString("endpoints"))
            .setNamespace(request.getString("namespace"))
            .setRequestTimeout(REQUEST_TIMEOUT)
            .enableSsl(request.getBooleanValue("tls"));
        String user = request.getString("accessKey");
        if (!user.isEmpty()) {
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(user, request.getString("secretKey")));
        }
        return builder.build();
    }

    private static Map<String, FilterExpression> subscription(JSONObject request) {
        FilterExpressionType type = request.getBooleanValue("sql")
            ? FilterExpressionType.SQL92 : FilterExpressionType.TAG;
        return Map.of(
            request.getString("topic"),
            new FilterExpression(request.getString("expression"), type));
    }

    private static Message message(JSONObject parts) {
        MessageBuilder builder = PROVIDER.newMessageBuilder()
            .setTopic(parts.getString("topic"))
            .setBody(parts.getString("body").getBytes(StandardCharsets.UTF_8));
        if (parts.containsKey("tag")) {
            builder.setTag(parts.getString("tag"));
        }
        if (parts.containsKey("keys")) {
            builder.setKeys(parts.getJSONArray("keys").toArray(new String[0]));
        }
        if (parts.containsKey("group")) {
            builder.setMessageGroup(parts.getString("group"));
        }
        if (parts.containsKey("deliverAt")) {
            builder.setDeliveryTimestamp(parts.getLongValue("deliverAt"));
        }
        if (parts.containsKey("properties")) {
            parts.getJSONObject("properties").forEach(
                (name, value) -> builder.addProperty(name, (String) value));
        }
        return builder.build();
    }

    private static JSONObject receipt(SendReceipt receipt) {
        JSONObject answer = new JSONObject();
        answer.put("messageId", receipt.getMessageId().toString());
        answer.put("recallHandle", receipt.getRecallHandle());
        return answer;
    }

    private static JSONObject parts(MessageView message) {
        JSONObject parts = new JSONObject();
        parts.put("id", message.getMessageId().toString());
        parts.put("body", text(message));
        parts.put("tag", message.getTag().orElse(null));
        parts.put("keys", new ArrayList<>(message.getKeys()));
        parts.put("group", message.getMessageGroup().orElse(null));
        parts.put("deliver_at", message.getDeliveryTimestamp().orElse(0L));
        parts.put("properties", message.getProperties());
        parts.put("attempt", message.getDeliveryAttempt());
        return parts;
    }

    private static String text(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody()).toString();
    }
}
