"""What a thread finds in its registers when it starts: group ids, its number, local ids, inline data.

Sources: sim/sim.h (struct sim_walk); Linux' and Intel's COMPUTE_WALKER: NEO (intel/compute-runtime),
shared/source/gen_common/hw_cmds (Emit Local, Walk Order) and shared/source/helpers/local_id_gen.cpp (local ids are
words, a run of registers for each dimension; x runs fastest in order 0); r0.1, r0.6 and r0.7 hold the group's id,
r0.2[7:0] the thread's number in its group. Where a thread runs is in sr0 and msg0, from which kernels compute the
number that finds their private memory: IGC, IGC/Compiler/CISACodeGen/ShaderCodeGen.cpp, CShader::GetHWTID. sr0.2 is
the mask of lanes that the thread was started with: IGC/Compiler/CISACodeGen/EmitVISAPass.cpp, ballots.
"""

import itertools
from collections.abc import Iterator

import numpy as np
from assembler import XE3
from machine import Case, Product, Walk

ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))  # dimensions, fastest first


def groups(product: Product) -> Iterator[Case]:
    """Ids of groups and threads."""
    for counts, threads in (((5, 1, 1), 1), ((3, 4, 2), 1), ((2, 2, 2), 3)):
        text = "\n".join(
            f"(W) mov (1|M0) r80.{to}<1>:ud r0.{source}<0;1,0>:ud" for to, source in enumerate((1, 6, 7, 2))
        )
        total = counts[0] * counts[1] * counts[2]

        def check(found: dict[int, np.ndarray], counts=counts, threads=threads) -> list[str]:
            got = found[80][:, :16].copy().view("<u4").tolist()
            wrong = []
            for row, values in enumerate(got):
                group, thread = divmod(row, threads)
                want = [
                    group % counts[0],
                    group // counts[0] % counts[1],
                    group // counts[0] // counts[1],
                    thread,
                ]
                if [*values[:3], values[3] & 0xFF] != want:
                    wrong.append(f"row {row}: {values}, expected {want}")
            return wrong

        walk = Walk(threads=threads, groups=counts)
        yield Case(f"groups {counts} of {threads} threads", text, {}, {80: 1}, check, walk=walk, rows=total)


def local_ids(product: Product) -> Iterator[Case]:
    """Words of local ids for each dimension that is emitted, in six orders."""
    for simd, size, threads in ((16, (16, 1, 1), 1), (32, (8, 4, 2), 2), (16, (4, 4, 4), 4)):
        if simd == 32 and product.register == 32:
            simd, threads = 16, threads * 2
        for order, emitted in itertools.product(range(6), (7, 3, 1)):
            if order and emitted != 7:
                continue
            yield _local_ids(product, simd, size, threads, order, emitted)


def _local_ids(
    product: Product, simd: int, size: tuple[int, int, int], threads: int, order: int, emitted: int
) -> Case:
    per_dimension = max(1, simd * 2 // product.register)
    dimensions = [d for d in range(3) if emitted >> d & 1]
    registers = per_dimension * len(dimensions)
    lanes = product.register // 4
    inline = tuple(range(0x1000, 0x1008))
    text = "\n".join(
        f"(W) mov ({lanes}|M0) r{80 + i}.0<1>:ud r{1 + i}.0<1;1,0>:ud" for i in range(registers + 1)
    )

    def check(found: dict[int, np.ndarray]) -> list[str]:
        wrong = []
        for thread in range(threads):
            data = found[80][thread]
            for place, dimension in enumerate(dimensions):
                at = place * per_dimension * product.register
                got = data[at : at + simd * 2].copy().view("<u2").tolist()
                want = [
                    _local_id(thread * simd + lane, size, ORDERS[order], dimension) for lane in range(simd)
                ]
                if got != want:
                    wrong.append(f"thread {thread} dimension {dimension}: {got}, expected {want}")
            at = registers * product.register
            after = data[at : at + 32].copy().view("<u4").tolist()
            if after != list(inline):
                wrong.append(f"inline data is {[hex(x) for x in after]}")
        return wrong

    walk = Walk(
        simd,
        (1 << simd) - 1,
        threads,
        local_size=size,
        emit_local_ids=emitted,
        walk_order=order,
        inline_data=inline,
    )
    name = f"local ids {size} simd {simd} order {order} dimensions {emitted:03b}"
    return Case(name, text, {}, {80: registers + 1}, check, walk=walk)


def _local_id(index: int, size: tuple[int, int, int], order: tuple[int, int, int], dimension: int) -> int:
    """One component of the id of the work-item with this index in its group."""
    for fast in order:
        index, rest = divmod(index, size[fast])
        if fast == dimension:
            return rest
    raise ValueError(dimension)


def _without(value: int, first: int, count: int) -> int:
    """The value without `count` of its bits, from `first` on."""
    low = (1 << first) - 1
    return (value >> count & ~low) | (value & low)


def _hardware_thread(product: Product, state: int, core: int) -> int:
    if product.generation >= XE3:
        return ((core & 0xFF) << 3 | state >> 4 & 7) * 10 + (state & 15)
    if product.xe2:
        return (core & 0xFF) << 6 | _without(state & 0x7F, 3, 1)
    if product.hpc:
        return _without(_without(state & 0x7FFF, 6, 2), 3, 1)
    return _without(_without(state & 0x3FFF, 6, 1), 3, 1)


def places(product: Product) -> Iterator[Case]:
    """No two threads have the same place."""
    text = (
        "(W) mov (1|M0) r80.0<1>:ud sr0.0<0;1,0>:ud\n(W) mov (1|M0) r80.1<1>:ud msg0.0<0;1,0>:ud"
        if product.xe2
        else "(W) mov (1|M0) r80.0<1>:ud sr0.0<0;1,0>:ud"
    )
    threads = 64

    def check(found: dict[int, np.ndarray]) -> list[str]:
        places = found[80][:, :8].copy().view("<u4").tolist()
        numbers = [_hardware_thread(product, *place) for place in places]
        return [] if len(set(numbers)) == threads else [f"numbers {numbers}"]

    yield Case(
        f"places of {threads} threads", text, {}, {80: 1}, check, walk=Walk(threads=threads), rows=threads
    )


def masks(product: Product) -> Iterator[Case]:
    """The mask of lanes; a group's last thread may have fewer."""
    threads, last = 3, 0x01FF

    def check(found: dict[int, np.ndarray]) -> list[str]:
        got = [int(mask) for mask in found[80][:, :4].copy().view("<u4")[:, 0]]
        return [] if got == [0xFFFF, 0xFFFF, last] else [f"masks {[hex(mask) for mask in got]}"]

    walk = Walk(16, last, threads=threads)
    text = "(W) mov (1|M0) r80.0<1>:ud sr0.2<0;1,0>:ud"
    yield Case(f"masks of {threads} threads", text, {}, {80: 1}, check, walk=walk)


def cases(product: Product) -> list[Case]:
    return [*groups(product), *local_ids(product), *places(product), *masks(product)]
