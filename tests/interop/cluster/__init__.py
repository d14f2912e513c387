"""A real RocketMQ cluster on loopback, and what our remoting codec and its servers tell each other.

    processes.py     one Java process: start, kill, freeze, what it said
    servers.py       name servers and brokers: their properties, ports and folders
    cluster.py       all of them together, and waiting until they know of each other
    connection.py    a bare blocking socket that speaks by our codec
    messages.py      sends and pulls over such a socket
    java_clients.py  RocketMQ's own Java clients and its mqadmin
    access.py        brokers that ask who speaks, users, certificates

Nothing is fetched here; `make interop` has the jars. All listen on 127.0.0.1 alone, but for what
RocketMQ binds to every address: ports of replication, and all ports of 4.9.
"""
