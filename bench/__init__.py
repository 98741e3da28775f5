"""Side-by-side measurements of inference engines: ``python -m bench --help``."""
