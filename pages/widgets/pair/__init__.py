"""One page as A and B: viewer, words over the panes and tabs under it, for Compare and Review."""
