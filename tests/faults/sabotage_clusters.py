"""Known faults of the way to clusters of Apache RocketMQ, in the form of `sabotage`."""

from __future__ import annotations

from tests.faults.sabotage import CONNECTOR, Sabotage

IN_BROKERS = "tests/unit/connector/source/test_brokers.py::test_"
IN_OFFSETS = "tests/unit/connector/test_offsets.py::test_"
IN_FEWER = "tests/unit/connector/transport/remoting/test_fewer_queues.py::test_s5_"
IN_RECONCILE = "tests/unit/connector/source/test_reconcile.py::test_s5_"
IN_WRITING_ONCE = "tests/unit/connector/transport/remoting/test_writing_once.py::test_"
IN_WRITING = "tests/unit/connector/transport/remoting/test_send_pipeline.py::test_"

CLUSTERS = (
    Sabotage(
        "a broker that is away passes for one that has lost its queues",
        CONNECTOR + "source/brokers.py",
        "                if queue.broker_name and queue.broker_name not in present:\n",
        "                if queue.broker_name and queue.broker_name in ():\n",
        (
            IN_BROKERS + "queues_of_a_broker_that_is_away_wait_and_are_no_loss",
            IN_BROKERS + "a_topic_all_of_whose_brokers_are_away_waits",
        ),
    ),
    Sabotage(
        "a slave that is behind passes for a queue that was made again",
        CONNECTOR + "source/brokers.py",
        "                elif queue in there and there[queue].is_behind:\n",
        "                elif queue in there and queue.queue_id < 0:\n",
        (IN_BROKERS + "a_slave_that_is_behind_takes_nothing_back",),
    ),
    Sabotage(
        "a checkpoint forgets which broker a queue is of",
        CONNECTOR + "offsets.py",
        "            queue = BrokerQueue(broker_name, queue_id(name))\n",
        "            queue = BrokerQueue(broker_name[:0], queue_id(name))\n",
        (IN_OFFSETS + "queues_of_a_cluster_are_told_apart_by_their_broker",),
    ),
    Sabotage(
        "a query forgets where it stood in queues that are hidden",
        CONNECTOR + "source/plan/reconcile.py",
        "        kept[queue] = left\n    if kept:\n",
        "        kept[queue] = left\n    if kept and topic in ():\n",
        (
            IN_FEWER + "queues_of_a_broker_that_are_hidden_for_a_while_are_read_once[True-True]",
            IN_RECONCILE + "queues_of_one_broker_of_a_cluster_may_be_hidden",
        ),
    ),
    Sabotage(
        "unread messages of hidden queues are passed over without a word",
        CONNECTOR + "source/plan/reconcile.py",
        "            if there.is_hidden and there.max_offset > left and topic in answer.read:\n",
        "            if there.is_hidden and there.max_offset > left and topic in ():\n",
        (IN_FEWER + "unread_messages_of_a_hidden_queue_of_a_broker_are_named",),
    ),
    Sabotage(
        "what a broker has stored, but not yet as safely as it should, is sent again",
        CONNECTOR + "transport/remoting/send/requests.py",
        "        ResponseCode.FLUSH_SLAVE_TIMEOUT,\n    }\n",
        "    }\n",
        (IN_WRITING + "what_is_stored_less_safely_is_told_once_and_not_sent_again[12]",),
    ),
    Sabotage(
        "a row counts as stored by its body, whatever its tags and properties",
        CONNECTOR + "transport/remoting/send/deduplication.py",
        "    np.add.at(sums, found.record[counted], crcs[counted] * _SPREAD)\n",
        "    np.add.at(sums, found.record[:0], crcs[:0] * _SPREAD)\n",
        (IN_WRITING_ONCE + "rows_of_the_same_body_that_change_places_are_not_lost",),
    ),
)
