"""Every form of a review's report."""

from __future__ import annotations

from dsocr_core.review.document import document, headline
from dsocr_core.review.html import WORST, html_report
from dsocr_core.review.junit import junit_report

__all__ = ["WORST", "document", "headline", "html_report", "junit_report"]
