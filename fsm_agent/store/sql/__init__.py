"""Stores in databases, with one set of tables and statements for SQLite and Postgres.

This package does not interpret the lines of journals.
"""
