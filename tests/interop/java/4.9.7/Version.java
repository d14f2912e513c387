import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What the drivers need and each version of RocketMQ has elsewhere or otherwise: here 4.9.7. */
final class Version {
    private Version() {
    }

    static DefaultMessageStore newStore(MessageStoreConfig config) throws Exception {
        BrokerConfig broker = new BrokerConfig();
        BrokerStatsManager statistics =
            new BrokerStatsManager(broker.getBrokerClusterName(), broker.isEnableDetailStat());
        return new DefaultMessageStore(config, statistics, null, broker);
    }

    /** One that finds its broker by the route of the topic of all new ones. */
    static TransactionMQProducer newProducer(String group, String topic) {
        return new TransactionMQProducer(group);
    }

    static MessageExtBrokerInner newMessage() {
        return new MessageExtBrokerInner();
    }

    /** Messages that its index finds by a tag, for which it has no query of its own. */
    static QueryMessageResult queryByTag(
            DefaultMessageStore store, String topic, String tag, long end) {
        return store.queryMessage(topic, "T#" + tag, 64, 0, end);
    }

    static void setBroadcasting(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    /** The broker assigns queues, and the consumer pops. */
    static void setPop(DefaultMQPushConsumer consumer) {
        throw new IllegalStateException("version 4 has no pop");
    }

    /** The client has no recall. */
    static String recallHandle(SendResult sent) {
        return null;
    }

    static String recall(DefaultMQProducer producer, String topic, String handle) {
        throw new UnsupportedOperationException();
    }
}
