"""A week of nights in fast motion: four hosts, two workers, PostgreSQL, and what goes wrong."""
