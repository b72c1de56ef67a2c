"""Tiny random-weight models and the outputs that a reference implementation gives for them."""
