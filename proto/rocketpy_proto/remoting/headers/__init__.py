"""Headers of requests and answers, by code.

A request of some code has the ext fields of `EXCHANGES[code].request`. A successful answer has the
ext fields of `EXCHANGES[code].response`. The header of a code without fields is a NoFields. Source:
docs/design/remoting.md section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.remoting.fields import Header, HeaderForm
from rocketpy_proto.remoting.headers import (
    auth,
    clients,
    cluster,
    offsets,
    pop,
    pulls,
    sends,
    topics,
)


class NoFields(Header, frozen=True):
    """A header without fields."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The headers of a request and of its answer."""

    request: HeaderForm[Any]
    response: HeaderForm[Any]


def _exchange(request: type[Header] = NoFields, response: type[Header] = NoFields) -> Exchange:
    return Exchange(HeaderForm(request), HeaderForm(response))


_SEND_V2 = Exchange(
    HeaderForm(sends.SendMessageRequest, sends.SEND_V2_NAMES),
    HeaderForm(sends.SendMessageResponse),
)
_PULL = _exchange(pulls.PullMessageRequest, pulls.PullMessageResponse)

EXCHANGES: Mapping[Code, Exchange] = {
    Code.SEND_MESSAGE: _exchange(sends.SendMessageRequest, sends.SendMessageResponse),
    Code.SEND_MESSAGE_V2: _SEND_V2,
    Code.SEND_BATCH_MESSAGE: _SEND_V2,
    Code.SEND_REPLY_MESSAGE: _exchange(sends.SendMessageRequest, sends.SendMessageResponse),
    Code.SEND_REPLY_MESSAGE_V2: _SEND_V2,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT: _exchange(sends.PushReplyMessageRequest),
    Code.CONSUMER_SEND_MSG_BACK: _exchange(sends.ConsumerSendMsgBackRequest),
    Code.END_TRANSACTION: _exchange(sends.EndTransactionRequest),
    Code.CHECK_TRANSACTION_STATE: _exchange(sends.CheckTransactionStateRequest),
    Code.RECALL_MESSAGE: _exchange(sends.RecallMessageRequest, sends.RecallMessageResponse),
    Code.PULL_MESSAGE: _PULL,
    Code.LITE_PULL_MESSAGE: _PULL,
    Code.QUERY_MESSAGE: _exchange(pulls.QueryMessageRequest, pulls.QueryMessageResponse),
    Code.VIEW_MESSAGE_BY_ID: _exchange(pulls.ViewMessageRequest),
    Code.GET_MAX_OFFSET: _exchange(offsets.GetMaxOffsetRequest, offsets.OffsetResponse),
    Code.GET_MIN_OFFSET: _exchange(offsets.QueueRequest, offsets.OffsetResponse),
    Code.GET_EARLIEST_MSG_STORETIME: _exchange(
        offsets.QueueRequest, offsets.EarliestStoreTimeResponse
    ),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _exchange(offsets.SearchOffsetRequest, offsets.OffsetResponse),
    Code.QUERY_CONSUMER_OFFSET: _exchange(
        offsets.QueryConsumerOffsetRequest, offsets.OffsetResponse
    ),
    Code.UPDATE_CONSUMER_OFFSET: _exchange(offsets.UpdateConsumerOffsetRequest),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _exchange(offsets.ResetOffsetRequest),
    Code.HEART_BEAT: _exchange(response=clients.HeartbeatResponse),
    Code.UNREGISTER_CLIENT: _exchange(clients.UnregisterClientRequest),
    Code.CHECK_CLIENT_CONFIG: _exchange(),
    Code.LOCK_BATCH_MQ: _exchange(),
    Code.UNLOCK_BATCH_MQ: _exchange(),
    Code.GET_CONSUMER_LIST_BY_GROUP: _exchange(clients.ConsumerGroupRequest),
    Code.NOTIFY_CONSUMER_IDS_CHANGED: _exchange(clients.ConsumerGroupRequest),
    Code.GET_CONSUMER_CONNECTION_LIST: _exchange(clients.ConsumerGroupRequest),
    Code.GET_PRODUCER_CONNECTION_LIST: _exchange(clients.ProducerGroupRequest),
    Code.GET_CONSUMER_RUNNING_INFO: _exchange(clients.GetConsumerRunningInfoRequest),
    Code.CONSUME_MESSAGE_DIRECTLY: _exchange(clients.ConsumeMessageDirectlyRequest),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _exchange(clients.ConsumerStatusRequest),
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: _exchange(clients.ConsumerStatusRequest),
    Code.GET_CONSUME_STATS: _exchange(clients.ConsumeStatsRequest),
    Code.GET_BROKER_CONSUME_STATS: _exchange(clients.BrokerConsumeStatsRequest),
    Code.QUERY_CONSUME_TIME_SPAN: _exchange(clients.ConsumeTimeSpanRequest),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _exchange(),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _exchange(),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _exchange(clients.GroupRequest),
    Code.DELETE_SUBSCRIPTIONGROUP: _exchange(clients.DeleteGroupRequest),
    Code.QUERY_TOPICS_BY_CONSUMER: _exchange(clients.GroupRequest),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _exchange(clients.GroupTopicRequest),
    Code.GET_ALL_CONSUMER_OFFSET: _exchange(),
    Code.GET_ALL_DELAY_OFFSET: _exchange(),
    Code.GET_ROUTEINFO_BY_TOPIC: _exchange(topics.GetRouteInfoRequest),
    Code.GET_TOPIC_STATS_INFO: _exchange(topics.TopicRequest),
    Code.GET_TOPIC_CONFIG: _exchange(topics.TopicRequest),
    Code.GET_ALL_TOPIC_CONFIG: _exchange(),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _exchange(topics.TopicRequest),
    Code.QUERY_CONSUME_QUEUE: _exchange(topics.QueryConsumeQueueRequest),
    Code.UPDATE_AND_CREATE_TOPIC: _exchange(topics.CreateTopicRequest),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _exchange(),
    Code.DELETE_TOPIC_IN_BROKER: _exchange(topics.TopicRequest),
    Code.DELETE_TOPIC_IN_NAMESRV: _exchange(topics.DeleteTopicInNamesrvRequest),
    Code.REGISTER_TOPIC_IN_NAMESRV: _exchange(topics.RegisterTopicRequest),
    Code.GET_TOPICS_BY_CLUSTER: _exchange(topics.TopicsByClusterRequest),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _exchange(),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: _exchange(),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _exchange(),
    Code.GET_BROKER_CLUSTER_INFO: _exchange(),
    Code.GET_BROKER_RUNTIME_INFO: _exchange(),
    Code.GET_BROKER_HA_STATUS: _exchange(),
    Code.GET_REPLICATION_STATE: _exchange(),
    Code.GET_STAGED_FILES: _exchange(cluster.StagedFilesRequest, cluster.StagedFilesResponse),
    Code.READ_STAGED_FILE: _exchange(cluster.StagedFileRequest),
    Code.GET_PROGRESS_FILE: _exchange(cluster.ProgressFileRequest, cluster.ProgressFileResponse),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _exchange(),
    Code.CLEAN_UNUSED_TOPIC: _exchange(),
    Code.DELETE_EXPIRED_COMMITLOG: _exchange(),
    Code.VIEW_BROKER_STATS_DATA: _exchange(cluster.ViewBrokerStatsDataRequest),
    Code.GET_BROKER_CONFIG: _exchange(response=cluster.BrokerConfigResponse),
    Code.UPDATE_BROKER_CONFIG: _exchange(),
    Code.GET_NAMESRV_CONFIG: _exchange(),
    Code.UPDATE_NAMESRV_CONFIG: _exchange(),
    Code.REGISTER_BROKER: _exchange(cluster.RegisterBrokerRequest, cluster.RegisterBrokerResponse),
    Code.UNREGISTER_BROKER: _exchange(cluster.BrokerRequest),
    Code.QUERY_DATA_VERSION: _exchange(cluster.BrokerRequest, cluster.QueryDataVersionResponse),
    Code.BROKER_HEARTBEAT: _exchange(cluster.BrokerHeartbeatRequest),
    Code.GET_BROKER_MEMBER_GROUP: _exchange(cluster.BrokerMemberGroupRequest),
    Code.WIPE_WRITE_PERM_OF_BROKER: _exchange(
        cluster.BrokerNameRequest, cluster.WipeWritePermResponse
    ),
    Code.ADD_WRITE_PERM_OF_BROKER: _exchange(
        cluster.BrokerNameRequest, cluster.AddWritePermResponse
    ),
    Code.GET_KV_CONFIG: _exchange(cluster.KVConfigRequest, cluster.KVConfigResponse),
    Code.PUT_KV_CONFIG: _exchange(cluster.PutKVConfigRequest),
    Code.DELETE_KV_CONFIG: _exchange(cluster.KVConfigRequest),
    Code.GET_KVLIST_BY_NAMESPACE: _exchange(cluster.KVNamespaceRequest),
    Code.AUTH_CREATE_USER: _exchange(auth.UserRequest),
    Code.AUTH_UPDATE_USER: _exchange(auth.UserRequest),
    Code.AUTH_DELETE_USER: _exchange(auth.UserRequest),
    Code.AUTH_GET_USER: _exchange(auth.UserRequest),
    Code.AUTH_LIST_USER: _exchange(auth.ListUsersRequest),
    Code.AUTH_CREATE_ACL: _exchange(auth.AclRequest),
    Code.AUTH_UPDATE_ACL: _exchange(auth.AclRequest),
    Code.AUTH_DELETE_ACL: _exchange(auth.DeleteAclRequest),
    Code.AUTH_GET_ACL: _exchange(auth.AclRequest),
    Code.AUTH_LIST_ACL: _exchange(auth.ListAclsRequest),
    Code.POP_MESSAGE: _exchange(pop.PopMessageRequest, pop.PopMessageResponse),
    Code.PEEK_MESSAGE: _exchange(pop.PeekMessageRequest, pop.PopMessageResponse),
    Code.ACK_MESSAGE: _exchange(pop.AckMessageRequest),
    Code.BATCH_ACK_MESSAGE: _exchange(),
    Code.CHANGE_MESSAGE_INVISIBLETIME: _exchange(
        pop.ChangeInvisibleTimeRequest, pop.ChangeInvisibleTimeResponse
    ),
    Code.NOTIFICATION: _exchange(pop.NotificationRequest, pop.NotificationResponse),
    Code.POLLING_INFO: _exchange(pop.PollingInfoRequest, pop.PollingInfoResponse),
    Code.POP_ROLLBACK: _exchange(),
    Code.QUERY_ASSIGNMENT: _exchange(),
    Code.SET_MESSAGE_REQUEST_MODE: _exchange(),
}
