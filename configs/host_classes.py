"""Hosts of one class are equal and share a comparison; unlike ones each have their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.nodes import nodes_of
from configs.plan import blocks_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from configs.host import Host
    from configs.plan import Trial


def place_classes(trials: Sequence[Trial], hosts: Mapping[str, Host]) -> dict[str, str]:
    """Place -> its host class, which its leading node says."""
    places = dict.fromkeys(trial.host for trial in trials)
    return {place: hosts[nodes_of(place)[0]].host_class for place in places}


def unlike_hosts(trials: Sequence[Trial], hosts: Mapping[str, Host]) -> list[str]:
    """What to know of a plan over unlike hosts: how few blocks each comparison has."""
    classes = place_classes(trials, hosts)
    if len(set(classes.values())) < 2:
        return []
    shares = []
    for name in dict.fromkeys(classes.values()):
        places = [place for place, one in classes.items() if one == name]
        blocks = sum(of[0].host in places for of in blocks_of(trials).values())
        alone = ", which gives no interval" if blocks == 1 else ""
        many = f"{blocks} block{'s'[: blocks != 1]}{alone}"
        shares.append(f"{name} ({', '.join(places)}) in {many}")
    return [f"hosts: of {len(shares)} classes, each compared for itself: {'; '.join(shares)}"]
