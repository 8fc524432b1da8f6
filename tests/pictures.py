"""Pictures of pages for the documentation. `make screenshots` writes them; the tests alone write none."""

from __future__ import annotations

import base64
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, Page

MOST_BYTES = 65_000
_COLOURS = 256
_PIXELS = """
async (png) => {
  const image = new Image();
  image.src = "data:image/png;base64," + png;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const bytes = context.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768)
    text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return [image.width, image.height, btoa(text)];
}
"""


def take_picture(page: Page, name: str) -> None:
    """Write a picture of the window of a page, if pictures are asked for."""
    folder = os.environ.get("TIDEGATE_SCREENSHOTS")
    if not folder:
        return
    browser = page.context.browser
    assert browser is not None
    small = compressed(browser, page.screenshot())
    assert len(small) <= MOST_BYTES, f"{name} has {len(small)} bytes: show less of the page"
    Path(folder, f"{name}.png").write_bytes(small)


def compressed(browser: Browser, png: bytes) -> bytes:
    """Return a picture with the 256 colours that it has most: it looks the same, and is half as large."""
    # A page of its own: the Content-Security-Policy of the one in the picture binds its canvas, too.
    page = browser.new_page()
    width, height, text = page.evaluate(_PIXELS, base64.b64encode(png).decode())
    page.close()
    pixels = np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, 4)[:, :3]
    colours, places, counts = np.unique(pixels, axis=0, return_inverse=True, return_counts=True)
    palette = colours[np.argsort(-counts, kind="stable")[:_COLOURS]]
    distances = ((colours[:, None].astype(np.int32) - palette[None].astype(np.int32)) ** 2).sum(axis=2)
    indexes = distances.argmin(axis=1).astype(np.uint8)[places.reshape(-1)].reshape(height, width)
    rows = np.concatenate(
        [np.zeros((height, 1), np.uint8), indexes], axis=1
    ).tobytes()  # each without a filter
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # 8 bits of a palette
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, data)
        for kind, data in (
            *((b"IHDR", header), (b"PLTE", palette.tobytes())),
            *((b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
