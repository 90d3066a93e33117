"""Words: what is intended, as values; no effects but reading YAML."""
