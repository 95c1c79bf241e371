"""Predictions of other programs: texts found in folders, and which page each belongs to."""
