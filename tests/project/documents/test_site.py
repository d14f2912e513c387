"""The site of the documents: a strict build, every page, and nothing loaded from other hosts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest

import pyspark_rocketpy
import rocketpy_broker
from tests.support.documents import DOCUMENTS, TOP, blocks

# All tests of one build run in one process.
pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.docs]
COPIED = ("*.md", "LICENSE", "docs", "docker", "notebooks", "connector", "broker_emulator", "proto")
HOST = "http://site.test/"
# A page's canonical address and links to click are not loaded.
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("use", "href")}
LOADED_RELATIONS = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "manifest"}


@dataclass
class Html(HTMLParser):
    """A page's loaded files, links, anchors and number of titles."""

    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    titles: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.loads += [values[name] for kind, name in LOADED if kind == tag and name in values]
        if tag == "link" and LOADED_RELATIONS & set(values.get("rel", "").split()):
            self.loads.append(values["href"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.titles += tag == "h1"


def build(top: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Builds the site of the documents in `top`, as `make site` does."""
    command = [sys.executable, "-m", "mkdocs", "build", "-f", str(top / "docs/site/mkdocs.yml")]
    return subprocess.run(
        [*command, "-d", str(site)],
        capture_output=True,
        text=True,
        check=False,
        cwd=site.parent,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )


def address(document: Path) -> str:
    """Returns a document's address in the site; empty for the home page."""
    name = document.relative_to(TOP).as_posix().removeprefix("docs/").removesuffix(".md")
    return f"{name}/".removesuffix("README/")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the site."""
    folder = tmp_path_factory.mktemp("site") / "site"
    done = build(TOP, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Html]:
    """Returns every page by its address."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        page = Html()
        page.feed(path.read_text("utf-8"))
        found[path.relative_to(site).as_posix().removesuffix("index.html")] = page
    return found


def test_every_document_is_a_page_with_one_title(pages: dict[str, Html]) -> None:
    assert len(pages) > len(DOCUMENTS)
    assert {name: page.titles for name, page in pages.items() if page.titles != 1} == {}


def test_every_document_is_in_the_navigation(pages: dict[str, Html]) -> None:
    """Reads the page of error 404, which has only the navigation."""
    shown = {urljoin(HOST, urldefrag(link).url) for link in pages["404.html"].links}
    assert {HOST + address(path) for path in DOCUMENTS} - shown == set()


def test_no_page_loads_anything_from_another_host(site: Path, pages: dict[str, Html]) -> None:
    loads = {load for page in pages.values() for load in page.loads}
    assert len(loads) > 5
    assert [load for load in loads if urlsplit(load).netloc or urlsplit(load).scheme] == []
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert styles
    assert not [text for text in styles if "url(http" in text or "url(//" in text]


def test_no_page_has_a_figure_that_a_script_of_another_host_would_draw(site: Path) -> None:
    """Searches for the blocks for which the theme downloads mermaid and MathJax."""
    drawn = ('class="mermaid"', "language-mermaid", 'class="arithmatex"')
    texts = {path: path.read_text("utf-8") for path in site.rglob("*.html")}
    assert [path for path, text in texts.items() if any(word in text for word in drawn)] == []


def test_whatever_a_page_loads_or_leads_to_is_there(site: Path, pages: dict[str, Html]) -> None:
    missing = []
    for name, page in pages.items():
        for link in page.loads + page.links:
            target = urlsplit(urljoin(HOST + name, link))
            if target.netloc != urlsplit(HOST).netloc:
                continue
            path = unquote(target.path).removeprefix("/")
            there = pages.get(path)
            if there is None and not (site / path).is_file():
                missing.append(f"{name}: {link}")
            elif there is not None and target.fragment:
                anchor = unquote(target.fragment)
                if anchor not in there.anchors and anchor != "__top":
                    missing.append(f"{name}: {link}")
    assert missing == []


def test_the_search_finds_a_word_of_every_page(site: Path, pages: dict[str, Html]) -> None:
    index = json.loads((site / "search/search_index.json").read_text("utf-8"))
    found = {urldefrag(entry["location"]).url for entry in index["docs"] if entry["text"]}
    assert set(pages) - found == {"404.html"}


def test_every_block_is_shown_in_its_language_without_what_is_for_tests(site: Path) -> None:
    fences: dict[Path, list[str]] = {path: [] for path in DOCUMENTS}
    for block in blocks():
        fences[block.path].append(block.language)
    for path, languages in fences.items():
        html = (site / address(path) / "index.html").read_text("utf-8")
        if not path.stem.endswith("_api"):
            assert re.findall(r'<div class="language-(\w+) highlight">', html) == languages, path
        shown = re.sub(r"<code>.*?</code>", "", html, flags=re.DOTALL)
        assert "notest" not in shown, path
        assert "```" not in shown, path


def test_names_of_the_packages_are_in_the_reference(pages: dict[str, Html]) -> None:
    for page, module in (("connector", pyspark_rocketpy), ("broker", rocketpy_broker)):
        anchors = {anchor.rpartition(".")[2] for anchor in pages[f"reference/{page}_api/"].anchors}
        assert set(module.__all__) - anchors == set()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Copies all sources of the site; the test damages the copy."""
    top = tmp_path / "top"
    top.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for path in (found for pattern in COPIED for found in TOP.glob(pattern)):
        if path.is_dir():
            shutil.copytree(path, top / path.name, ignore=ignore)
        else:
            shutil.copy(path, top)
    return top


def test_each_fault_of_a_document_fails_the_build_by_name(copied: Path, tmp_path: Path) -> None:
    with (copied / "docs/source.md").open("a", encoding="utf-8") as page:
        page.write("\n[a](nowhere.md) [b](sink.md#nowhere) [c](/docs/sink.md) [d](../notebooks)\n")
        page.write("[e](#nowhere) ![f](nothing.png)\n")
    (copied / "docs/unlisted.md").write_text("# Unlisted\n", encoding="utf-8")
    done = build(copied, tmp_path / "site")
    assert done.returncode != 0
    faults = ["'nowhere.md'", "'sink.md#nowhere'", "'/docs/sink.md'", "'../notebooks'"]
    faults += ["'#nowhere'", "'nothing.png'", "docs/unlisted.md"]
    assert [fault for fault in faults if fault not in done.stderr] == [], done.stderr


def test_a_name_of_the_reference_that_is_gone_fails_the_build(copied: Path, tmp_path: Path) -> None:
    with (copied / "docs/reference/broker_api.md").open("a", encoding="utf-8") as page:
        page.write("\n::: rocketpy_broker.client.topics.Nothing\n")
    done = build(copied, tmp_path / "site")
    assert done.returncode != 0
    assert "rocketpy_broker.client.topics.Nothing" in done.stderr


def test_a_page_in_the_folder_of_notebooks_is_listed_by_itself(
    copied: Path, tmp_path: Path
) -> None:
    folder = copied / "docs/notebooks"
    folder.mkdir(exist_ok=True)
    (folder / "seen.png").write_bytes((TOP / "docs/growth.png").read_bytes())
    text = "# Seen\n\n![a chart](seen.png) [the program](../../notebooks/flights.py)\n"
    (folder / "seen.md").write_text(text, encoding="utf-8")
    done = build(copied, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    page = Html()
    page.feed((tmp_path / "site/notebooks/seen/index.html").read_text("utf-8"))
    [picture] = [load for load in page.loads if load.endswith("seen.png")]
    assert (tmp_path / "site/notebooks/seen" / picture).resolve().is_file()
    assert "../../files/notebooks/flights.py/" in page.links
    index = Html()
    index.feed((tmp_path / "site/notebooks/index.html").read_text("utf-8"))
    assert "seen/" in index.links
