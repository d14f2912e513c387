import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.util.List;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** RocketMQ's own managers of topics, groups and consumer offsets over a store's folder `config`. */
final class ConfigDriver {
    private static final String CLIENT = "interop";

    private ConfigDriver() {
    }

    /** The managers of a broker that is built but never started. */
    private static BrokerController broker(String folder) {
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(folder);
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName("broker-a");
        return new BrokerController(config, new NettyServerConfig(), new NettyClientConfig(), store);
    }

    /** A whole broker over a store of RocketMQ's default sizes; `conf` is its broker.conf. */
    static BrokerController start(JSONObject request) throws Exception {
        String folder = request.getString("folder");
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(folder);
        store.setStorePathCommitLog(folder + "/commitlog");
        store.setHaListenPort(0); // Any free one.
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName("broker-a");
        // A machine that is slow is no reason to refuse requests.
        store.setOsPageCacheBusyTimeOutMills(20_000);
        config.setBrokerFastFailureEnable(false);
        if (request.containsKey("conf")) {
            Properties conf = new Properties();
            conf.putAll(request.getJSONObject("conf"));
            MixAll.properties2Object(conf, store);
            MixAll.properties2Object(conf, config);
        }
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(request.getIntValue("port"));
        BrokerController broker =
            new BrokerController(config, server, new NettyClientConfig(), store);
        require(broker.initialize(), "the broker");
        broker.start();
        return broker;
    }

    static void read(String folder, JSONObject answer) {
        BrokerController broker = broker(folder);
        require(broker.getTopicConfigManager().load(), "topics.json");
        require(broker.getSubscriptionGroupManager().load(), "subscriptionGroup.json");
        require(broker.getConsumerOffsetManager().load(), "consumerOffset.json");
        // As it would save them: each version's library of JSON leaves out other fields.
        JSONObject topics = JSON.parseObject(broker.getTopicConfigManager().encode());
        answer.put("topics", topics.getJSONObject("topicConfigTable"));
        answer.put("groups", broker.getSubscriptionGroupManager().getSubscriptionGroupTable());
        JSONObject offsets = new JSONObject();
        broker.getConsumerOffsetManager().getOffsetTable().forEach((key, queues) -> {
            JSONObject queueOffsets = new JSONObject();
            queues.forEach((queueId, offset) -> queueOffsets.put(queueId.toString(), offset));
            offsets.put(key, queueOffsets);
        });
        answer.put("offsets", offsets);
    }

    static void write(String folder, JSONObject request) {
        BrokerController broker = broker(folder);
        for (Object topic : request.getJSONArray("topics")) {
            TopicConfig config = JSON.parseObject(topic.toString(), TopicConfig.class);
            broker.getTopicConfigManager().getTopicConfigTable().put(config.getTopicName(), config);
        }
        for (Object group : request.getJSONArray("groups")) {
            // It makes one that is not there.
            broker.getSubscriptionGroupManager().findSubscriptionGroupConfig((String) group);
        }
        for (Object commit : request.getJSONArray("commits")) {
            JSONObject one = (JSONObject) commit;
            broker.getConsumerOffsetManager().commitOffset(
                CLIENT, one.getString("group"), one.getString("topic"),
                one.getIntValue("queueId"), one.getLongValue("offset"));
        }
        broker.getTopicConfigManager().persist();
        broker.getSubscriptionGroupManager().persist();
        broker.getConsumerOffsetManager().persist();
    }

    /** Every setting that a broker's classes know, with the value that they take from `conf`. */
    static void take(JSONObject request, JSONObject answer) {
        Properties conf = new Properties();
        conf.putAll(request.getJSONObject("conf"));
        Properties taken = new Properties();
        for (Object settings : List.of(new BrokerConfig(), new MessageStoreConfig(),
                new NettyServerConfig(), new NettyClientConfig())) {
            MixAll.properties2Object(conf, settings);
            taken.putAll(MixAll.object2Properties(settings));
        }
        answer.put("settings", taken);
    }

    private static void require(boolean loaded, String name) {
        if (!loaded) {
            throw new IllegalStateException(name + " does not load");
        }
    }
}
