"""The commit log: bytes in the order of their arrival, their checksums and their flush."""
