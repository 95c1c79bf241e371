"""What a page costs, by arithmetic alone: FLOPs, bytes and time bounds of every stage, from shapes."""
