# SPDX-License-Identifier: Apache-2.0
"""Samples by name, and their median, p95 and p99 (nearest rank)."""
import math


class Samples:
    def __init__(self):
        self._values = {}
        self._units = {}

    def add(self, name, values, unit):
        self._values.setdefault(name, []).extend(float(v) for v in values)
        self._units[name] = unit

    def table(self):
        out = {}
        for name, values in self._values.items():
            v = sorted(values)
            out[name] = {
                "median": _round(rank(v, 0.5)),
                "p95": _round(rank(v, 0.95)),
                "p99": _round(rank(v, 0.99)),
                "n": len(v),
                "unit": self._units[name],
            }
        return out

    def show(self, out):
        out.write("%-26s %12s %12s %12s %7s  %s\n" % ("figure", "median", "p95", "p99", "n", "unit"))
        for name, row in self.table().items():
            out.write("%-26s %12.10g %12.10g %12.10g %7d  %s\n"
                      % (name, row["median"], row["p95"], row["p99"], row["n"], row["unit"]))


def rank(sorted_values, q):
    """The q-quantile by nearest rank."""
    return sorted_values[max(0, math.ceil(q * len(sorted_values)) - 1)]


def _round(v):
    return float("%.4g" % v) if abs(v) < 1e6 else v
