import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * RocketMQ's own message store, driven by lines of JSON: one request a line on standard input, one
 * answer a line on standard output. An answer holds "error" where the request failed; a text form
 * of bytes is base64. Ends with its input; killing the process leaves a crashed store.
 */
public final class StoreDriver {
    private static final PrintStream ANSWERS = System.out;
    private static final InetSocketAddress BORN_HOST = new InetSocketAddress("10.0.0.3", 4321);
    private static final InetSocketAddress STORE_HOST = new InetSocketAddress("10.0.0.4", 10911);
    private static final long MONTH_MILLIS = 30L * 24 * 3600 * 1000;

    private DefaultMessageStore store;
    private BrokerController broker;
    private ClientDriver clients;
    private ClusterClient client;
    private final Messaging messaging = new Messaging();

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // Whatever a library prints must not look like an answer.
        StoreDriver driver = new StoreDriver();
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JSONObject answer = new JSONObject();
            try {
                driver.run(JSON.parseObject(line), answer);
            } catch (Throwable error) {
                error.printStackTrace();
                Throwable cause = error.getCause();
                answer.put("error", cause == null ? error.toString() : error + " by " + cause);
            }
            String json =
                JSON.toJSONString(answer, SerializerFeature.DisableCircularReferenceDetect);
            byte[] text = (json + "\n").getBytes(StandardCharsets.UTF_8);
            ANSWERS.write(text, 0, text.length);
            ANSWERS.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private void run(JSONObject request, JSONObject answer) throws Exception {
        if (request.getBooleanValue("dispatched")) {
            awaitDispatch();
        }
        switch (request.getString("do")) {
            case "open" -> open(request);
            case "startBroker" -> {
                broker = ConfigDriver.start(request);
                store = (DefaultMessageStore) broker.getMessageStore();
                clients = new ClientDriver(broker);
            }
            case "stopBroker" -> broker.shutdown();
            case "createTopic" -> clients.createTopic(request);
            case "startProducer" -> clients.startProducer(request);
            case "startConsumer" -> clients.startConsumer(request);
            case "send" -> clients.send(request);
            case "seen" -> clients.seen(answer);
            case "stopClients" -> clients.stop();
            case "connect" -> client = new ClusterClient(request);
            case "clientSend" -> answer.put("results", client.send(request));
            case "clientSendBatch" -> answer.put("results", List.of(client.sendBatch(request)));
            case "clientPull" -> answer.put("records", client.pull(request));
            case "clientCommit" -> client.commit(request);
            case "clientCommitted" -> answer.put("offset", client.committed(request));
            case "clientOffsetByTime" -> answer.put("offset", client.offsetByTime(request));
            case "clientAsked" -> answer.put("asked", client.asked());
            case "messaging" -> messaging.run(request, answer);
            case "admin" -> AdminTool.run(request, answer);
            case "put" -> answer.put("results", put(request));
            case "putBatch" -> answer.put("results", List.of(putBatch(request)));
            case "dump" -> answer.put("records", dump(request));
            case "query" -> answer.put("records", query(request));
            case "queryByTag" -> answer.put("records", queryByTag(request));
            case "range" -> range(request, answer);
            case "offsetByTime" -> answer.put("offset", store.getOffsetInQueueByTime(
                topic(request), queueId(request), request.getLongValue("timestamp")));
            case "inflate" -> answer.put("bodies", inflate(request));
            case "deflate" -> deflate(request, answer);
            case "stop" -> store.shutdown();
            case "readConfig" -> ConfigDriver.read(request.getString("folder"), answer);
            case "takeSettings" -> ConfigDriver.take(request, answer);
            case "writeConfig" -> ConfigDriver.write(request.getString("folder"), request);
            default -> throw new IllegalArgumentException("unknown request: " + request);
        }
    }

    /** Wait until every record in the log has its place in queue and index. */
    private void awaitDispatch() throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    private static String topic(JSONObject request) {
        return request.getString("topic");
    }

    private static int queueId(JSONObject request) {
        return request.getIntValue("queueId");
    }

    private void open(JSONObject request) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(request.getString("folder"));
        config.setStorePathCommitLog(request.getString("folder") + "/commitlog");
        config.setMappedFileSizeCommitLog(request.getIntValue("segmentBytes"));
        config.setMappedFileSizeConsumeQueue(request.getIntValue("queueFileBytes"));
        config.setFlushDiskType(FlushDiskType.valueOf(request.getString("flushDiskType")));
        config.setHaListenPort(0); // Any free one: several stores are open at a time.
        config.setSyncFlushTimeout(60_000); // A disk that is slow is no failure.
        Properties more = new Properties();
        JSONObject settings = request.getJSONObject("settings");
        settings.forEach((name, value) -> more.setProperty(name, value.toString()));
        MixAll.properties2Object(more, config);
        store = Version.newStore(config);
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        store.start();
    }

    private List<JSONObject> put(JSONObject request) {
        List<JSONObject> results = new ArrayList<>();
        for (Message message : messages(request)) {
            var inner = Version.newMessage(); // Its package is not the same in all versions.
            stamp(inner, request);
            inner.setBody(message.getBody());
            MessageAccessor.setProperties(inner, message.getProperties());
            inner.setSysFlag(request.getIntValue("sysFlag"));
            inner.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            results.add(resultOf(store.putMessage(inner)));
        }
        return results;
    }

    private JSONObject putBatch(JSONObject request) {
        MessageExtBatch batch = new MessageExtBatch();
        stamp(batch, request);
        batch.setBody(MessageDecoder.encodeMessages(messages(request)));
        return resultOf(store.putMessages(batch));
    }

    private static void stamp(MessageExt message, JSONObject request) {
        message.setTopic(topic(request));
        message.setQueueId(queueId(request));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(BORN_HOST);
        message.setStoreHost(STORE_HOST);
    }

    private static List<Message> messages(JSONObject request) {
        List<Message> messages = new ArrayList<>();
        for (Object entry : request.getJSONArray("messages")) {
            JSONObject one = (JSONObject) entry;
            byte[] body = Base64.getDecoder().decode(one.getString("body"));
            Message message = new Message(topic(request), body);
            Map<String, String> properties = new HashMap<>();
            one.getJSONObject("properties").forEach((key, value) -> properties.put(key, (String) value));
            MessageAccessor.setProperties(message, properties);
            messages.add(message);
        }
        return messages;
    }

    private static JSONObject resultOf(PutMessageResult result) {
        JSONObject answer = new JSONObject();
        answer.put("status", result.getPutMessageStatus().name());
        if (result.getAppendMessageResult() != null) {
            answer.put("queueOffset", result.getAppendMessageResult().getLogicsOffset());
            answer.put("physicalOffset", result.getAppendMessageResult().getWroteOffset());
        }
        return answer;
    }

    private JSONArray dump(JSONObject request) throws Exception {
        JSONArray records = new JSONArray();
        long offset = store.getMinOffsetInQueue(topic(request), queueId(request));
        long end = store.getMaxOffsetInQueue(topic(request), queueId(request));
        while (offset < end) {
            GetMessageResult result =
                store.getMessage("interop", topic(request), queueId(request), offset, 32, null);
            try {
                if (result.getStatus() != GetMessageStatus.FOUND) {
                    throw new IllegalStateException(result.getStatus() + " at offset " + offset);
                }
                result.getMessageBufferList().forEach(buffer -> records.add(recordOf(buffer)));
            } finally {
                result.release();
            }
            offset = result.getNextBeginOffset();
        }
        return records;
    }

    private JSONArray query(JSONObject request) {
        long end = System.currentTimeMillis() + MONTH_MILLIS;
        return found(store.queryMessage(topic(request), request.getString("key"), 64, 0, end));
    }

    private JSONArray queryByTag(JSONObject request) {
        long end = System.currentTimeMillis() + MONTH_MILLIS;
        return found(Version.queryByTag(store, topic(request), request.getString("tag"), end));
    }

    private static JSONArray found(QueryMessageResult result) {
        JSONArray records = new JSONArray();
        result.getMessageBufferList().forEach(buffer -> records.add(recordOf(buffer)));
        result.release();
        return records;
    }

    private void range(JSONObject request, JSONObject answer) throws Exception {
        answer.put("min", store.getMinOffsetInQueue(topic(request), queueId(request)));
        answer.put("max", store.getMaxOffsetInQueue(topic(request), queueId(request)));
        answer.put("logBegin", store.getMinPhyOffset());
        answer.put("logEnd", store.getMaxPhyOffset());
    }

    /** The bodies of a queue as a consumer gets them. */
    private JSONArray inflate(JSONObject request) {
        JSONArray bodies = new JSONArray();
        var result = store.getMessage("interop", topic(request), queueId(request), 0, 32, null);
        for (ByteBuffer buffer : result.getMessageBufferList()) {
            byte[] body = MessageDecoder.decode(buffer.duplicate()).getBody();
            bodies.add(Base64.getEncoder().encodeToString(body));
        }
        result.release();
        return bodies;
    }

    /** A body as a producer compresses it, and the bits of sysFlag that say how. */
    private static void deflate(JSONObject request, JSONObject answer) throws Exception {
        CompressionType type = CompressionType.of(request.getString("type"));
        byte[] body = Base64.getDecoder().decode(request.getString("body"));
        byte[] small = CompressorFactory.getCompressor(type).compress(body, 5);
        answer.put("body", Base64.getEncoder().encodeToString(small));
        answer.put("sysFlag", MessageSysFlag.COMPRESSED_FLAG | type.getCompressionFlag());
    }

    private static JSONObject recordOf(ByteBuffer buffer) {
        MessageExt message = MessageDecoder.decode(buffer.duplicate(), true, false, false);
        if (message == null) {
            throw new IllegalStateException("a record cannot be decoded");
        }
        JSONObject record = new JSONObject();
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        if (body.length > 0 && UtilAll.crc32(body) != message.getBodyCRC()) {
            throw new IllegalStateException("a record's CRC is wrong");
        }
        record.put("topic", message.getTopic());
        record.put("queueId", message.getQueueId());
        record.put("queueOffset", message.getQueueOffset());
        record.put("physicalOffset", message.getCommitLogOffset());
        record.put("body", Base64.getEncoder().encodeToString(body));
        Map<String, String> properties = message.getProperties();
        record.put("properties", properties == null ? Map.of() : properties);
        record.put("flag", message.getFlag());
        record.put("sysFlag", message.getSysFlag());
        record.put("bornTimestamp", message.getBornTimestamp());
        record.put("bornHost", hostOf(message.getBornHost()));
        record.put("storeTimestamp", message.getStoreTimestamp());
        record.put("storeHost", hostOf(message.getStoreHost()));
        record.put("offsetMessageId", message.getMsgId());
        return record;
    }

    private static String hostOf(Object host) {
        InetSocketAddress address = (InetSocketAddress) host;
        return address.getAddress().getHostAddress() + ":" + address.getPort();
    }
}
