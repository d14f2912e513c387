import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import io.netty.channel.ChannelHandlerContext;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyRequestProcessor;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * A producer and a consumer of RocketMQ's own Java client, for one broker, which stands in for its
 * name server. A message says in its properties what is done with it: `first` is what its branch of
 * the transaction returns, `later` what is answered to the broker's questions (both are names of
 * LocalTransactionState); `fail` is the delay level with which it is sent back, once.
 */
final class ClientDriver implements TransactionListener, MessageListenerConcurrently {
    private static final int READ_AND_WRITE = 6;
    // A busy machine takes longer than the client's 3 seconds.
    private static final int TIMEOUT_MS = 30_000;

    private final Queue<String> asked = new ConcurrentLinkedQueue<>();
    private final Queue<JSONObject> consumed = new ConcurrentLinkedQueue<>();
    private final BrokerController broker;
    private final String address;
    private TransactionMQProducer producer;
    private DefaultMQPushConsumer consumer;

    ClientDriver(BrokerController broker) {
        this.broker = broker;
        address = "127.0.0.1:" + broker.getNettyServerConfig().getListenPort();
        broker.getRemotingServer().registerProcessor(
            Routes.REQUEST_CODE, new Routes(broker, address),
            Executors.newSingleThreadExecutor());
    }

    void createTopic(JSONObject request) {
        int queues = request.getIntValue("queues");
        broker.getTopicConfigManager().updateTopicConfig(
            new TopicConfig(request.getString("topic"), queues, queues, READ_AND_WRITE));
    }

    void startProducer(JSONObject request) throws Exception {
        producer = Version.newProducer(request.getString("group"), request.getString("topic"));
        producer.setNamesrvAddr(address);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setMqClientApiTimeout(TIMEOUT_MS);
        producer.setTransactionListener(this);
        producer.start();
        // It is in its group from its first heartbeat on, which needs a route, and may be put off.
        producer.fetchPublishMessageQueues(request.getString("topic"));
        String group = producer.getProducerGroup();
        while (broker.getProducerManager().getAvailableChannel(group) == null) {
            MQClientManager.getInstance().getOrCreateMQClientInstance(producer)
                .sendHeartbeatToAllBrokerWithLock();
            Thread.sleep(10);
        }
    }

    void startConsumer(JSONObject request) throws Exception {
        consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(address);
        consumer.setMqClientApiTimeout(TIMEOUT_MS);
        // It finds the topic of its retries, which comes to be by its first heartbeat, at once.
        consumer.setPollNameServerInterval(500);
        System.setProperty("rocketmq.client.rebalance.waitInterval", "500");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // Its end waits for the offsets of messages that its listener has.
        consumer.setAwaitTerminationMillisWhenShutdown(TIMEOUT_MS);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener(this);
        consumer.start();
    }

    void stop() {
        if (consumer != null) {
            consumer.shutdown();
        }
        if (producer != null) {
            producer.shutdown();
        }
    }

    /** Send messages of a topic, in a transaction each where they say `first`. */
    void send(JSONObject request) throws Exception {
        for (Object entry : request.getJSONArray("messages")) {
            JSONObject one = (JSONObject) entry;
            byte[] body = one.getString("body").getBytes(StandardCharsets.UTF_8);
            Message message = new Message(request.getString("topic"), body);
            one.getJSONObject("properties").forEach(
                (key, value) -> message.putUserProperty(key, (String) value));
            if (message.getUserProperty("first") == null) {
                producer.send(message);
            } else {
                producer.sendMessageInTransaction(message, null);
            }
        }
    }

    /** Whom the broker asked after, and what was consumed, so far and in order. */
    void seen(JSONObject answer) {
        answer.put("asked", new JSONArray(List.copyOf(asked)));
        answer.put("consumed", new JSONArray(List.copyOf(consumed)));
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return LocalTransactionState.valueOf(message.getUserProperty("first"));
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        asked.add(text(message));
        return LocalTransactionState.valueOf(message.getUserProperty("later"));
    }

    @Override
    public ConsumeConcurrentlyStatus consumeMessage(
        List<MessageExt> messages, ConsumeConcurrentlyContext context) {
        MessageExt message = messages.get(0);
        JSONObject one = new JSONObject();
        one.put("topic", message.getTopic());
        one.put("body", text(message));
        one.put("reconsumeTimes", message.getReconsumeTimes());
        consumed.add(one);
        String level = message.getUserProperty("fail");
        if (level == null || message.getReconsumeTimes() > 0) {
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
        context.setDelayLevelWhenNextConsume(Integer.parseInt(level));
        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    /** The route of each topic that the broker has, as a name server tells it. */
    private record Routes(BrokerController broker, String address)
        implements NettyRequestProcessor {
        // As numbers and JSON, since their classes are not in the same package in all versions.
        static final int REQUEST_CODE = 105;
        private static final int SUCCESS = 0;
        private static final int TOPIC_NOT_EXIST = 17;

        @Override
        public RemotingCommand processRequest(
            ChannelHandlerContext context, RemotingCommand request) {
            String topic = request.getExtFields().get("topic");
            TopicConfig config = broker.getTopicConfigManager().selectTopicConfig(topic);
            RemotingCommand response = RemotingCommand.createResponseCommand(null);
            response.setOpaque(request.getOpaque());
            if (config == null) {
                response.setCode(TOPIC_NOT_EXIST);
                return response;
            }
            String name = broker.getBrokerConfig().getBrokerName();
            Map<String, Object> queues = Map.of(
                "brokerName", name, "perm", config.getPerm(),
                "readQueueNums", config.getReadQueueNums(),
                "writeQueueNums", config.getWriteQueueNums());
            Map<String, Object> place = Map.of(
                "cluster", broker.getBrokerConfig().getBrokerClusterName(), "brokerName", name,
                "brokerAddrs", Map.of("0", address));
            String route = JSON.toJSONString(
                Map.of("queueDatas", List.of(queues), "brokerDatas", List.of(place)));
            response.setCode(SUCCESS);
            response.setBody(route.getBytes(StandardCharsets.UTF_8));
            return response;
        }

        @Override
        public boolean rejectRequest() {
            return false;
        }
    }
}
