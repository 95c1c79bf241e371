"""DeepSeek-OCR inference core: our NVTX-marked backend, the vendor backend, and their parity."""

__version__ = "0.1.0"
