"""Configuration files as RocketMQ 5.3 writes them with fastjson.

See docs/design/storage.md section 11.
"""

from __future__ import annotations

VERSION = (
    '"dataVersion":{\n\t\t"counter":3,\n\t\t"stateVersion":2,\n\t\t"timestamp":1600000000000\n\t}'
)

TOPICS = f"""{{
	{VERSION},
	"topicConfigTable":{{
		"TopicA":{{
			"attributes":{{
				"message.type":"FIFO",
				"newer.attribute":"x"
			}},
			"newerField":[1,{{"a":1}}],
			"order":true,
			"perm":6,
			"readQueueNums":8,
			"topicFilterType":"MULTI_TAG",
			"topicName":"TopicA",
			"topicSysFlag":2,
			"writeQueueNums":8
		}},
		"BenchmarkTest":{{
			"attributes":{{}},
			"order":false,
			"perm":6,
			"readQueueNums":7,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"BenchmarkTest",
			"topicSysFlag":0,
			"writeQueueNums":7
		}}
	}},
	"newerTable":{{1:2
	}}
}}"""

CONSUMER_OFFSETS = f"""{{
	{VERSION},
	"groupTopicMap":{{
		"g1":["TopicA","%RETRY%g1"]
	}},
	"offsetTable":{{
		"TopicA@g1":{{0:250,1:251,10:7,2:9223372036854775807
		}},
		"%RETRY%g1@g1":{{0:3
		}}
	}}
}}"""

DELAY_OFFSETS = f"""{{
	{VERSION},
	"offsetTable":{{1:5,3:7
	}}
}}"""

GROUPS = f"""{{
	{VERSION},
	"forbiddenTable":{{
		"g1":{{
			"TopicA":2
		}}
	}},
	"subscriptionGroupTable":{{
		"g1":{{
			"attributes":{{}},
			"brokerId":0,
			"consumeBroadcastEnable":true,
			"consumeEnable":true,
			"consumeFromMinEnable":true,
			"consumeMessageOrderly":false,
			"consumeTimeoutMinute":15,
			"groupName":"g1",
			"groupRetryPolicy":{{
				"customizedRetryPolicy":{{
					"next":[1000,2000]
				}},
				"type":"CUSTOMIZED"
			}},
			"groupSysFlag":0,
			"newerField":"kept",
			"notifyConsumerIdsChangedEnable":true,
			"retryMaxTimes":3,
			"retryQueueNums":1,
			"whichBrokerWhenConsumeSlowly":1
		}}
	}}
}}"""

# Tables that this broker has no use for yet.
FOREIGN = {
    "consumerFilter.json": '{\n\t"filterDataByTopic":{}\n}',
    "topicQueueMapping.json": '{\n\t"topicQueueMappingInfoMap":{}\n}',
    "messageRequestMode.json": '{\n\t"messageRequestModeMap":{}\n}',
    "lmqConsumerOffset.json": '{\n\t"offsetTable":{}\n}',
    "timermetrics": '{\n\t"timingCount":{}\n}',
}
