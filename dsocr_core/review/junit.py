"""The report of a review as JUnit XML, for CI."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from dsocr_core.reading.parity_records import VERDICT_WORDS
from dsocr_core.review.page import PageReview
from dsocr_core.review.review import Review
from dsocr_core.review.verdicts import DISAGREEMENT, Given, decision, outcome

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_WORDS = 100


def junit_report(review: Review) -> str:
    """JUnit XML: a test case a page, failed where it differs or a reviewer's verdict is "wrong".

    A page that cannot be compared is an error; one that only one run has is skipped. The parity verdict, with
    what differs, and the verdicts of reviewers are properties of the case.
    """
    given = review.verdicts.current()
    suite = Element("testsuite", name=xml_text(f"parity review {review.key}"))
    for page in sorted(review.pages, key=lambda page: page.name):
        _case(suite, review.key, page, given)
    suite.set("tests", str(len(suite)))
    for count, name in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(suite.findall(f"testcase/{name}"))))
    root = Element("testsuites")
    root.append(suite)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _case(suite: Element, key: str, page: PageReview, given: Given) -> None:
    case = SubElement(suite, "testcase", classname=xml_text(key), name=xml_text(page.name))
    properties = SubElement(case, "properties")

    def add(name: str, value: str) -> None:
        SubElement(properties, "property", name=xml_text(name), value=xml_text(value))

    add("parity", "; ".join((VERDICT_WORDS[page.verdict], *page.reasons)))
    if page.causes:
        add("cause", page.causes[0].sentence)
    for reviewer, row in sorted(given.get(page.name, {}).items()):
        value = "; ".join(part for part in (row.verdict, row.comment) if part)
        add(f"verdict of {reviewer}", value)
    if (decided := decision(page.name, given)) == DISAGREEMENT:
        add("reviewers", decided)
    counted = outcome(page, given)
    if counted == "only in one run":
        SubElement(case, "skipped", message=xml_text("; ".join(page.reasons)))
    elif counted != "passed":
        kind = "not comparable" if counted == "error" else "parity" if page.fails else "verdict"
        message = "; ".join(page.reasons) if page.fails else "a reviewer's verdict is wrong"
        name = "error" if counted == "error" else "failure"
        found = SubElement(case, name, type=kind, message=xml_text(message))
        words = [item.sentence for item in page.differences[:_MOST_WORDS]]
        found.text = xml_text("\n".join([*words, *(cause.sentence for cause in page.causes)]))


def xml_text(text: str) -> str:
    """Leave out the characters that XML does not have."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
