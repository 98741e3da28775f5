"""The documentation says only what the repository can do: links lead somewhere, commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from bench import __main__ as bench_cli
from bench import engines, models

from cuvil import cli

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(text: str) -> list[list[str]]:
    """The shell commands of a page: indented or fenced lines and inline code, split at && and ;."""
    found = re.findall(r"^    (\S.*)$", text, re.M) + re.findall(r"`([^`\n]+)`", text)
    parts = [part.strip() for line in found for part in re.split(r"&&|;", line.partition("  #")[0])]
    words = []
    for part in parts:
        try:
            words.append(shlex.split(part))
        except ValueError:
            continue  # not a command
    return [one for one in words if one]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page: Path) -> None:
    for words in commands(page.read_text(encoding="utf-8")):
        if words[0] == "cuvil" and len(words) > 1:
            cli.make_parser().parse_args(words[1:])
        elif words[:3] == ["python", "-m", "bench"]:
            options = bench_cli.make_parser().parse_args(words[3:])
            assert set(options.models) <= {*models.REGISTRY, "MODEL"}
            assert set(options.engines.split(",")) <= set(engines.REQUIRES)
        elif words[0] == "bash" or words[0].startswith("scripts/"):
            assert (ROOT / words[-1 if words[0] == "bash" else 0]).exists(), words


def test_readme_tests_are_what_ci_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "pip install . && cuvil demo" in readme
    assert "pip install '.[test]' && pytest" in readme
    assert ci.rstrip().splitlines()[-1] == "pytest"


def test_bench_lists_the_models_there_are() -> None:
    assert tuple(models.REGISTRY) == bench_cli.MODELS
