import importlib.util
import json
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "bench_step_time", Path(__file__).parents[2] / "bench" / "step_time.py"
)
assert _SPEC is not None and _SPEC.loader is not None
step_time = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(step_time)


@pytest.mark.filterwarnings("ignore")  # the profiler's, about itself
def test_the_parts_of_a_step_add_up_to_it(capfd: pytest.CaptureFixture[str]) -> None:
    small = ["--parameters", "60000", "--vocabulary", "64", "--context", "32", "--rows", "2"]
    assert step_time.main([*small, "--device", "cpu", "--seconds", "0.05", "--json"]) == 0
    step = json.loads(capfd.readouterr().out)
    assert sum(part["share"] for part in step["parts"]) == pytest.approx(1)
    assert sum(part["seconds"] for part in step["parts"]) == pytest.approx(step["seconds"])
    kinds = {(part["phase"], part["kind"]) for part in step["parts"]}
    for kind in ("matrix products", "attention", "norms"):
        assert ("forward", kind) in kinds
        assert ("backward", kind) in kinds
    assert ("forward", "loss") in kinds
    assert {part["phase"] for part in step["parts"]} == set(step_time.PHASES)
