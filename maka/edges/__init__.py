"""The world, behind ports: providers, processes, time, logs. Nothing here knows an actor or the ledger."""
