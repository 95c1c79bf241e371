"""Drafts: probable texts of pages, which decoding verifies several tokens at a time. No torch."""
