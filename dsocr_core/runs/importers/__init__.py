"""Prior runs of other programs, taken into the history: nothing invented, nothing silently left out."""
