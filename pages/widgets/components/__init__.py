"""Components of our own in the browser: viewer, document, gallery."""
