import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own Java client as fast as it goes, for the benchmarks. The argument names the name
 * servers. A request is a line of JSON with `do`, its answer is a line of JSON. It holds "error"
 * where the request failed.
 */
public final class BenchClient {
    private static final int PULLED_MAX = 32;
    private static final int TIMEOUT_MS = 30_000;
    private static final long FIRST = 0;
    private static final int READY_SECONDS_MAX = 60;
    private static final int UNCONSUMED_MAX = 65_535; // No larger one is allowed.

    private final String nameServers;
    private final DefaultMQProducer producer = new DefaultMQProducer("bench-producer");
    private final DefaultMQPullConsumer puller = new DefaultMQPullConsumer("bench-puller");
    private final ExecutorService threads = Executors.newCachedThreadPool();

    private BenchClient(String nameServers) throws Exception {
        this.nameServers = nameServers;
        producer.setNamesrvAddr(nameServers);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        puller.setNamesrvAddr(nameServers);
        puller.start();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // Text that a library prints must not look like an answer.
        BenchClient client = new BenchClient(arguments[0]);
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JSONObject answer;
            try {
                answer = client.answer(JSON.parseObject(line));
            } catch (Exception error) {
                error.printStackTrace();
                answer = new JSONObject().fluentPut("error", error.toString());
            }
            answers.println(answer);
        }
        System.exit(0);
    }

    private JSONObject answer(JSONObject request) throws Exception {
        return switch (request.getString("do")) {
            case "send" -> send(request);
            case "pull" -> pull(request.getString("topic"));
            case "listen" -> listen(request);
            default -> throw new IllegalArgumentException("unknown request: " + request);
        };
    }

    /** Sends `count` messages of `bodyBytes`, `inFlight` at once, each in a batch of `batch`. */
    private JSONObject send(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        int batch = request.getIntValue("batch");
        int inFlight = request.getIntValue("inFlight");
        byte[] body = new byte[request.getIntValue("bodyBytes")];
        Semaphore free = new Semaphore(inFlight);
        AtomicReference<Object> failure = new AtomicReference<>();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    failure.set(result.getSendStatus());
                }
                free.release();
            }

            @Override
            public void onException(Throwable error) {
                failure.set(error);
                free.release();
            }
        };
        for (int sent = 0; sent < request.getIntValue("count"); sent += batch) {
            free.acquire();
            if (batch == 1) {
                producer.send(new Message(topic, body), callback);
            } else {
                List<Message> messages = new ArrayList<>(batch);
                for (int number = 0; number < batch; number++) {
                    messages.add(new Message(topic, body));
                }
                producer.send(messages, callback);
            }
        }
        free.acquire(inFlight);
        if (failure.get() != null) {
            throw new IllegalStateException(String.valueOf(failure.get()));
        }
        return new JSONObject();
    }

    /** Reads a whole topic with a thread for each queue, one pull after the other. */
    private JSONObject pull(String topic) throws Exception {
        List<Future<long[]>> queues = new ArrayList<>();
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues(topic)) {
            queues.add(threads.submit(() -> pullQueue(queue)));
        }
        long messages = 0;
        long bytes = 0;
        for (Future<long[]> queue : queues) {
            messages += queue.get()[0];
            bytes += queue.get()[1];
        }
        return new JSONObject().fluentPut("messages", messages).fluentPut("bodyBytes", bytes);
    }

    private long[] pullQueue(MessageQueue queue) throws Exception {
        long offset = puller.minOffset(queue);
        long end = puller.maxOffset(queue);
        long count = 0;
        long bytes = 0;
        while (offset < end) {
            PullResult result = puller.pull(queue, "*", offset, PULLED_MAX);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    count++;
                    bytes += message.getBody().length;
                }
            }
            offset = result.getNextBeginOffset();
        }
        return new long[] {count, bytes};
    }

    /**
     * Sends `count` single messages, one each `paceMicros`, and listens with a push consumer, which
     * also gets messages of before. The answer has the sorted times from a send to the listener's
     * call, in microseconds.
     */
    private JSONObject listen(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        long session = System.nanoTime();
        Queue<Long> tookNanos = new ConcurrentLinkedQueue<>();
        Semaphore ready = new Semaphore(0);
        Semaphore arrived = new Semaphore(0);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(nameServers);
        consumer.setPullThresholdForQueue(UNCONSUMED_MAX);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                ByteBuffer body = ByteBuffer.wrap(message.getBody());
                if (body.getLong() != session) {
                    continue;
                }
                long sent = body.getLong();
                if (sent == FIRST) {
                    ready.release();
                } else {
                    tookNanos.add(now - sent);
                    arrived.release();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            awaitQueues(topic, session, ready);
            int count = request.getIntValue("count");
            long begin = System.nanoTime();
            for (int number = 0; number < count; number++) {
                long due = begin + number * request.getLongValue("paceMicros") * 1000;
                while (System.nanoTime() < due) {
                    Thread.sleep(0, 200_000);
                }
                producer.send(stamped(topic, session, System.nanoTime()));
            }
            if (!arrived.tryAcquire(count, TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("only " + tookNanos.size() + " messages arrived");
            }
        } finally {
            consumer.shutdown();
        }
        long[] micros = tookNanos.stream().mapToLong(nanos -> nanos / 1000).toArray();
        Arrays.sort(micros);
        return new JSONObject().fluentPut("micros", micros);
    }

    /** Sends a message each second until the listener has got one. */
    private void awaitQueues(String topic, long session, Semaphore ready) throws Exception {
        for (int second = 0; second < READY_SECONDS_MAX; second++) {
            producer.send(stamped(topic, session, FIRST));
            if (ready.tryAcquire(1, TimeUnit.SECONDS)) {
                return;
            }
        }
        throw new IllegalStateException(
            "the listener got no message for " + READY_SECONDS_MAX + " s");
    }

    private static Message stamped(String topic, long session, long stamp) {
        return new Message(topic, ByteBuffer.allocate(100).putLong(session).putLong(stamp).array());
    }
}
