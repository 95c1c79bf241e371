"""Why two backends differ on a page: what both used, and the cause found by reproduction."""
