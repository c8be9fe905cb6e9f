"""The durable log and what lies beside it. LMDB is named in this room alone."""
