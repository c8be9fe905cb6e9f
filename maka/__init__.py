"""Maka: an event-sourced actor system that runs AI agents and keeps a complete record of what they did."""
