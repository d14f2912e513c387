"""A name server: the brokers of clusters and the routes of their topics.

Source: RocketMQ's namesrv module, docs/design/cluster.md section 3.
"""
