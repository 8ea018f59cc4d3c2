"""Recorded requests and data sets through engine and policies, offline, and what came of it.

Readers turn a source into cases; the runner asks the engine and the policies; everything behind it is pure: grading,
counting, leaving verifiers out, tables. Nothing here contacts an upstream.
"""
