import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads whole topics with RocketMQ's own Java pull client, as fast as it goes: a thread for each
 * queue, one pull after the other. Each line of standard input is a topic; the answer is a line
 * with the number of messages and of their bodies' bytes. The argument names the name servers.
 */
public final class PullClient {
    private static final PrintStream ANSWERS = System.out;
    private static final int MESSAGES_MAX = 32;

    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("pull-client");
    private final ExecutorService threads = Executors.newCachedThreadPool();

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // Whatever a library prints must not look like an answer.
        PullClient client = new PullClient();
        client.consumer.setNamesrvAddr(arguments[0]);
        client.consumer.start();
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String topic = input.readLine(); topic != null; topic = input.readLine()) {
            ANSWERS.println(client.read(topic));
        }
        System.exit(0);
    }

    private String read(String topic) throws Exception {
        List<Future<long[]>> queues = new ArrayList<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            queues.add(threads.submit(() -> readQueue(queue)));
        }
        long count = 0;
        long bytes = 0;
        for (Future<long[]> queue : queues) {
            count += queue.get()[0];
            bytes += queue.get()[1];
        }
        return count + " " + bytes;
    }

    private long[] readQueue(MessageQueue queue) throws Exception {
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        long count = 0;
        long bytes = 0;
        while (offset < end) {
            PullResult result = consumer.pull(queue, "*", offset, MESSAGES_MAX);
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
}
