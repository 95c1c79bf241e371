"""Every question that the pages and the command line ask the history.

A question's text never changes with what is asked; values travel beside it. What a page shows as "the SQL"
has the values written in, quoted, so that it runs as it stands in `history sql`.
"""

from dsocr_core.runs.queries import gaps, runs, times
from dsocr_core.runs.queries.query import Query

QUERIES: dict[str, Query] = {**runs.QUERIES, **times.QUERIES, **gaps.QUERIES}
