"""Tests that the benchmarks run; what they measure is never tested."""
