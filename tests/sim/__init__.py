"""The deterministic simulator: the real cores with a fake network and clock. See README.md."""
