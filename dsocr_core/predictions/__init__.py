"""What other programs have written for pages: texts found in folders, and which page each belongs to."""
