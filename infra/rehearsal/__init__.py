"""The pretend GPU host for laptops and CI; never imported by the rest, and no claim about any GPU."""
