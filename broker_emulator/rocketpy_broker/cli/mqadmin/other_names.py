"""`mqadmin` commands without a counterpart, and the texts of their errors."""

from __future__ import annotations

from collections.abc import Mapping

# The `rocketpy` command that comes closest.
NEAREST: Mapping[str, str] = {
    "brokerConsumeStats": "group list",
    "checkMsgSendRT": "stats",
    "cloneGroupOffset": "group reset",
    "clusterRT": "stats",
    "consumerStatus": "group describe",
    "deleteExpiredCommitLog": "clean",
    "exportConfigs": "broker status --json",
    "exportMetadata": "topic list --json",
    "exportMetrics": "topic stats --json",
    "getBrokerConfig": "broker status",
    "printMsgByQueue": "message tail",
    "producer": "client list",
    "queryCq": "message view --topic --queue --offset",
    "sendMsgStatus": "message send",
    "skipAccumulatedMessage": "group reset --to latest",
    "startMonitoring": "lag --watch",
    "topicClusterList": "broker status",
    "topicRoute": "topic describe",
    "updateBrokerConfig": "broker start",
    "updateOrderConf": "topic update --order",
    "updateSubGroupList": "group update",
    "updateTopicList": "topic update",
    "updateTopicPerm": "topic update --perm",
}
_ABOUT = {
    "name servers and controllers": (
        "addWritePerm wipeWritePerm updateKvConfig deleteKvConfig getNamesrvConfig "
        "updateNamesrvConfig getControllerConfig updateControllerConfig getControllerMetaData "
        "electMaster cleanBrokerMetadata"
    ),
    "replicas": (
        "haStatus getSyncStateSet getBrokerEpoch resetMasterFlushOffset addBroker removeBroker"
    ),
    "users and access lists": (
        "createUser updateUser deleteUser getUser listUser copyUser createAcl updateAcl deleteAcl "
        "getAcl listAcl copyAcl updateAclConfig deleteAclConfig getAclConfig "
        "clusterAclConfigVersion updateGlobalWhiteAddr"
    ),
    "static topics": "updateStaticTopic remappingStaticTopic",
    "traces": "queryMsgTraceById",
    "pops": "setConsumeMode",
    "sharing of queues, which clients do themselves": "allocateMQ",
    "compaction": "dumpCompactionLog",
    "RocksDB": "rocksDBConfigToJson exportMetadataInRocksDB checkRocksdbCqWriteProgress",
    "control of cold reads": (
        "getColdDataFlowCtrInfo updateColdDataFlowCtrGroupConfig removeColdDataFlowCtrGroupConfig "
        "setCommitLogReadAheadMode"
    ),
}
# The end of the error text for each name.
OTHERS: Mapping[str, str] = {
    name: f": this broker has no {subject}"
    for subject, names in _ABOUT.items()
    for name in names.split()
} | {name: f"; the nearest is `rocketpy {command}`" for name, command in NEAREST.items()}
