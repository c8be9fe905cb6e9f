"""The actors: each owns one kind of live state, speaks only in messages, and waits for no other actor."""
