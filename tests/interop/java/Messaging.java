import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Producers and consumers of RocketMQ's own Java client, by name, for any broker. A consumer fails
 * a message with a body that begins with `fail` the first time that it comes, and `poison` always.
 * A body that begins with `hold` waits in the listener for the consumer's release.
 */
final class Messaging {
    private static final int TIMEOUT_MS = 30_000;

    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    /** The bodies of the transactions that the broker has checked, by producer. */
    private final Map<String, Queue<String>> asked = new HashMap<>();
    private final Map<String, Runnable> stops = new HashMap<>();
    private final Map<String, Queue<JSONObject>> consumed = new HashMap<>();
    private final Map<String, CountDownLatch> holds = new HashMap<>();
    private DefaultMQProducer replies;

    void run(JSONObject request, JSONObject answer) throws Exception {
        String name = request.getString("name");
        switch (request.getString("act")) {
            case "produce" -> produce(name, request);
            case "consume" -> consume(name, request);
            case "send" -> answer.put("results", send(producers.get(name), request));
            case "request" -> answer.put("reply", text(producers.get(name).request(
                message(request, request.getString("body")), TIMEOUT_MS)));
            case "asked" -> answer.put("asked", new JSONArray(List.copyOf(asked.get(name))));
            case "consumed" ->
                answer.put("consumed", new JSONArray(List.copyOf(consumed.get(name))));
            case "release" -> holds.get(name).countDown();
            case "recall" -> answer.put("msgId", Version.recall(
                producers.get(name), request.getString("topic"), request.getString("handle")));
            case "stop" -> stops.remove(name).run();
            default -> throw new IllegalArgumentException("unknown act: " + request);
        }
    }

    private void produce(String name, JSONObject request) throws Exception {
        String group = request.getString("group");
        DefaultMQProducer producer = "transaction".equals(request.getString("mode"))
            ? inTransactions(name, group)
            : new DefaultMQProducer(
                group, signing(request), request.getBooleanValue("trace"), null);
        producer.setNamespace(request.getString("namespace"));
        producer.setNamesrvAddr(request.getString("nameServers"));
        producer.setInstanceName(name);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setMqClientApiTimeout(TIMEOUT_MS);
        // Clients of 4.9 know no broker yet at their first heartbeat.
        producer.setHeartbeatBrokerInterval(1_000);
        producer.setPollNameServerInterval(500);
        producer.setMqClientApiTimeout(TIMEOUT_MS);
        producer.start();
        producers.put(name, producer);
        stops.put(name, producer::shutdown);
    }

    /** Signs the requests of a client that has keys. */
    private static RPCHook signing(JSONObject request) {
        return request.containsKey("accessKey")
            ? new AclClientRPCHook(new SessionCredentials(
                request.getString("accessKey"), request.getString("secretKey")))
            : null;
    }

    /** One that decides by bodies: commit, rollback, or undecided until the broker's check. */
    private TransactionMQProducer inTransactions(String name, String group) {
        Queue<String> checked = new ConcurrentLinkedQueue<>();
        asked.put(name, checked);
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message half, Object argument) {
                return decision(new String(half.getBody(), StandardCharsets.UTF_8));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt half) {
                checked.add(text(half));
                return decision(text(half).replaceFirst("^later ", ""));
            }
        });
        return producer;
    }

    private static LocalTransactionState decision(String body) {
        return switch (body.split(" ")[0]) {
            case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
            case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
            default -> LocalTransactionState.UNKNOW;
        };
    }

    private void consume(String name, JSONObject request) throws Exception {
        consumed.put(name, new ConcurrentLinkedQueue<>());
        holds.put(name, new CountDownLatch(1));
        if (request.getString("kind").equals("pull")) {
            pull(name, request);
            return;
        }
        System.setProperty("rocketmq.client.rebalance.waitInterval", "500");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            request.getString("group"), signing(request), new AllocateMessageQueueAveragely(),
            request.getBooleanValue("trace"), null);
        consumer.setNamespace(request.getString("namespace"));
        consumer.setNamesrvAddr(request.getString("nameServers"));
        consumer.setInstanceName(name);
        consumer.setPollNameServerInterval(500);
        consumer.setMqClientApiTimeout(TIMEOUT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // Its end waits for the offsets of messages that its listener has.
        consumer.setAwaitTerminationMillisWhenShutdown(TIMEOUT_MS);
        consumer.setMaxReconsumeTimes((int) request.getOrDefault("maxReconsumeTimes", -1));
        consumer.subscribe(request.getString("topic"), selector(request));
        switch (request.getString("kind")) {
            case "orderly" -> {
                consumer.setSuspendCurrentQueueTimeMillis(100);
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    boolean isDone = take(name, messages);
                    return isDone ? ConsumeOrderlyStatus.SUCCESS
                        : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                });
            }
            case "broadcasting" -> {
                Version.setBroadcasting(consumer);
                listen(name, consumer);
            }
            case "pop" -> {
                Version.setPop(consumer);
                listen(name, consumer);
            }
            case "replying" -> reply(request, name, consumer);
            default -> listen(name, consumer);
        }
        consumer.start();
        stops.put(name, consumer::shutdown);
    }

    private static MessageSelector selector(JSONObject request) {
        String expression = request.getString("expression");
        return request.getBooleanValue("isSql") ? MessageSelector.bySql(expression)
            : MessageSelector.byTag(expression);
    }

    private void listen(String name, DefaultMQPushConsumer consumer) {
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            return take(name, messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
    }

    /** Answer each request with its own body after "reply to ". */
    private void reply(JSONObject request, String name, DefaultMQPushConsumer consumer)
        throws Exception {
        produce(name + "-replies", request);
        replies = producers.get(name + "-replies");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                for (MessageExt message : messages) {
                    byte[] body = ("reply to " + text(message)).getBytes(StandardCharsets.UTF_8);
                    replies.send(MessageUtil.createReplyMessage(message, body), TIMEOUT_MS);
                }
            } catch (Exception error) {
                error.printStackTrace();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    private void pull(String name, JSONObject request) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("nameServers"));
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommitIntervalMillis(1_000);
        consumer.setMqClientApiTimeout(TIMEOUT_MS);
        consumer.subscribe(request.getString("topic"), selector(request));
        consumer.start();
        CountDownLatch ended = new CountDownLatch(1);
        Thread poller = new Thread(() -> {
            while (!Thread.currentThread().isInterrupted() && ended.getCount() > 0) {
                take(name, consumer.poll(200));
            }
        });
        poller.start();
        stops.put(name, () -> {
            ended.countDown();
            try {
                poller.join();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
            consumer.commitSync();
            consumer.shutdown();
        });
    }

    /** True where all messages are done. */
    private boolean take(String name, List<MessageExt> messages) {
        boolean isDone = true;
        for (MessageExt message : messages) {
            if (text(message).startsWith("hold")) {
                hold(name);
            }
            JSONObject one = new JSONObject();
            one.put("body", text(message));
            one.put("topic", message.getTopic());
            one.put("queueId", message.getQueueId());
            one.put("queueOffset", message.getQueueOffset());
            one.put("reconsumeTimes", message.getReconsumeTimes());
            one.put("msgId", message.getMsgId());
            one.put("ageMs", System.currentTimeMillis() - message.getBornTimestamp());
            boolean isFailed = text(message).startsWith("poison")
                || text(message).startsWith("fail")
                && consumed.get(name).stream().noneMatch(
                    known -> known.getString("body").equals(text(message)));
            consumed.get(name).add(one);
            isDone &= !isFailed;
        }
        return isDone;
    }

    private void hold(String name) {
        try {
            holds.get(name).await();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private JSONArray send(DefaultMQProducer producer, JSONObject request) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (Object body : request.getJSONArray("bodies")) {
            messages.add(message(request, (String) body));
        }
        JSONArray results = new JSONArray();
        switch (request.getString("mode")) {
            case "batch" -> results.add(result(producer.send(messages)));
            case "oneway" -> {
                for (Message message : messages) {
                    producer.sendOneway(message);
                }
            }
            case "ordered" -> {
                for (Message message : messages) {
                    results.add(result(producer.send(message,
                        (queues, sent, key) -> queues.get((int) key % queues.size()),
                        request.getIntValue("orderKey"))));
                }
            }
            case "async" -> sendAsync(producer, messages, results);
            default -> {
                for (Message message : messages) {
                    results.add(result(producer instanceof TransactionMQProducer
                        ? producer.sendMessageInTransaction(message, null)
                        : producer.send(message)));
                }
            }
        }
        return results;
    }

    private void sendAsync(
        DefaultMQProducer producer, List<Message> messages, JSONArray results) throws Exception {
        CountDownLatch left = new CountDownLatch(messages.size());
        Queue<JSONObject> found = new ConcurrentLinkedQueue<>();
        for (Message message : messages) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    found.add(result(sent));
                    left.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    error.printStackTrace();
                    left.countDown();
                }
            });
        }
        if (!left.await(TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException(left.getCount() + " sends are not answered");
        }
        results.addAll(found);
    }

    private static Message message(JSONObject request, String body) {
        Message message =
            new Message(request.getString("topic"), body.getBytes(StandardCharsets.UTF_8));
        if (request.containsKey("tags")) {
            message.setTags(request.getString("tags"));
        }
        if (request.containsKey("keys")) {
            message.setKeys(request.getString("keys"));
        }
        if (request.containsKey("delayLevel")) {
            message.setDelayTimeLevel(request.getIntValue("delayLevel"));
        }
        if (request.containsKey("delayMs")) {
            MessageAccessor.putProperty(
                message, "TIMER_DELAY_MS", request.getString("delayMs"));
        }
        return message;
    }

    private static JSONObject result(SendResult sent) {
        JSONObject one = new JSONObject();
        one.put("status", sent.getSendStatus().name());
        one.put("msgId", sent.getMsgId());
        one.put("offsetMsgId", sent.getOffsetMsgId());
        one.put("queueId", sent.getMessageQueue().getQueueId());
        one.put("queueOffset", sent.getQueueOffset());
        one.put("recallHandle", Version.recallHandle(sent));
        return one;
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
