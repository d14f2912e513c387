import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A producer and a pull consumer of RocketMQ's own Java client, for one topic of a whole cluster. A
 * message that has the property `first` goes in a transaction: that is what its branch returns, and
 * `later` is answered to the broker's questions (both are names of LocalTransactionState).
 */
final class ClusterClient implements TransactionListener {
    private static final int MESSAGES_MAX = 32;
    private static final int TIMEOUT_MS = 30_000;

    private final Queue<String> asked = new ConcurrentLinkedQueue<>();
    private final String topic;
    private final TransactionMQProducer producer;
    private final DefaultMQPullConsumer consumer;

    ClusterClient(JSONObject request) throws Exception {
        topic = request.getString("topic");
        String group = request.getString("group");
        producer = Version.newProducer(group, topic);
        producer.setNamesrvAddr(request.getString("nameServers"));
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setMqClientApiTimeout(TIMEOUT_MS);
        producer.setTransactionListener(this);
        producer.start();
        consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(request.getString("nameServers"));
        consumer.setMqClientApiTimeout(TIMEOUT_MS);
        consumer.start();
    }

    /** Send one by one to a queue number of each broker's, or in transactions. */
    JSONArray send(JSONObject request) throws Exception {
        JSONArray results = new JSONArray();
        for (Message message : messages(request)) {
            if (message.getUserProperty("first") != null) {
                results.add(resultOf(producer.sendMessageInTransaction(message, null)));
            } else {
                results.add(resultOf(producer.send(message, queue(request))));
            }
        }
        return results;
    }

    JSONObject sendBatch(JSONObject request) throws Exception {
        return resultOf(producer.send(messages(request), queue(request)));
    }

    /** Every message of a queue, as the client decodes it; bodies are base64. */
    JSONArray pull(JSONObject request) throws Exception {
        JSONArray found = new JSONArray();
        MessageQueue queue = queue(request);
        long offset = consumer.minOffset(queue);
        while (true) {
            PullResult result =
                consumer.pull(queue, request.getString("expression"), offset, MESSAGES_MAX);
            if (result.getPullStatus() == PullStatus.FOUND) {
                result.getMsgFoundList().forEach(message -> found.add(described(message)));
            }
            if (result.getPullStatus() == PullStatus.NO_NEW_MSG) {
                return found;
            }
            offset = result.getNextBeginOffset();
        }
    }

    void commit(JSONObject request) throws Exception {
        consumer.getOffsetStore().updateConsumeOffsetToBroker(
            queue(request), request.getLongValue("offset"), false);
    }

    long committed(JSONObject request) throws Exception {
        return consumer.fetchConsumeOffset(queue(request), true);
    }

    long offsetByTime(JSONObject request) throws Exception {
        return consumer.searchOffset(queue(request), request.getLongValue("timestamp"));
    }

    /** The bodies of the messages whose transactions the producer was asked after. */
    JSONArray asked() {
        return new JSONArray(List.copyOf(asked));
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return LocalTransactionState.valueOf(message.getUserProperty("first"));
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        asked.add(new String(message.getBody(), StandardCharsets.UTF_8));
        return LocalTransactionState.valueOf(message.getUserProperty("later"));
    }

    private MessageQueue queue(JSONObject request) {
        return new MessageQueue(topic, request.getString("broker"), request.getIntValue("queueId"));
    }

    private List<Message> messages(JSONObject request) {
        List<Message> messages = new ArrayList<>();
        for (Object entry : request.getJSONArray("messages")) {
            JSONObject one = (JSONObject) entry;
            byte[] body = Base64.getDecoder().decode(one.getString("body"));
            Message message = new Message(topic, body);
            if (one.containsKey("tags")) {
                message.setTags(one.getString("tags"));
            }
            if (one.containsKey("keys")) {
                message.setKeys(one.getJSONArray("keys").toJavaList(String.class));
            }
            if (one.containsKey("delayTimeLevel")) {
                message.setDelayTimeLevel(one.getIntValue("delayTimeLevel"));
            }
            if (one.containsKey("flag")) {
                message.setFlag(one.getIntValue("flag"));
            }
            one.getJSONObject("properties").forEach(
                (name, value) -> message.putUserProperty(name, (String) value));
            if (one.containsKey("systemProperties")) {
                one.getJSONObject("systemProperties").forEach(
                    (name, value) -> MessageAccessor.putProperty(message, name, (String) value));
            }
            messages.add(message);
        }
        return messages;
    }

    private static JSONObject resultOf(SendResult result) {
        JSONObject answer = new JSONObject();
        answer.put("status", result.getSendStatus().name());
        answer.put("msgId", result.getMsgId());
        answer.put("offsetMsgId", result.getOffsetMsgId());
        answer.put("queueOffset", result.getQueueOffset());
        return answer;
    }

    private static JSONObject described(MessageExt message) {
        JSONObject one = new JSONObject();
        one.put("properties", message.getProperties());
        one.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        one.put("tags", message.getTags());
        one.put("keys", message.getKeys());
        one.put("flag", message.getFlag());
        one.put("queueOffset", message.getQueueOffset());
        one.put("msgId", message.getMsgId());
        one.put("bornTimestamp", message.getBornTimestamp());
        return one;
    }
}
