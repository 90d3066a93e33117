"""The program that travels to the GPU host: standard library only, Python 3.9 or newer."""
