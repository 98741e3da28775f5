"""compile(tune=True): what was tried, and that the result is as right as without."""

from __future__ import annotations

import numpy as np

from cuvil import cuvil_native as native

GRAPH = """graph g(%x: f32[1, 32, 20, 20]) {
  %w = constant() {value=dense<f32[96, 32, 1, 1]: splat 0.25>}
  %y = conv(%x, %w) {strides=[1, 1], dilations=[1, 1], groups=1}
  %v = constant() {value=dense<f32[48, 96, 1, 1]: splat 0.5>}
  %z = conv(%y, %v) {strides=[1, 1], dilations=[1, 1], groups=1}
  return "z" = %z
}"""


def test_every_schedule_tried_is_recorded_and_one_is_chosen_per_kernel():
    graph = GRAPH.replace("20, 20", "21, 21")  # not the one that the other test tunes
    model = native.compile(native.parse_graph(graph), tune=True)
    records = model.tuning
    assert len(records) >= 4
    assert all(r["microseconds"] > 0 and r["estimated_cycles"] > 0 for r in records)
    assert sum(r["chosen"] for r in records) == 2
    x = np.random.default_rng(0).standard_normal((1, 32, 21, 21)).astype(np.float32)
    tuned, plain = model.run(x), native.compile(native.parse_graph(graph)).run(x)
    np.testing.assert_array_equal(tuned, plain)


def test_choices_are_remembered():
    first = native.compile(native.parse_graph(GRAPH), tune=True)
    again = native.compile(native.parse_graph(GRAPH), tune=True)
    assert again.tuning == []
    assert [k["description"] for k in first.kernels({})] == [k["description"] for k in again.kernels({})]
