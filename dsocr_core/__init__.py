"""DeepSeek-OCR inference core: our NVTX-marked road, the vendor's road, and their parity."""

__version__ = "0.1.0"
