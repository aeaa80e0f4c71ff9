"""Costs: the prices of models, and what a reply costs.

Prices that the user gives come first; others are those of the package genai-prices, which is loaded only then.
"""
