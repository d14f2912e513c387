import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What the drivers need and each version of RocketMQ has elsewhere or otherwise: here 5.5.0. */
final class Version {
    private Version() {
    }

    static DefaultMessageStore newStore(MessageStoreConfig config) throws Exception {
        BrokerConfig broker = new BrokerConfig();
        return new DefaultMessageStore(
            config, new BrokerStatsManager(broker), null, broker, new ConcurrentHashMap<>());
    }

    /** One that finds its broker by the route of a topic. */
    static TransactionMQProducer newProducer(String group, String topic) {
        return new TransactionMQProducer(group, List.of(topic));
    }

    static MessageExtBrokerInner newMessage() {
        return new MessageExtBrokerInner();
    }

    /** Messages that its index finds by a tag. */
    static QueryMessageResult queryByTag(
            DefaultMessageStore store, String topic, String tag, long end) {
        return store.queryMessage(topic, tag, 64, 0, end, "T", null);
    }

    static void setBroadcasting(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    /** The broker assigns queues, and the consumer pops. */
    static void setPop(DefaultMQPushConsumer consumer) {
        consumer.setClientRebalance(false);
    }

    static String recallHandle(SendResult sent) {
        return sent.getRecallHandle();
    }

    static String recall(DefaultMQProducer producer, String topic, String handle)
        throws Exception {
        return producer.recallMessage(topic, handle);
    }
}
