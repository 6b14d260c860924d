"""Which cases of a parametrized test run."""

from __future__ import annotations

import itertools
import random

import pytest
import sampling


def cases_of(*sizes: int) -> list[tuple[str, ...]]:
    return [tuple(f"{i}" for i in case) for case in itertools.product(*map(range, sizes))]


def pairs_of(cases: list[tuple[str, ...]]) -> set[tuple[object, ...]]:
    return {
        (i, case[i], j, case[j]) for case in cases for i in range(len(case)) for j in range(i + 1, len(case))
    }


@pytest.mark.parametrize("sizes", [(5, 4), (3, 3, 3), (7, 2, 5, 3), (2,) * 8, (1, 6, 1), (12, 12)])
def test_every_pair_of_values_is_seen(sizes):
    cases = cases_of(*sizes)
    random.Random(0).shuffle(cases)
    kept = [cases[i] for i in sampling.pairwise(cases, [".".join(case) for case in cases])]
    assert pairs_of(kept) == pairs_of(cases)
    assert len(kept) == len(set(kept))
    two = sorted(sizes)[-2] * sorted(sizes)[-1]
    assert two <= len(kept) <= 2 * two


def test_products_of_many_parameters_become_small():
    cases = cases_of(4, 4, 4, 4)
    assert len(sampling.pairwise(cases, [".".join(case) for case in cases])) <= 32  # of 256


def test_a_product_with_holes_keeps_the_pairs_that_it_has():
    cases = [case for case in cases_of(6, 5, 4) if random.Random("".join(case)).random() < 0.4]
    kept = [cases[i] for i in sampling.pairwise(cases, [".".join(case) for case in cases])]
    assert pairs_of(kept) == pairs_of(cases)


def test_a_lone_parameter_keeps_all_its_values():
    cases = cases_of(9)
    assert sorted(sampling.pairwise(cases, [case[0] for case in cases])) == list(range(9))


def test_dtypes_of_a_class_count_as_one():
    dtypes = ("float32", "float16", "bfloat16", "int8", "int32", "int64", "complex64", "complex128", "bool")
    for form in ("{}", "sum-{}", "{}-mean", "torch.{}"):
        cases = [(form.format(dtype),) for dtype in dtypes]
        kept = {cases[i][0] for i in sampling.pairwise(cases, [case[0] for case in cases])}
        for count, group in (
            (1, dtypes[:1]),
            (1, dtypes[1:3]),
            (1, dtypes[3:5]),
            (1, dtypes[5:6]),
            (1, dtypes[6:8]),
        ):
            assert len(kept & {form.format(dtype) for dtype in group}) == count
        assert len(kept) == 6


def test_which_dtype_of_a_class_runs_differs_from_test_to_test():
    cases = [("float16",), ("bfloat16",)]
    chosen = {
        cases[i]
        for test in range(20)
        for i in sampling.pairwise(cases, [f"test_{test}[{d}]" for (d,) in cases])
    }
    assert chosen == set(cases)


def test_the_choice_depends_on_the_names_alone():
    cases = cases_of(5, 5, 3)
    names = [".".join(case) for case in cases]
    order = random.Random(1).sample(range(len(cases)), len(cases))
    first = {cases[i] for i in sampling.pairwise(cases, names)}
    again = {cases[order[i]] for i in sampling.pairwise([cases[i] for i in order], [names[i] for i in order])}
    assert first == again


def test_one_in_so_many_is_at_least_one():
    names = [f"case {i}" for i in range(10)]
    assert [len(sampling.one_in(n, names)) for n in (1, 3, 4, 10, 99)] == [10, 4, 3, 1, 1]
