"""In which order, how often, with what patience: the only room that knows Prefect."""
