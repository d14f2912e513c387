"""Transport to a cluster of Apache RocketMQ: its remoting protocol over sockets."""
