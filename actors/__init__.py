"""The actors: who talks to whom, and the pure deciders beside them. They see ports, never adapters."""
