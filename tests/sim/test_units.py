"""The simulator's execution units against Intel's documents, one instruction at a time.

Each family_*.py is a table of cases: instructions in IGA's text, data, and results computed here from what the
named documents say, not from the simulator. Intel's assembler makes the machine code (assembler.py), units.c runs
it on the units alone (machine.py). What documents leave open is not tested; each family names it.
"""

import importlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import PRODUCTS, ROOT, Case, Product, Units, build_units

FAMILIES = (
    "integer",
    "floating",
    "move",
    "flags",
    "regions",
    "flow",
    "math",
    "memory",
    "block2d",
    "dpas",
    "dispatch",
    "operands",
)
SHOWN = 20  # cases that a failure lists


def iga() -> Path:
    """Intel's libiga64, which is fetched if it is not there; skips the test if it can't be had."""
    driver = ROOT / "build/intel/driver"
    library = driver / "root/usr/lib/x86_64-linux-gnu/libiga64.so.2"
    if not library.exists():
        fetched = subprocess.run(
            [str(ROOT / "python/openxpu/_fetch_intel_driver.sh"), str(driver)], capture_output=True, text=True
        )
        if fetched.returncode == 3:
            pytest.skip(f"Intel's packages can't be had: {fetched.stdout.strip()}")
        assert fetched.returncode == 0, fetched.stderr
    return library


@pytest.fixture(scope="session")
def units() -> Iterator[Units]:
    if not shutil.which("gcc"):
        pytest.skip("no C compiler")
    library = iga()
    runner = Units(build_units(ROOT / "build/tests/sim/units"), library)
    try:
        runner.assemble(PRODUCTS[0], "nop\n")
    except OSError as error:
        pytest.skip(f"this C library can't load IGA: {error}")
    yield runner
    runner.close()


def table(family: str, product: Product) -> list[Case]:
    """The cases of a family that the product has."""
    return importlib.import_module(f"family_{family}").cases(product)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
def test_family(units: Units, product: Product, family: str) -> None:
    cases = table(family, product)
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), "names must be unique, or a failure hides another"
    failures = units.failures(product, cases)
    report = [
        f"{name}: {len(wrong)} wrong, first: {wrong[0]}" for name, wrong in list(failures.items())[:SHOWN]
    ]
    assert not failures, "\n".join([f"{len(failures)} of {len(cases)} cases disagree", *report])


def test_a_wrong_result_is_found(units: Units) -> None:
    """The table fails when an instruction does something else, and a fault is reported as one."""
    cases = table("integer", PRODUCTS[0])[:3]
    cases[1].text = cases[1].text.replace("add ", "xor ")
    cases[2].text = "illegal"
    failures = units.failures(PRODUCTS[0], cases)
    assert set(failures) == {cases[1].name, cases[2].name}
