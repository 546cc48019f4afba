"""The finished search for the paper's protocol; see README.md."""
