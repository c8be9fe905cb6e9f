"""Benchmarks: figures with units, and ratios of two things measured in one run."""
