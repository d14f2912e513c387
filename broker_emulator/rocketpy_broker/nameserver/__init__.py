"""A name server: brokers of clusters and routes of their topics.

Source: RocketMQ's namesrv module, docs/design/cluster.md section 3.
"""
