"""Collects ``*.cuvil`` files: text in, cuvil-opt, text out.

A file is a graph with comments that say how to run it and what to expect:

    // RUN: --pass=cse                 arguments of cuvil-opt (several RUN lines: each is run, all checks hold for each)
    // CHECK: text                     appears after the previous match
    // CHECK-NEXT: text                appears on the next line
    // CHECK-NOT: text                 does not appear between the neighbouring matches
    // ERROR: text                     cuvil-opt fails with status 1, and its message contains the text

``{{...}}`` in a check is a regular expression; runs of blanks are one blank.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cuvil import cuvil_native

DIRECTIVE = re.compile(r"//\s*(RUN|CHECK|CHECK-NEXT|CHECK-NOT|ERROR):\s?(.*)$")


def pytest_collect_file(parent, file_path: Path):
    if file_path.suffix == ".cuvil":
        return TextTestFile.from_parent(parent, path=file_path)
    return None


class TextTestFile(pytest.File):
    def collect(self):
        matches = (DIRECTIVE.search(line) for line in self.path.read_text().splitlines())
        directives = [match.groups() for match in matches if match]
        runs = [text for kind, text in directives if kind == "RUN"]
        assert runs, f"{self.path}: no RUN line"
        for number, run in enumerate(runs):
            yield TextTest.from_parent(self, name=f"run{number}", run=run, directives=directives)


class TextTest(pytest.Item):
    def __init__(self, *, run, directives, **kwargs):
        super().__init__(**kwargs)
        self.run = run
        self.directives = directives

    def runtest(self):
        source = "\n".join(line for line in self.path.read_text().splitlines() if not DIRECTIVE.search(line))
        status, output, errors = cuvil_native.opt(self.run.split(), source)
        wanted_errors = [text for kind, text in self.directives if kind == "ERROR"]
        if wanted_errors:
            assert status == 1, f"status {status}\n{output}{errors}"
            for text in wanted_errors:
                assert text in errors, f"'{text}' is not in\n{errors}"
            return
        assert status == 0, errors
        check(output, self.directives)
        if "--emit" not in self.run and "--evaluate" not in self.run and "#" not in output:
            again = cuvil_native.opt([], output)
            assert again[:2] == (0, output), f"does not print as it was read: {again[2]}{again[1]}"

    def repr_failure(self, excinfo, style=None):
        """The message alone: the traceback says nothing about a text test."""
        return str(excinfo.value) if excinfo.errisinstance(AssertionError) else super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, 0, f"{self.path.name} {self.name}"


def pattern(text: str) -> re.Pattern[str]:
    parts = re.split(r"\{\{(.*?)\}\}", text.strip())
    return re.compile("".join(p if i % 2 else re.escape(re.sub(r"\s+", " ", p)) for i, p in enumerate(parts)))


def check(output: str, directives) -> None:
    lines = [re.sub(r"\s+", " ", line).strip() for line in output.splitlines()]
    at = 0
    forbidden = []
    for kind, text in directives:
        if kind == "CHECK-NOT":
            forbidden.append(text)
            continue
        if kind not in {"CHECK", "CHECK-NEXT"}:
            continue
        candidates = range(at, min(at + 1, len(lines)) if kind == "CHECK-NEXT" else len(lines))
        found = next((i for i in candidates if pattern(text).search(lines[i])), None)
        assert found is not None, f"{kind}: {text}\nnot found from line {at + 1} of\n{output}"
        reject(lines[at:found], forbidden, output)
        forbidden = []
        at = found + 1
    reject(lines[at:], forbidden, output)


def reject(lines, forbidden, output) -> None:
    for text in forbidden:
        for line in lines:
            assert not pattern(text).search(line), f"CHECK-NOT: {text}\nfound in\n{output}"
