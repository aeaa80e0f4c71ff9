"""The declaration of a flow: its states, the rows that they make, and the checks of the table.

All of it is data: this package neither waits nor changes state.
"""
