"""Bodies of requests and answers, by code.

Records (pulls, pops, look-ups), batches and properties texts are not JSON and stay bytes.
registration.py reads compressed registrations. Source: docs/design/remoting.md section 4.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.configs import DataVersion, SubscriptionGroupConfig, TopicConfig
from rocketpy_proto.remoting.bodies import auth, clients, configs, pop, registration, routes, stats
from rocketpy_proto.struct_types import Body

REQUEST_BODIES: Mapping[Code, type[Body]] = {
    Code.HEART_BEAT: clients.HeartbeatData,
    Code.CHECK_CLIENT_CONFIG: clients.CheckClientRequestBody,
    Code.LOCK_BATCH_MQ: clients.LockBatchRequestBody,
    Code.UNLOCK_BATCH_MQ: clients.LockBatchRequestBody,
    Code.QUERY_ASSIGNMENT: pop.QueryAssignmentRequestBody,
    Code.SET_MESSAGE_REQUEST_MODE: pop.SetMessageRequestModeBody,
    Code.BATCH_ACK_MESSAGE: pop.BatchAckMessageBody,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: configs.CreateTopicListRequestBody,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: SubscriptionGroupConfig,
    Code.AUTH_CREATE_USER: auth.UserInfo,
    Code.AUTH_UPDATE_USER: auth.UserInfo,
    Code.AUTH_CREATE_ACL: auth.AclInfo,
    Code.AUTH_UPDATE_ACL: auth.AclInfo,
    Code.REGISTER_BROKER: registration.RegisterBrokerBody,
    Code.REGISTER_TOPIC_IN_NAMESRV: routes.TopicRouteData,
    Code.QUERY_DATA_VERSION: DataVersion,
}

RESPONSE_BODIES: Mapping[Code, type[Body]] = {
    Code.GET_ROUTEINFO_BY_TOPIC: routes.TopicRouteData,
    Code.GET_BROKER_CLUSTER_INFO: routes.ClusterInfo,
    Code.GET_BROKER_MEMBER_GROUP: routes.BrokerMemberGroupBody,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: routes.TopicList,
    Code.GET_TOPICS_BY_CLUSTER: routes.TopicList,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: routes.TopicList,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: routes.TopicList,
    Code.QUERY_TOPICS_BY_CONSUMER: routes.TopicList,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: routes.GroupList,
    Code.GET_BROKER_RUNTIME_INFO: routes.TextTable,
    Code.GET_KVLIST_BY_NAMESPACE: routes.TextTable,
    Code.GET_CONSUMER_LIST_BY_GROUP: clients.ConsumerListBody,
    Code.GET_CONSUMER_CONNECTION_LIST: clients.ConsumerConnection,
    Code.GET_PRODUCER_CONNECTION_LIST: clients.ProducerConnection,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: clients.ConsumerStatusBody,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: clients.ConsumerStatusBody,
    Code.CONSUME_MESSAGE_DIRECTLY: clients.ConsumeMessageDirectlyResult,
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: clients.QuerySubscriptionBody,
    Code.LOCK_BATCH_MQ: clients.LockBatchResponseBody,
    Code.QUERY_ASSIGNMENT: pop.QueryAssignmentResponseBody,
    Code.GET_TOPIC_STATS_INFO: stats.TopicStatsTable,
    Code.GET_CONSUME_STATS: stats.ConsumeStats,
    Code.GET_BROKER_CONSUME_STATS: stats.ConsumeStatsList,
    Code.QUERY_CONSUME_TIME_SPAN: stats.QueryConsumeTimeSpanBody,
    Code.QUERY_CONSUME_QUEUE: stats.QueryConsumeQueueResponseBody,
    Code.VIEW_BROKER_STATS_DATA: stats.BrokerStatsData,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: stats.ResetOffsetBody,
    Code.GET_ALL_CONSUMER_OFFSET: stats.ConsumerOffsets,
    Code.GET_ALL_DELAY_OFFSET: stats.DelayOffsets,
    Code.GET_BROKER_HA_STATUS: stats.HARuntimeInfo,
    Code.GET_REPLICATION_STATE: configs.ReplicationState,
    Code.GET_STAGED_FILES: configs.StagedFileChanges,
    Code.GET_TOPIC_CONFIG: TopicConfig,
    Code.GET_ALL_TOPIC_CONFIG: configs.TopicConfigTable,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupConfig,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: configs.SubscriptionGroupTable,
    Code.QUERY_DATA_VERSION: DataVersion,
    Code.AUTH_GET_USER: auth.UserInfo,
    Code.AUTH_GET_ACL: auth.AclInfo,
    Code.REGISTER_BROKER: routes.TextTable,
}
