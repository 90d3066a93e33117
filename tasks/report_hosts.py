"""The report's section on several hosts: the ratios of each, their spread, and what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.comparison import setting_label
from tasks.decision import percent
from tasks.hosts_apart import FALSE_ALARMS
from tasks.markdown_text import inline
from tasks.metrics import BY_NAME
from tasks.report_tables import UNKNOWN, figure, table

if TYPE_CHECKING:
    from tasks.comparison import Comparison
    from tasks.host_values import HostRatio, HostsCompared


def hosts_section(comparison: Comparison) -> str:
    """Whether the hosts agree; empty for a single host."""
    found = comparison.between_hosts
    if found is None or not found.ratios:
        return ""
    parts = [f"**Hosts: {inline(found.sentence)}.**", _intro(comparison)]
    for probe in dict.fromkeys(ratio.probe for ratio in found.ratios):
        parts.append(f"Probe {probe}, {found.metric}, as a change.\n\n{_ratios(found, probe)}")
        parts.append(
            f"What they are measured against, in {BY_NAME[found.metric].unit}: a host that is slow "
            f"for all settings alike cancels out of the ratios, and shows here.\n\n"
            f"{_references(found, probe)}"
        )
    return "\n\n".join(parts)


def hosts_note(comparison: Comparison) -> str:
    """How many hosts the intervals rest on, for the account of the method; empty for one."""
    found = comparison.between_hosts
    if found is None:
        return ""
    return (
        f" The blocks ran on {len(found.hosts)} hosts, each compared within itself; the intervals "
        "hold for hosts of this class, not for these alone: the variance between hosts, pooled "
        "over settings and of each pair itself, is in them."
    )


def _intro(comparison: Comparison) -> str:
    limit = f"{FALSE_ALARMS:.0%}".replace("%", " %")
    return (
        "A host is named where a setting's ratio, averaged over the ladder, lies more than "
        f"{comparison.same_margin:.0%} from that on all the others and further than boots of one "
        f"host do; that happens in at most {limit} of sweeps on equal hosts. *Between hosts* is "
        "the standard deviation of a ratio from host to host without the noise of boots, *wider* "
        "by how much it and the number of hosts made the intervals wider."
    )


def _ratios(found: HostsCompared, probe: str) -> str:
    spreads = {one.concurrency: one for one in found.spreads if one.probe == probe}
    odd = {(one.host, setting_label(one.arm, one.levels)) for one in found.odd}
    rows = []
    for (setting, users), by_host in _rows(found, probe).items():
        spread = spreads[users]
        cells = [_cell(by_host.get(host), (host, setting) in odd) for host in found.hosts]
        apart = UNKNOWN if spread.sd is None else f"{spread.sd * 100:.1f} %"
        wider = UNKNOWN if spread.widens is None else f"x {spread.widens:.2f}"
        rows.append((setting, str(users), *cells, apart, wider))
    return table(("setting", "users", *found.hosts, "between hosts", "wider"), rows)


def _cell(one: HostRatio | None, odd: bool) -> str:
    if one is None:
        return UNKNOWN
    return f"**{percent(one.ratio)}**" if odd else percent(one.ratio)


def _references(found: HostsCompared, probe: str) -> str:
    """The references' own figures on each host, from whichever ratio has most blocks there."""
    most: dict[tuple[str, int], dict[str, HostRatio]] = {}
    for one in found.ratios:
        if one.probe != probe:
            continue
        reference = setting_label(one.reference_arm, one.reference_levels)
        by_host = most.setdefault((reference, one.concurrency), {})
        if one.host not in by_host or one.blocks > by_host[one.host].blocks:
            by_host[one.host] = one
    return table(
        ("setting", "users", *found.hosts),
        (
            (
                reference,
                str(users),
                *(
                    figure(by_host[host].reference_value) if host in by_host else UNKNOWN
                    for host in found.hosts
                ),
            )
            for (reference, users), by_host in sorted(most.items())
        ),
    )


def _rows(found: HostsCompared, probe: str) -> dict[tuple[str, int], dict[str, HostRatio]]:
    rows: dict[tuple[str, int], dict[str, HostRatio]] = {}
    for one in found.ratios:
        if one.probe == probe:
            key = (setting_label(one.arm, one.levels), one.concurrency)
            rows.setdefault(key, {})[one.host] = one
    return dict(sorted(rows.items()))
