"""Parsers of replies: the protocol, strategies that find an answer in a text, and repairs that are reported.

All of it is pure, and takes time that is linear in the text.
"""
