"""``make bench``: a table of measured figures beside their bars, and a last line of JSON."""

from __future__ import annotations

import json
from typing import NamedTuple

from benchmarks import deployed, deployments, fits, rounds
from benchmarks.cases import cora_is_here


class Bar(NamedTuple):
    """What a figure is and what it should reach; ``at_least`` tells the direction."""

    meaning: str
    bound: float
    at_least: bool


BARS = {
    "subcora_vs_oracle": Bar("subCora-sized round, times faster than the loop oracle", 1000, True),
    "subcora_vs_central": Bar("subCora-sized round, share of a centralised step's time", 0.6, False),
    "cora_vs_central": Bar("Cora-sized round, share of a centralised step's time", 1.0, False),
    "noise_cost": Bar("subCora-sized round with noise on ĥ and ∇ĥ, over one without", 5, False),
    "randomised_round": Bar("Cora-sized round on randomised records as configured, over a plain one", 1.5, False),
    "randomised_mlp_round": Bar("the same with the plain round's MLP and aggregator", 1.5, False),
    "cora_peak_mb": Bar("Cora-sized federation, MB above the data", 1000, False),
    "snc_vs_oracle": Bar("SNC round, times faster than the loop oracle", 100, True),
    "sc_vs_oracle": Bar("SC round, times faster than the loop oracle", 100, True),
    "growth_time": Bar("time per client, 100,000 against 10,000 clients", 1.5, False),
    "growth_memory": Bar("memory per client, 100,000 against 10,000 clients", 1.5, False),
    "growth_peak_gb": Bar("GB at the peak with 100,000 clients", 8, False),
    "deployed_jacobian": Bar("seconds a round of 8 sites with a subCora-sized client each, TLS, Jacobians", 2, False),
    "deployed_gram": Bar("the same under the Gram protocol", 0.5, False),
    "deployed_many": Bar("the same with 100 clients at each site, Gram", 2, False),
    "deployed_masked_jacobian": Bar("masked over plain round between these processes, Jacobian protocol", 2, False),
    "deployed_masked_gram": Bar("the same under the Gram protocol", 2, False),
    "fit_overhead": Bar("whole Lightning fit over the bare engine, subCora-sized", 1.5, False),
    "mask_pair_ms": Bar("ms for the key of the mask between two sites", 1, False),
    "mask_645k_ms": Bar("ms for one mask on 645k numbers", 13, False),
    "masked_jacobian": Bar("masked over plain round, Jacobian protocol, 8 sites in one process", 2, False),
    "masked_gram": Bar("the same under the Gram protocol", 2, False),
}


def main() -> None:
    """Measure everything and print it."""
    print(f"data: {'Cora' if cora_is_here() else 'random graphs of the same sizes (no Cora files found)'}")
    figures = rounds.measure() | fits.measure() | deployed.measure() | deployments.measure()
    print(f"\n{'figure':<26}{'measured':>12}{'bar':>12}  met")
    for name, value in figures.items():
        bar = BARS[name]
        met = value >= bar.bound if bar.at_least else value <= bar.bound
        sign = "≥" if bar.at_least else "≤"
        print(
            f"{name:<26}{value:>12.4g}{sign + format(bar.bound, 'g'):>12}  {'yes' if met else 'NO ':<4} {bar.meaning}"
        )
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
