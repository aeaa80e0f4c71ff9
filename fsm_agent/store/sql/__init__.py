"""Stores in databases: one set of tables and of statements, for SQLite and for Postgres.

This package does not know what a line means.
"""
