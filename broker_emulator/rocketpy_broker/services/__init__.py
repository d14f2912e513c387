"""What a broker does: topics, offsets, appends, pulls. Knows nothing of gRPC.

Configuration files are written here; messages are left to the store.
"""
