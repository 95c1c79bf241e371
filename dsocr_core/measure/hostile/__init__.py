"""Hostile input, made by seed and given to what reads it; see campaign.py."""
