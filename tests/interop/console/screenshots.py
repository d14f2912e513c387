"""Pictures of the console for its document.

    python -m tests.interop.console.screenshots

writes them; `make screenshots` does the same. Only pages that the
console has get a picture.
"""

from __future__ import annotations

import io

from PIL import Image

from rocketpy_broker.server.http.console.pages.table import PAGES
from tests.interop.console.chromium import chromium
from tests.interop.console.sample import ADDRESSES, sample_broker
from tests.support.documents import TOP

FOLDER = TOP / "docs/console"
WIDTH, HEIGHT_MAX = 1000, 900
COLOURS = 64
# Pages by the names of their pictures.
PICTURES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/{topic}",
    "messages": "/topics/{topic}/messages",
    "message": "/topics/{topic}/queues/{queue_id}/messages/{offset}",
    "group": "/groups/{group}",
    "reset": "/groups/{group}/reset",
    "dead_letters": "/groups/{group}/dead-letters",
    "store": "/store",
}


def main() -> None:
    """Writes all pictures again, and one of the overview in the dark theme."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.png"):
        old.unlink()
    present = {page.path for page in PAGES}
    with sample_broker() as broker, chromium() as browser:
        root = broker.console_url.rstrip("/")
        for theme, pictures in {"light": PICTURES, "dark": {"overview_dark": "/"}}.items():
            browser.set_theme(theme)
            for name, path in pictures.items():
                if path not in present:
                    continue
                browser.set_width(WIDTH, 100)
                browser.open(root + ADDRESSES[path])
                height = int(browser.run("return document.documentElement.scrollHeight"))
                browser.set_width(WIDTH, min(height, HEIGHT_MAX))
                picture = Image.open(io.BytesIO(browser.screenshot())).convert("RGB")
                file = FOLDER / f"{name}.png"
                picture.quantize(COLOURS).save(file, optimize=True)


if __name__ == "__main__":
    main()
