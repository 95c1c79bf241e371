"""Which Chromium the tests start, and when a page in it has come to rest."""

from __future__ import annotations

import shutil

CHROMIUM_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first has no windows and toolbars: the same pages for a sixth less of CPU time."""
QUIET_MS = 500

WATCH = """
window.dsocrFirst = null;
window.dsocrChanged = null;
// Elements in a canvas are not on the screen: with them a table tells screen readers its cells, 0.2 s later.
const shown = change => !(change.type === 'childList' && change.target.tagName === 'CANVAS')
    && !change.target.parentElement?.closest('canvas');
new MutationObserver(changes => {
    const main = document.querySelector('[data-testid="stMain"]');
    if (!main || !changes.some(shown)) return;
    window.dsocrChanged = performance.now();
    const shows = element => !element.querySelector('style')
        && (element.textContent.trim() || element.querySelector('canvas, svg, img'));
    if (window.dsocrFirst === null
            && [...main.querySelectorAll('[data-testid="stElementContainer"]')].some(shows))
        window.dsocrFirst = window.dsocrChanged;
}).observe(document, { childList: true, subtree: true, attributes: true, characterData: true });
"""
"""To be run in a page before its own scripts: notes its first content and its last change."""
SETTLED = """quiet =>
    window.dsocrFirst !== null
    && document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]') !== null
    && document.querySelector('[data-testid="stSkeleton"]') === null
    && performance.now() - Math.max(window.dsocrChanged, window.dsocrAsked ?? 0) > quiet
"""


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)
