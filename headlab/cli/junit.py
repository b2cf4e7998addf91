"""JUnit XML, which continuous integration shows as a list of tests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from xml.etree import ElementTree

NOT_XML = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
"""What XML 1.0 cannot hold, not even as a reference."""


@dataclass(frozen=True)
class JUnitCase:
    """One test of a suite.

    Attributes:
        name: Its name.
        group: What it belongs to, JUnit's `classname`.
        seconds: How long it took.
        outcome: "failure" for what was tested and is wrong, "error" for what could not be decided;
            None where it passed.
        kind: Of the outcome, in a word.
        message: What is said of it, with any outcome.
    """

    name: str
    group: str
    seconds: float
    outcome: Literal["failure", "error"] | None
    kind: str
    message: str


@dataclass(frozen=True)
class JUnitSuite:
    """Tests of one run.

    Attributes:
        name: Of the suite.
        cases: The tests.
        properties: What the run was made with.
    """

    name: str
    cases: Sequence[JUnitCase]
    properties: Mapping[str, str] = field(default_factory=dict)

    def xml(self) -> bytes:
        """The suite as a file's content."""
        counts = {
            "tests": str(len(self.cases)),
            "failures": str(sum(case.outcome == "failure" for case in self.cases)),
            "errors": str(sum(case.outcome == "error" for case in self.cases)),
            "time": f"{sum(case.seconds for case in self.cases):.3f}",
        }
        root = ElementTree.Element("testsuites", {"name": xml_text(self.name), **counts})
        suite = ElementTree.SubElement(root, "testsuite", {"name": xml_text(self.name), **counts})
        if self.properties:
            table = ElementTree.SubElement(suite, "properties")
            for name, value in self.properties.items():
                attributes = {"name": xml_text(name), "value": xml_text(value)}
                ElementTree.SubElement(table, "property", attributes)
        for case in self.cases:
            attributes = {
                "classname": xml_text(case.group),
                "name": xml_text(case.name),
                "time": f"{case.seconds:.3f}",
            }
            element = ElementTree.SubElement(suite, "testcase", attributes)
            text = xml_text(case.message)
            if case.outcome is None:
                ElementTree.SubElement(element, "system-out").text = text
            else:
                outcome = ElementTree.SubElement(
                    element, case.outcome, {"type": xml_text(case.kind), "message": text}
                )
                outcome.text = text
        ElementTree.indent(root, space=" ")
        content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
        return content + b"\n"


def xml_text(text: str) -> str:
    """A text with a question mark in place of each letter that XML cannot hold."""
    return NOT_XML.sub("?", text)
