"""A real RocketMQ cluster on loopback, for tests of our remoting codec.

    processes.py     one Java process: start, kill, freeze, output
    servers.py       name servers and brokers: their properties, ports and folders
    cluster.py       all servers together, and waits for their registration
    connection.py    a bare blocking socket with our codec
    messages.py      sends and pulls over such a socket
    java_clients.py  RocketMQ's own Java clients and its mqadmin
    access.py        brokers with access control, users, certificates

Nothing is fetched here; `make interop` has the jars. All servers listen on 127.0.0.1 alone.
RocketMQ binds only ports of replication, and all ports of 4.9, to every address.
"""
