"""What every codec, client and store has to do: suites of tests, each for one class of ours.

A subclass in `tests/providers`, `tests/clients` or `tests/store` says which class it tests, and how one is made.
"""
