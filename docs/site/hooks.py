"""Hooks of mkdocs beyond mkdocs.yml: the files that are pages, and their addresses.

A page is named by its path from the top of the repository, so the links of the documents lead to
the same places in the site and beside the files. Addresses leave the folder `docs/` out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

TOP = Path(__file__).parents[2]
DOCUMENTS = ("*.md", "docs/**/*.md", "docker/*.md")
PICTURES = ("docs/**/*.png", "docs/**/*.svg", "docs/**/*.css")
# Files that documents link to; each becomes a page that shows it.
SHOWN = ("LICENSE", "notebooks/*.py", "docker/*.yml", "docker/grafana/dashboards/*.json")
LANGUAGES = {".py": "python", ".yml": "yaml", ".json": "json"}
# The reason that no test runs a block follows its language; see tests/support/documents.py.
_NOTE = re.compile(r"^(```\w+) .*$", re.MULTILINE)


class ShownFile(File):
    """A file that is no document, on a page of its own."""

    def is_documentation_page(self) -> bool:
        """Returns True: mkdocs renders it, and does not copy it."""
        return True


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expands navigation entries with `*` to the existing files."""
    config.nav = _expanded(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Returns pages and pictures by their paths from the top of the repository."""
    found = [file for file in files if file.src_dir != config.docs_dir]
    found += [_file(path, config) for path in _paths((*DOCUMENTS, *PICTURES))]
    found += [_shown(path, config) for path in _paths(SHOWN)]
    return Files(found)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Removes the notes for tests that follow the language of a block."""
    del page, config, files
    return _NOTE.sub(r"\1", markdown)


def _paths(patterns: tuple[str, ...]) -> list[Path]:
    return sorted({path for pattern in patterns for path in TOP.glob(pattern)})


def _expanded(nav: object) -> object:
    if isinstance(nav, list):
        return [each for entry in nav for each in _entries(entry)]
    if isinstance(nav, dict):
        return {title: _expanded(entry) for title, entry in nav.items()}
    return nav


def _entries(entry: object) -> list[object]:
    if isinstance(entry, str) and "*" in entry:
        return [path.relative_to(TOP).as_posix() for path in sorted(TOP.glob(entry))]
    return [_expanded(entry)]


def _file(path: Path, config: MkDocsConfig) -> File:
    name = path.relative_to(TOP).as_posix()
    file = File(name, str(TOP), config.site_dir, config.use_directory_urls)
    if file.is_documentation_page():
        file.dest_uri = file.dest_uri.removeprefix("docs/")
    return file


def _shown(path: Path, config: MkDocsConfig) -> File:
    name = path.relative_to(TOP).as_posix()
    # Four tildes, since a file may contain a fence of its own.
    fence = f"~~~~ {LANGUAGES.get(path.suffix, 'text')}"
    file = ShownFile(name, None, config.site_dir, config.use_directory_urls)
    file.dest_uri = f"files/{name}/index.html"
    file.inclusion = InclusionLevel.NOT_IN_NAV
    file.content_string = f"# {name}\n\n{fence}\n{path.read_text('utf-8')}\n~~~~\n"
    return file
