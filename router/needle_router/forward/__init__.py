"""The way to the upstream and back: raw bytes in both directions, and a connection that ends when the client does."""
