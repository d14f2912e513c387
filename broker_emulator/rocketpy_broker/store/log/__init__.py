"""The commit log: bytes in arrival order, their checksums and their flush."""
