"""Hands: shell, SSH, the host agent, the run folder, MLflow, the rehearsal host."""
