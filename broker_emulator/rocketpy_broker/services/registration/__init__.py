"""Registration of the broker and its topics at name servers."""
